"""Headers of records.

``headers`` is an exact list or tuple of exact pairs here. Nothing below runs Python code, so a list cannot change
between the computation of its size and the write.
"""


cdef inline object pair_at(object headers, Py_ssize_t position):
    if type(headers) is tuple:
        return <object>PyTuple_GET_ITEM(headers, position)
    return <object>PyList_GET_ITEM(headers, position)


cdef inline Py_ssize_t header_count(object headers) noexcept:
    if headers is None:
        return 0
    return PyTuple_GET_SIZE(headers) if type(headers) is tuple else PyList_GET_SIZE(headers)


cdef object as_pairs(object headers):
    """Return ``headers`` itself if the encoder can take it as it is, else a checked copy.

    Every key's UTF-8 form is made here, so that writing it later cannot fail.
    """
    cdef Py_ssize_t position
    cdef Py_ssize_t size = 0
    cdef object pair, value
    if headers is None:
        return None
    if type(headers) is not tuple and type(headers) is not list:
        headers = checked_headers(headers)
    for position in range(header_count(headers)):
        pair = pair_at(headers, position)
        if type(pair) is tuple and PyTuple_GET_SIZE(pair) == 2:
            value = <object>PyTuple_GET_ITEM(pair, 1)
            if type(<object>PyTuple_GET_ITEM(pair, 0)) is str and (value is None or type(value) is bytes):
                continue
        headers = checked_headers(headers)
        break
    for position in range(header_count(headers)):
        PyUnicode_AsUTF8AndSize(<object>PyTuple_GET_ITEM(pair_at(headers, position), 0), &size)
    return headers


cdef Py_ssize_t headers_size(object headers) except -1:
    cdef Py_ssize_t count = header_count(headers)
    cdef Py_ssize_t total = varint_size(count)
    cdef Py_ssize_t position
    cdef Py_ssize_t size = 0
    cdef object pair
    for position in range(count):
        pair = pair_at(headers, position)
        PyUnicode_AsUTF8AndSize(<object>PyTuple_GET_ITEM(pair, 0), &size)
        total += varint_size(size) + size + blob_size(<object>PyTuple_GET_ITEM(pair, 1))
    return total


cdef uint8_t *put_headers(uint8_t *out, object headers) except NULL:
    cdef Py_ssize_t count = header_count(headers)
    cdef Py_ssize_t position
    cdef Py_ssize_t size = 0
    cdef const char *key
    cdef object pair
    out = put_varint(out, count)
    for position in range(count):
        pair = pair_at(headers, position)
        key = PyUnicode_AsUTF8AndSize(<object>PyTuple_GET_ITEM(pair, 0), &size)
        out = put_varint(out, size)
        memcpy(out, key, size)
        out = put_blob(out + size, <object>PyTuple_GET_ITEM(pair, 1))
    return out


cdef inline object as_blob(object data, str what):
    return data if data is None or type(data) is bytes else as_bytes(data, what)


cdef bint plain_headers(object headers) noexcept:
    """Whether the encoder can take them as they are. Runs no Python code and raises nothing."""
    cdef Py_ssize_t position
    cdef Py_ssize_t size = 0
    cdef object pair, value
    if type(headers) is not tuple and type(headers) is not list:
        return False
    for position in range(header_count(headers)):
        pair = pair_at(headers, position)
        if type(pair) is not tuple or PyTuple_GET_SIZE(pair) != 2:
            return False
        if type(<object>PyTuple_GET_ITEM(pair, 0)) is not str:
            return False
        value = <object>PyTuple_GET_ITEM(pair, 1)
        if value is not None and type(value) is not bytes:
            return False
        try:
            PyUnicode_AsUTF8AndSize(<object>PyTuple_GET_ITEM(pair, 0), &size)
        except UnicodeEncodeError:
            return False
    return True


cdef Py_ssize_t payload_size(object headers) except -1:
    """Return the size of all keys (as UTF-8) and values of checked headers."""
    cdef Py_ssize_t position
    cdef Py_ssize_t total = 0
    cdef Py_ssize_t size = 0
    cdef object pair, value
    for position in range(header_count(headers)):
        pair = pair_at(headers, position)
        PyUnicode_AsUTF8AndSize(<object>PyTuple_GET_ITEM(pair, 0), &size)
        value = <object>PyTuple_GET_ITEM(pair, 1)
        total += size + (0 if value is None else PyBytes_GET_SIZE(value))
    return total


cdef inline Py_ssize_t payload_limit(object headers) except -1:
    """Return an upper limit of the size of checked headers in a record."""
    return payload_size(headers) + HEADER_FRAMING_BYTES * header_count(headers)


def header_block(headers):
    """See ``headers.header_block``."""
    cdef bytes block
    if headers is None:
        return NO_HEADERS
    if not plain_headers(headers):
        return None
    block = PyBytes_FromStringAndSize(NULL, headers_size(headers))
    put_headers(<uint8_t *>PyBytes_AS_STRING(block), headers)
    return block
