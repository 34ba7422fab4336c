"""Varints and length-prefixed bytes as records hold them."""


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef inline Py_ssize_t varint_size(int64_t value) noexcept nogil:
    cdef uint64_t rest = zigzag(value)
    cdef Py_ssize_t size = 1
    if rest <= 0x7F:  # most numbers are that small; written out to save the loop
        return 1
    if rest <= 0x3FFF:
        return 2
    while rest > 0x7F:
        rest >>= 7
        size += 1
    return size


cdef inline uint8_t *put_varint(uint8_t *out, int64_t value) noexcept nogil:
    cdef uint64_t rest = zigzag(value)
    if rest <= 0x7F:
        out[0] = <uint8_t>rest
        return out + 1
    if rest <= 0x3FFF:
        out[0] = <uint8_t>(0x80 | rest)
        out[1] = <uint8_t>(rest >> 7)
        return out + 2
    while rest > 0x7F:
        out[0] = <uint8_t>(0x80 | (rest & 0x7F))
        out += 1
        rest >>= 7
    out[0] = <uint8_t>rest
    return out + 1


cdef inline Py_ssize_t blob_size(object blob) noexcept:
    """Return the size of a length-prefixed value: exact ``bytes`` or None."""
    if blob is None:
        return 1
    cdef Py_ssize_t size = PyBytes_GET_SIZE(blob)
    return varint_size(size) + size


cdef inline uint8_t *put_blob(uint8_t *out, object blob) noexcept:
    if blob is None:
        out[0] = 1  # varint -1
        return out + 1
    cdef Py_ssize_t size = PyBytes_GET_SIZE(blob)
    out = put_varint(out, size)
    memcpy(out, PyBytes_AS_STRING(blob), size)
    return out + size
