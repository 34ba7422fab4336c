"""Records as columns in Arrow's layout, filled batch by batch."""

cdef enum:
    MAX_COLUMN_BYTES = 0x7FFFFFFF
    RECORD_COST = 32  # per record: two 8-byte numbers, up to three 4-byte offsets, and the null bits
    HEADER_COST = 8


@cython.no_gc  # holds bytes only, so it cannot be part of a reference cycle
@cython.final
cdef class ByteColumn:
    """A column of byte strings: their bytes in a row, the end of each, and a bit for each that is not null."""

    cdef object validity
    cdef object offsets
    cdef object data
    cdef int64_t count
    cdef int64_t null_count
    cdef int64_t used
    cdef int64_t[3] marked

    def __cinit__(self):
        self.validity = PyByteArray_FromStringAndSize(NULL, 0)
        self.offsets = PyByteArray_FromStringAndSize(NULL, sizeof(int32_t))
        self.data = PyByteArray_FromStringAndSize(NULL, 0)
        memset(PyByteArray_AS_STRING(self.offsets), 0, sizeof(int32_t))

    cdef int reserve_rows(self, int64_t rows) except -1:
        reserve(self.validity, (self.count + rows + 7) // 8)
        return reserve(self.offsets, (self.count + rows + 1) * <int64_t>sizeof(int32_t))

    cdef inline int reserve_bytes(self, int64_t size) except -1:
        return reserve(self.data, self.used + size)

    cdef inline void put(self, Blob *blob) noexcept:
        """Append one value, for which there is room."""
        cdef uint8_t *bits = <uint8_t *>PyByteArray_AS_STRING(self.validity) + (self.count >> 3)
        cdef int bit = self.count & 7
        # The bits above are cleared: `go_back` leaves those of rows that it drops.
        cdef int below = bits[0] & ((1 << bit) - 1) if bit else 0
        if blob.size < 0:
            self.null_count += 1
            bits[0] = <uint8_t>below
        else:
            bits[0] = <uint8_t>(below | 1 << bit)
            # Not memcpy: `put_text` has written the text to this very place.
            memmove(PyByteArray_AS_STRING(self.data) + self.used, blob.data, blob.size)
            self.used += blob.size
        self.count += 1
        (<int32_t *>PyByteArray_AS_STRING(self.offsets))[self.count] = <int32_t>self.used

    cdef int put_text(self, Blob *blob, int64_t more) except -1:
        """Append a text, with U+FFFD for malformed UTF-8, and keep ``more`` bytes free; return 1 if there is no room."""
        cdef Blob sound
        if self.used + 3 * blob.size + more > MAX_COLUMN_BYTES:
            return 1
        self.reserve_bytes(3 * blob.size + more)
        sound.data = <const uint8_t *>PyByteArray_AS_STRING(self.data) + self.used
        sound.size = put_sound_text(blob.data, blob.size, <uint8_t *>sound.data)
        self.put(&sound)
        return 0

    cdef void mark(self) noexcept:
        self.marked = [self.count, self.null_count, self.used]

    cdef void go_back(self) noexcept:
        self.count = self.marked[0]
        self.null_count = self.marked[1]
        self.used = self.marked[2]

    cdef tuple finish(self):
        cut(self.validity, (self.count + 7) // 8)
        cut(self.offsets, (self.count + 1) * <int64_t>sizeof(int32_t))
        cut(self.data, self.used)
        return self.null_count, self.validity if self.null_count else None, self.offsets, self.data


@cython.no_gc  # holds bytes only, so it cannot be part of a reference cycle
@cython.final
cdef class ColumnBuffers:
    """See ``columns.ColumnBuffers``."""

    cdef int64_t first_offset
    cdef int64_t last_offset
    cdef int64_t max_records
    cdef int64_t max_bytes
    cdef bint wants_keys
    cdef bint wants_values
    cdef bint wants_headers
    cdef readonly int64_t record_count
    cdef readonly int64_t size_bytes
    cdef int64_t last_taken
    cdef int64_t[3] marked
    cdef bint finished
    cdef object offsets
    cdef object timestamps
    cdef object header_offsets
    cdef ByteColumn keys
    cdef ByteColumn values
    cdef ByteColumn header_keys
    cdef ByteColumn header_values

    def __cinit__(
        self,
        *,
        int64_t first_offset,
        int64_t last_offset,
        int64_t max_records,
        int64_t max_bytes,
        bint keys,
        bint values,
        bint headers,
    ):
        self.last_taken = -1
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.max_records = max_records
        self.max_bytes = min(max_bytes, <int64_t>MAX_COLUMN_BYTES)
        self.wants_keys = keys
        self.wants_values = values
        self.wants_headers = headers
        self.offsets = PyByteArray_FromStringAndSize(NULL, 0)
        self.timestamps = PyByteArray_FromStringAndSize(NULL, 0)
        self.header_offsets = PyByteArray_FromStringAndSize(NULL, sizeof(int32_t))
        memset(PyByteArray_AS_STRING(self.header_offsets), 0, sizeof(int32_t))
        self.keys = ByteColumn.__new__(ByteColumn)
        self.values = ByteColumn.__new__(ByteColumn)
        self.header_keys = ByteColumn.__new__(ByteColumn)
        self.header_values = ByteColumn.__new__(ByteColumn)

    def add(self, records, int64_t record_count, int64_t base_offset, int64_t base_timestamp, append_time):
        """See ``columns.ColumnBuffers.add``."""
        cdef Py_buffer view
        cdef Walk walk
        cdef bint has_append_time = append_time is not None
        cdef int64_t timestamp = append_time if has_append_time else 0
        cdef int64_t stopped = -1
        cdef int status
        PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
        if self.finished:
            PyBuffer_Release(&view)
            raise IllegalStateError("these columns are finished")
        # From here on no Python code runs, so other threads see the whole batch or nothing of it.
        self.mark()
        try:
            status = start_walk(&walk, &view, record_count)
            if not status:
                self.reserve_rows(record_count)
            while not status and walk.number < record_count:
                status = self.take(&walk, base_offset, base_timestamp, has_append_time, timestamp, &stopped)
            if not status:
                status = check_end(&walk)
            if status < 0:
                self.go_back()
        except MemoryError:
            self.go_back()
            raise
        finally:
            PyBuffer_Release(&view)
        if status < 0:
            raise damage_of(&walk)
        return stopped if status else None

    cdef int take(
        self,
        Walk *walk,
        int64_t base_offset,
        int64_t base_timestamp,
        bint has_append_time,
        int64_t append_time,
        int64_t *stopped,
    ) except -2:
        """Append the next record; return 0 (also if it is not wanted), 1 if it does not fit, -1 if it is damaged."""
        cdef Blob key, value
        cdef int64_t offset = 0, header_count = 0, cost
        cdef Py_ssize_t row
        if begin_record(walk) < 0 or offset_of_record(walk, base_offset, &offset) < 0:
            return -1
        if take_blob(walk, FIELD_KEY, &key) < 0 or take_blob(walk, FIELD_VALUE, &value) < 0:
            return -1
        if take_header_count(walk, &header_count) < 0:
            return -1
        if not self.first_offset <= offset <= self.last_offset:
            return -1 if pass_headers(walk, header_count) < 0 else finish_record(walk)
        cost = RECORD_COST + walk.record_bytes + HEADER_COST * header_count
        # The first record is taken whatever its size, so that every call advances.
        if self.record_count and (
            self.record_count >= self.max_records or self.size_bytes + cost > self.max_bytes
        ):
            # Behind the last one even if offsets do not ascend: the reader goes
            # on from there, and must not loop.
            stopped[0] = offset if offset > self.last_taken else self.last_taken + 1
            return 1
        if self.wants_keys:
            if key.size > 0:
                self.keys.reserve_bytes(key.size)
            self.keys.put(&key)
        if self.wants_values:
            if value.size > 0:
                self.values.reserve_bytes(value.size)
            self.values.put(&value)
        if self.wants_headers:
            if header_count and self.take_headers(walk, header_count, &cost) < 0:
                return -1
        elif pass_headers(walk, header_count) < 0:
            return -1
        if finish_record(walk) < 0:
            return -1
        row = self.record_count
        (<int64_t *>PyByteArray_AS_STRING(self.offsets))[row] = offset
        (<int64_t *>PyByteArray_AS_STRING(self.timestamps))[row] = (
            append_time
            if has_append_time
            else <int64_t>(<uint64_t>base_timestamp + <uint64_t>walk.timestamp_delta)
        )
        if self.wants_headers:
            (<int32_t *>PyByteArray_AS_STRING(self.header_offsets))[row + 1] = <int32_t>self.header_keys.count
        self.record_count += 1
        self.size_bytes += cost
        self.last_taken = offset
        return 0

    cdef int take_headers(self, Walk *walk, int64_t header_count, int64_t *cost) except -2:
        cdef Blob key, value
        cdef int64_t room = walk.end - walk.at, before
        # Keys and values are at most as large as the rest of the record, so `put` needs no check.
        self.header_keys.reserve_rows(header_count)
        self.header_keys.reserve_bytes(room)
        self.header_values.reserve_rows(header_count)
        self.header_values.reserve_bytes(room)
        while header_count:
            if take_header(walk, &key, &value) < 0:
                return -1
            if is_utf8(key.data, key.size):
                self.header_keys.put(&key)
            else:
                before = self.header_keys.used
                if self.header_keys.put_text(&key, walk.end - walk.at):
                    return fail(walk, HEADER_KEY_TEXT, FIELD_HEADER_KEY, walk.at - walk.start, 0, 0)
                cost[0] += self.header_keys.used - before - key.size
            self.header_values.put(&value)
            header_count -= 1
        return 0

    cdef int reserve_rows(self, int64_t record_count) except -1:
        """Reserve room for all records that the batch can hold; its count was checked against its size."""
        cdef int64_t room = max(min(self.max_records - self.record_count, self.max_bytes // RECORD_COST + 1), 1)
        cdef int64_t rows = min(record_count, room)
        reserve(self.offsets, (self.record_count + rows) * <int64_t>sizeof(int64_t))
        reserve(self.timestamps, (self.record_count + rows) * <int64_t>sizeof(int64_t))
        if self.wants_keys:
            self.keys.reserve_rows(rows)
        if self.wants_values:
            self.values.reserve_rows(rows)
        if self.wants_headers:
            reserve(self.header_offsets, (self.record_count + rows + 1) * <int64_t>sizeof(int32_t))
        return 0

    cdef void mark(self) noexcept:
        self.marked = [self.record_count, self.size_bytes, self.last_taken]
        self.keys.mark()
        self.values.mark()
        self.header_keys.mark()
        self.header_values.mark()

    cdef void go_back(self) noexcept:
        self.record_count = self.marked[0]
        self.size_bytes = self.marked[1]
        self.last_taken = self.marked[2]
        self.keys.go_back()
        self.values.go_back()
        self.header_keys.go_back()
        self.header_values.go_back()

    def finish(self):
        """See ``columns.ColumnBuffers.finish``."""
        cdef object headers = None
        if self.finished:
            raise IllegalStateError("these columns are finished")
        self.finished = True
        cut(self.offsets, self.record_count * <int64_t>sizeof(int64_t))
        cut(self.timestamps, self.record_count * <int64_t>sizeof(int64_t))
        if self.wants_headers:
            cut(self.header_offsets, (self.record_count + 1) * <int64_t>sizeof(int32_t))
            headers = self.header_offsets, self.header_keys.finish(), self.header_values.finish()
        return (
            self.record_count,
            self.offsets,
            self.timestamps,
            self.keys.finish() if self.wants_keys else None,
            self.values.finish() if self.wants_values else None,
            headers,
        )


cdef inline int reserve(object memory, int64_t size) except -1:
    """Grow a bytearray that only this object refers to, to ``size`` bytes at least, with room to grow further."""
    cdef int64_t has = PyByteArray_GET_SIZE(memory)
    if has < size:
        PyByteArray_Resize(memory, max(size, 2 * has))
    return 0


cdef int cut(object memory, int64_t size) except -1:
    return PyByteArray_Resize(memory, size)
