"""The length of a zstd frame, from the headers of its blocks; without the GIL."""


def zstd_frame(data, int64_t position, int64_t header_bytes, bint has_checksum):
    """See ``zstd_frame.zstd_frame``."""
    cdef Py_buffer view
    cdef const uint8_t *at
    cdef int64_t start = position, blocks = 0, header, kind
    cdef int damage = 0
    cdef bint is_last = False
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    with nogil:
        at = <const uint8_t *>view.buf
        if start < 0 or header_bytes < 0 or header_bytes > view.len - start:
            damage = 1
        else:
            position = start + header_bytes
            while not is_last:
                if view.len - position < 3:
                    damage = 1
                    break
                header = at[position] | <int64_t>at[position + 1] << 8 | <int64_t>at[position + 2] << 16
                is_last = header & 1
                kind = header >> 1 & 3
                if kind == 3:
                    damage = 2
                    break
                position += 3 + (1 if kind == 1 else header >> 3)
                blocks += 1
            if not damage and view.len - position < (4 if has_checksum else 0):
                damage = 1
    PyBuffer_Release(&view)
    if damage:
        return -damage, 0
    return position + (4 if has_checksum else 0) - start, blocks
