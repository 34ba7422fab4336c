"""Keys and values in memory: a Python sequence or Arrow's buffers, with one way to read a row.

A ``RowBytes`` is borrowed: it is valid until Python code runs or the GIL is released. So the kernels use it only in
the part of a call where neither happens.
"""

cdef enum:
    NULL_BLOB = -1
    ODD_BLOB = -2  # not bytes, or outside of the column's buffers

cdef enum:  # blob_column.Layout; 0 is a sequence of objects
    OBJECTS = 0
    OFFSETS_32 = 1
    OFFSETS_64 = 2
    FIXED_SIZE = 3
    VIEWS = 4
    NULLS = 5

cdef enum:
    VIEW_BYTES = 16
    INLINE_BYTES = 12


cdef struct RowBytes:
    const uint8_t *start
    Py_ssize_t size  # NULL_BLOB, ODD_BLOB


cdef struct ViewBuffer:
    const uint8_t *start
    int64_t size


@cython.no_gc_clear  # the rows point into memory that the owner keeps alive
cdef class BlobColumn:
    """See ``blob_column.BlobColumn``."""

    cdef int layout
    cdef Py_ssize_t length
    cdef object _source  # the sequence, or the owner of the buffers
    cdef PyObject **_items
    cdef const uint8_t *_validity
    cdef const uint8_t *_offsets
    cdef const uint8_t *_data
    cdef Py_ssize_t _first
    cdef int64_t _end  # size of the data if there are offsets, else the size of each row
    cdef ViewBuffer *_spans
    cdef Py_ssize_t _span_count
    cdef int _code_bytes
    cdef BlobColumn _dictionary

    def __cinit__(self):
        self._source = ()
        self._items = NULL
        self._spans = NULL
        self._validity = self._offsets = self._data = NULL

    def __dealloc__(self):
        PyMem_Free(self._spans)

    @staticmethod
    def of_objects(source):
        """See ``blob_column.BlobColumn.of_objects``."""
        cdef BlobColumn column = BlobColumn.__new__(BlobColumn)
        if type(source) is not list and type(source) is not tuple:
            raise TypeError(f"a list or a tuple, not {type(source).__name__}")
        column.layout = OBJECTS
        column._source = source
        return column

    @staticmethod
    def of_arrow(parts):
        """See ``blob_column.BlobColumn.of_arrow``."""
        cdef BlobColumn column = BlobColumn.__new__(BlobColumn)
        cdef Py_ssize_t position
        column.layout = parts.layout
        column._source = parts.owner
        column._first = parts.first
        column._validity = <const uint8_t *><uintptr_t>parts.validity
        column._offsets = <const uint8_t *><uintptr_t>parts.offsets
        column._data = <const uint8_t *><uintptr_t>parts.data
        column._end = parts.end
        column._code_bytes = parts.code_bytes
        if parts.dictionary is not None:
            column._dictionary = BlobColumn.of_arrow(parts.dictionary)
        spans = parts.spans
        column._spans = <ViewBuffer *>PyMem_Malloc((len(spans) + 1) * sizeof(ViewBuffer))
        if column._spans is NULL:
            raise MemoryError()
        for position, (start, size) in enumerate(spans):
            column._spans[position].start = <const uint8_t *><uintptr_t>start
            column._spans[position].size = size
        column._span_count = len(spans)
        column.length = parts.length
        return column

    def close(self):
        """See ``blob_column.BlobColumn.close``."""
        self.layout = OBJECTS
        self._source = ()
        self._dictionary = None
        self.length = 0

    def __len__(self):
        self.refresh()
        return self.length

    def __getitem__(self, Py_ssize_t row):
        cdef RowBytes blob
        self.refresh()
        if not 0 <= row < self.length:
            raise IndexError(f"row {row} of {self.length}")
        if self.layout == OBJECTS:
            return self._source[row]
        blob = self.at(row)
        if blob.size == ODD_BLOB:
            raise IllegalArgumentError(DAMAGED_ROW)
        return None if blob.size < 0 else blob.start[: blob.size]

    cdef void refresh(self) noexcept:
        """Read the list's address and length again: it may have changed since the last call."""
        if self.layout == OBJECTS:
            self._items = PySequence_Fast_ITEMS(self._source)
            self.length = PySequence_Fast_GET_SIZE(self._source)

    cdef inline RowBytes at(self, Py_ssize_t row) noexcept:
        """Return a row's bytes; the row exists."""
        cdef PyObject *item
        cdef RowBytes blob
        cdef int64_t code
        if self.layout == OBJECTS:
            item = self._items[row]
            if type(<object>item) is bytes:
                blob.start = <const uint8_t *>PyBytes_AS_STRING(<object>item)
                blob.size = PyBytes_GET_SIZE(<object>item)
            else:
                blob.start = NULL
                blob.size = NULL_BLOB if <object>item is None else ODD_BLOB
            return blob
        row += self._first
        blob.start = NULL
        if self._validity is not NULL and not self._validity[row >> 3] >> (row & 7) & 1:
            blob.size = NULL_BLOB
            return blob
        if self._dictionary is not None:
            code = self.code(row)
            blob.size = ODD_BLOB
            return self._dictionary.plain(code) if 0 <= code < self._dictionary.length else blob
        return self.stored(row)

    cdef RowBytes plain(self, Py_ssize_t row) noexcept:
        """As ``at``, for the values of a dictionary, which has no dictionary itself."""
        cdef RowBytes blob
        row += self._first
        if self._validity is not NULL and not self._validity[row >> 3] >> (row & 7) & 1:
            blob.start = NULL
            blob.size = NULL_BLOB
            return blob
        return self.stored(row)

    cdef int64_t code(self, Py_ssize_t row) noexcept:
        """Read a row's index into the dictionary; one above 2**63 becomes negative, which is out of range as well."""
        cdef int size = -self._code_bytes if self._code_bytes < 0 else self._code_bytes
        cdef uint64_t code = 0
        cdef int unused = 64 - 8 * size
        memcpy(&code, self._data + row * size, size)
        if self._code_bytes < 0:
            return <int64_t>(code << unused) >> unused
        return <int64_t>code

    cdef inline RowBytes stored(self, Py_ssize_t row) noexcept:
        """Return the bytes between two offsets of the buffers; ODD if the buffers contradict each other."""
        cdef RowBytes blob
        cdef int64_t low, high
        blob.start = NULL
        blob.size = ODD_BLOB
        if self.layout == OFFSETS_32:
            low = load_32(self._offsets + 4 * row)
            high = load_32(self._offsets + 4 * row + 4)
        elif self.layout == OFFSETS_64:
            low = load_64(self._offsets + 8 * row)
            high = load_64(self._offsets + 8 * row + 8)
        elif self.layout == FIXED_SIZE:
            blob.start = self._data + row * self._end
            blob.size = self._end
            return blob
        elif self.layout == VIEWS:
            return self.viewed(self._data + row * VIEW_BYTES)
        else:
            blob.size = NULL_BLOB
            return blob
        if 0 <= low <= high <= self._end:
            blob.start = self._data + low
            blob.size = high - low
        return blob

    cdef RowBytes viewed(self, const uint8_t *view) noexcept:
        """Read Arrow's view layout: length, then up to 12 bytes, or four bytes, a buffer's number and an offset in it."""
        cdef RowBytes blob
        cdef int32_t size = load_32(view)
        cdef int32_t number = load_32(view + 8)
        cdef int32_t start = load_32(view + 12)
        blob.start = view + 4
        blob.size = size
        if 0 <= size <= INLINE_BYTES:
            return blob
        blob.size = ODD_BLOB
        if size > 0 and 0 <= number < self._span_count and 0 <= start <= self._spans[number].size - size:
            blob.start = self._spans[number].start + start
            blob.size = size
        return blob


cdef inline int32_t load_32(const uint8_t *at) noexcept nogil:
    """Read a number that may be unaligned."""
    cdef int32_t number
    memcpy(&number, at, 4)
    return number


cdef inline int64_t load_64(const uint8_t *at) noexcept nogil:
    cdef int64_t number
    memcpy(&number, at, 8)
    return number
