"""Headers of records in Arrow's layout.

A row is first taken, which reads each of its offsets once and computes its size, and then written from those
offsets. So memory that another thread changes meanwhile makes wrong headers at worst, as with keys and values.
"""

cdef enum:
    MAX_HEADERS = 256  # header_lists.MAX_HEADERS


@cython.final
@cython.no_gc_clear  # the rows point into memory that the columns keep alive
cdef class HeaderLists:
    """See ``header_lists.HeaderLists``."""

    cdef Py_ssize_t length
    cdef object _parts
    cdef BlobColumn _keys
    cdef BlobColumn _values
    cdef const uint8_t *_validity
    cdef const uint8_t *_offsets
    cdef const uint8_t *_present
    cdef Py_ssize_t _first
    cdef Py_ssize_t _first_present
    cdef bint _wide
    cdef Py_ssize_t _count  # headers of the row in _taken: key, value, key, …
    cdef RowBytes _taken[2 * MAX_HEADERS]

    def __cinit__(self):
        self.length = 0
        self._keys = self._values = BlobColumn.__new__(BlobColumn)

    @staticmethod
    def of_arrow(parts):
        """See ``header_lists.HeaderLists.of_arrow``."""
        cdef HeaderLists lists = HeaderLists.__new__(HeaderLists)
        lists._keys = BlobColumn.of_arrow(parts.keys)
        lists._values = BlobColumn.of_arrow(parts.values)
        lists._validity = <const uint8_t *><uintptr_t>parts.validity
        lists._offsets = <const uint8_t *><uintptr_t>parts.offsets
        lists._present = <const uint8_t *><uintptr_t>parts.present
        lists._first = parts.first
        lists._first_present = parts.first_present
        lists._wide = parts.offset_bytes == 8
        lists._parts = parts
        lists.length = parts.length
        return lists

    def close(self):
        """See ``header_lists.HeaderLists.close``."""
        self.length = 0
        self._parts = None
        self._keys.close()
        self._values.close()

    def __len__(self):
        return self.length

    def __getitem__(self, Py_ssize_t row):
        if not 0 <= row < self.length:
            raise IndexError(f"row {row} of {self.length}")
        return pairs_of(self._parts, self._keys, self._values, row)

    cdef Py_ssize_t take(self, Py_ssize_t row, Py_ssize_t max_bytes) noexcept:
        """Take a row's headers and return their size in a record; ODD if there are too many for the fast way."""
        cdef int64_t low, high, at
        cdef Py_ssize_t size
        cdef RowBytes *key
        cdef RowBytes *value
        self._count = 0
        row += self._first
        if self._validity is not NULL and not self._validity[row >> 3] >> (row & 7) & 1:
            return 1
        if self._wide:
            low, high = load_64(self._offsets + 8 * row), load_64(self._offsets + 8 * row + 8)
        else:
            low, high = load_32(self._offsets + 4 * row), load_32(self._offsets + 4 * row + 4)
        if not 0 <= low <= high <= self._keys.length or high - low > MAX_HEADERS:
            return ODD_BLOB
        size = varint_size(high - low)
        for at in range(low, high):
            key = &self._taken[2 * (at - low)]
            value = key + 1
            key[0] = self._keys.at(at)
            value[0] = self._values.at(at)
            if key.size < 0 or value.size == ODD_BLOB or not self.is_present(at):
                return ODD_BLOB
            if key.size > max_bytes - size or not is_utf8(key.start, key.size):
                return ODD_BLOB
            size += size_of(key.size)
            if value.size > max_bytes - size:
                return ODD_BLOB
            size += size_of(value.size)
        self._count = high - low
        return size

    cdef inline bint is_present(self, int64_t at) noexcept:
        at += self._first_present
        return self._present is NULL or self._present[at >> 3] >> (at & 7) & 1

    cdef void write(self, uint8_t *out) noexcept:
        """Write the row that ``take`` took; there is room for as many bytes as it returned."""
        cdef Py_ssize_t place
        out = put_varint(out, self._count)
        for place in range(2 * self._count):
            out = put_bytes(out, self._taken[place])
