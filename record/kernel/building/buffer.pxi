"""The bytes of a batch while records are appended."""


@cython.no_gc  # holds bytes only, so it cannot be part of a reference cycle
@cython.final
cdef class BatchBuffer:
    """See ``buffer.BatchBuffer``."""

    cdef uint8_t *_start
    cdef object _memory  # the bytearray that _start points into
    cdef object _pin  # a memoryview of it, which forbids resizing: _start stays valid
    cdef readonly Py_ssize_t size_bytes
    cdef readonly Py_ssize_t capacity_bytes
    cdef readonly Py_ssize_t record_count
    cdef readonly int64_t base_timestamp_ms
    cdef readonly int64_t max_timestamp_ms
    cdef uint32_t _sum  # checksum of the bytes up to _summed
    cdef Py_ssize_t _summed
    cdef Py_ssize_t _sum_at  # the size at which the next step is complete
    cdef bint _sum_asked  # never for compressed batches: the checksum covers the compressed bytes

    def __cinit__(self, capacity_bytes):
        cdef long long wanted = as_number(capacity_bytes)
        check_capacity(wanted, capacity_bytes)
        self.allocate(wanted)
        self.clear(can_sum)

    cdef void clear(self, bint sums) noexcept:
        """Start without records; they are checksummed as they are appended, or when ``checksum`` is first called."""
        self.size_bytes = HEADER_BYTES
        self.record_count = 0
        self.base_timestamp_ms = -1
        self.max_timestamp_ms = -1
        self._sum = 0
        self._summed = HEADER_BYTES
        self._sum_at = HEADER_BYTES + SUM_STEP_BYTES if sums else PY_SSIZE_T_MAX
        self._sum_asked = False
        memset(self._start, 0, HEADER_BYTES)

    cdef void sum_up(self) noexcept:
        """Checksum the complete steps, while their bytes are still in the processor's cache."""
        cdef Py_ssize_t steps = (self.size_bytes - self._summed) // SUM_STEP_BYTES
        self._sum = sum_steps(self._sum, self._start + self._summed, steps)
        self._summed += steps * SUM_STEP_BYTES
        self._sum_at = self._summed + SUM_STEP_BYTES

    cdef int allocate(self, Py_ssize_t capacity_bytes) except -1:
        """Move the records to larger memory; do nothing if there is enough by then."""
        cdef object memory = PyByteArray_FromStringAndSize(NULL, capacity_bytes)
        cdef object pin = memoryview(memory)  # an allocation: the last line that may run a finalizer
        if self._start is not NULL and capacity_bytes <= self.capacity_bytes:
            return 0  # a finalizer has sent a record, which made this buffer grow
        cdef uint8_t *start = <uint8_t *>PyByteArray_AS_STRING(memory)
        if self._start is not NULL:
            memcpy(start, self._start, self.size_bytes)
        self._start = start
        self.capacity_bytes = capacity_bytes
        self._memory, memory = memory, self._memory  # the old ones are freed last
        self._pin, pin = pin, self._pin
        return 0

    def try_append(self, timestamp_ms, key, value, headers):
        """See ``buffer.BatchBuffer.try_append``."""
        cdef int64_t timestamp = as_int(timestamp_ms) if type(timestamp_ms) is not int else timestamp_ms
        key = as_blob(key, "key")
        value = as_blob(value, "value")
        headers = as_pairs(headers)

        return self.put(timestamp, key, value, headers)

    cdef bint put(self, int64_t timestamp, object key, object value, object headers) except -1:
        """Append checked key, value and headers. Runs no Python code, so it is one atomic step for all threads."""
        cdef int64_t delta = 0
        if self.record_count:
            # Unsigned, since a difference beyond 64 bits is undefined in C for signed numbers.
            delta = <int64_t>(<uint64_t>timestamp - <uint64_t>self.base_timestamp_ms)
        cdef Py_ssize_t body = (
            1
            + varint_size(delta)
            + varint_size(self.record_count)
            + blob_size(key)
            + blob_size(value)
            + (1 if headers is None else headers_size(headers))
        )
        cdef Py_ssize_t end = self.size_bytes + varint_size(body) + body
        if end > self.capacity_bytes:
            return False
        cdef uint8_t *out = put_varint(self._start + self.size_bytes, body)
        out[0] = 0  # attributes
        out = put_varint(out + 1, delta)
        out = put_varint(out, self.record_count)
        out = put_blob(out, key)
        out = put_blob(out, value)
        if headers is None:
            out[0] = 0
        else:
            put_headers(out, headers)
        self.size_bytes = end
        if not self.record_count:
            self.base_timestamp_ms = timestamp
            self.max_timestamp_ms = timestamp
        elif timestamp > self.max_timestamp_ms:
            self.max_timestamp_ms = timestamp
        self.record_count += 1
        if end >= self._sum_at:
            self.sum_up()
        return True

    def reserve(self, capacity_bytes):
        """See ``buffer.BatchBuffer.reserve``."""
        cdef long long wanted = as_number(capacity_bytes)
        if wanted > self.capacity_bytes:
            check_capacity(wanted, capacity_bytes)
            self.allocate(wanted)

    def recycle(self):
        """See ``buffer.BatchBuffer.recycle``."""
        if (
            (<CByteArray *>self._memory).ob_exports != 1  # beside `_pin` a view is a socket's or the application's
            or (<CMemoryView *>self._pin).mbuf.exports != 1
            or (<CMemoryView *>self._pin).exports
        ):
            return False
        self.clear(can_sum and self._sum_asked)
        return True

    def checksum(self):
        """See ``buffer.BatchBuffer.checksum``."""
        cdef uint32_t head
        self._sum_asked = True
        if self._sum_at > self.size_bytes + SUM_STEP_BYTES:  # nothing was checksummed
            return crc32c(self._pin[CRC_FROM : self.size_bytes])
        head = sum_rest(0, self._start + CRC_FROM, HEADER_BYTES - CRC_FROM)
        return times(head, shift_by(self.size_bytes - HEADER_BYTES)) ^ sum_rest(
            self._sum, self._start + self._summed, self.size_bytes - self._summed
        )

    def view(self):
        """See ``buffer.BatchBuffer.view``."""
        return self._pin[: self.size_bytes]


cdef long long as_number(object number) except? -1:
    """Return the number as a C integer, limited to its range; no comparison in Python, which might run code."""
    cdef int overflow = 0
    cdef long long value = PyLong_AsLongLongAndOverflow(number, &overflow)
    return value if not overflow else LLONG_MAX if overflow > 0 else LLONG_MIN


cdef int check_capacity(long long wanted, object capacity_bytes) except -1:
    if not HEADER_BYTES <= wanted <= MAX_BATCH_BYTES:
        raise IllegalArgumentError(
            f"capacity_bytes={capacity_bytes}: a batch has {HEADER_BYTES} to {MAX_BATCH_BYTES} bytes"
        )
    return 0


def record_size_upper_bound(key, value, headers):
    """See ``buffer.record_size_upper_bound``."""
    key = as_blob(key, "key or value")
    value = as_blob(value, "key or value")
    headers = as_pairs(headers)
    return RECORD_OVERHEAD_BYTES + blob_size(key) + blob_size(value) + headers_size(headers)
