"""Batches that are read: scan their records, or make an object of each."""


def scan_records(records, int64_t record_count, int64_t base_timestamp):
    """See ``walk.scan_records``."""
    cdef Py_buffer view
    cdef Walk walk
    cdef int64_t smallest = LLONG_MAX, largest = LLONG_MIN, null_keys = 0
    cdef int64_t misplaced = -1, misplaced_delta = 0, misplaced_position = 0
    cdef int64_t timestamp, header_count = 0
    cdef Blob key, value
    cdef int status
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    status = start_walk(&walk, &view, record_count)
    while not status and walk.number < record_count:
        status = -1
        if begin_record(&walk) < 0:
            break
        if walk.offset_delta != walk.number and misplaced < 0:
            misplaced = walk.number
            misplaced_delta = walk.offset_delta
            misplaced_position = walk.offset_delta_at
        if take_blob(&walk, FIELD_KEY, &key) < 0 or take_blob(&walk, FIELD_VALUE, &value) < 0:
            break
        if take_header_count(&walk, &header_count) < 0:
            break
        if pass_headers(&walk, header_count) < 0 or finish_record(&walk) < 0:
            break
        status = 0
        null_keys += key.size < 0
        timestamp = <int64_t>(<uint64_t>base_timestamp + <uint64_t>walk.timestamp_delta)
        smallest = min(smallest, timestamp)
        largest = max(largest, timestamp)
    if not status:
        status = check_end(&walk)
    PyBuffer_Release(&view)
    if status < 0:
        raise damage_of(&walk)
    return RecordScan(smallest, largest, null_keys, misplaced, misplaced_delta, misplaced_position)


def decode_records(
    records,
    Py_ssize_t position,
    int64_t first,
    int64_t stop,
    *,
    int64_t record_count,
    int64_t base_offset,
    int64_t base_timestamp,
    append_time,
):
    """See ``walk.decode_records``."""
    cdef Py_buffer view
    cdef Walk walk
    cdef object made
    cdef list read = []
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    try:
        if start_walk(&walk, &view, record_count) < 0:
            raise damage_of(&walk)
        if not 0 <= position <= view.len:
            raise IllegalArgumentError(f"position={position}: there are {view.len} bytes of records")
        walk.at = walk.start + position
        walk.number = first
        while walk.number < stop:
            made = next_record(&walk, base_offset, base_timestamp, append_time)
            if made is None:
                if not read:
                    raise damage_of(&walk)
                break
            read.append(made)
            position = walk.at - walk.start
    finally:
        PyBuffer_Release(&view)
    return read, position


cdef object next_record(Walk *walk, int64_t base_offset, int64_t base_timestamp, object append_time):
    """The record at hand, None where it is damaged."""
    cdef int64_t offset = 0, header_count = 0
    cdef Blob key, value
    cdef object headers = ()
    cdef object timestamp
    if begin_record(walk) < 0 or offset_of_record(walk, base_offset, &offset) < 0:
        return None
    if take_blob(walk, FIELD_KEY, &key) < 0 or take_blob(walk, FIELD_VALUE, &value) < 0:
        return None
    if take_header_count(walk, &header_count) < 0:
        return None
    if header_count:
        headers = next_headers(walk, header_count)
        if headers is None:
            return None
    if finish_record(walk) < 0:
        return None
    timestamp = append_time
    if timestamp is None:
        timestamp = <int64_t>(<uint64_t>base_timestamp + <uint64_t>walk.timestamp_delta)
    return record_of(offset, timestamp, bytes_of(&key), bytes_of(&value), headers)


cdef object next_headers(Walk *walk, int64_t header_count):
    cdef Blob key, value
    cdef list headers = []  # grows with what is there: a count alone makes nothing
    while header_count:
        if take_header(walk, &key, &value) < 0:
            return None
        headers.append((PyUnicode_DecodeUTF8(<const char *>key.data, key.size, NULL), bytes_of(&value)))
        header_count -= 1
    return tuple(headers)


cdef inline object bytes_of(Blob *blob):
    return None if blob.size < 0 else PyBytes_FromStringAndSize(<const char *>blob.data, blob.size)


cdef object record_of(object offset, object timestamp, object key, object value, object headers):
    """A ``Record`` by ``tuple.__new__``: its own is Python code, and would cost more than all the rest.

    It holds numbers, bytes and strings alone, so the collector need not look at it.
    """
    cdef object arguments = ((offset, timestamp, key, value, headers),)
    cdef object made = (<CTypeObject *>tuple).tp_new(<void *>Record, arguments, NULL)
    PyObject_GC_UnTrack(<PyObject *>made)
    return made
