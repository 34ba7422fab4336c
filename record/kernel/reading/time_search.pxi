"""From a timestamp to a record, within one batch; other threads run meanwhile."""


def find_by_time(
    records,
    int64_t record_count,
    *,
    int64_t base_offset,
    int64_t base_timestamp,
    append_time,
    int64_t from_offset,
    timestamp_ms,
):
    """See ``time_search.find_by_time``."""
    cdef Py_buffer view
    cdef Walk walk
    cdef bint has_append_time = append_time is not None, wants_largest = timestamp_ms is None
    cdef int64_t appended = append_time if has_append_time else 0
    cdef int64_t wanted = LLONG_MIN if wants_largest else timestamp_ms
    cdef int64_t offset = 0, timestamp, found_offset = 0, found_timestamp = 0
    cdef bint is_found = False
    cdef int status
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    with nogil:
        status = start_walk(&walk, &view, record_count)
        while not status and walk.number < record_count:
            status = -1
            if begin_record(&walk) < 0 or offset_of_record(&walk, base_offset, &offset) < 0:
                break
            walk.at = walk.end  # what the record holds is not asked for
            walk.number += 1
            status = 0
            timestamp = (
                appended
                if has_append_time
                else <int64_t>(<uint64_t>base_timestamp + <uint64_t>walk.timestamp_delta)
            )
            if offset < from_offset or timestamp < wanted or (is_found and timestamp == found_timestamp):
                continue
            is_found = True
            found_offset = offset
            found_timestamp = timestamp
            if not wants_largest:
                break
            wanted = timestamp
    PyBuffer_Release(&view)
    if status < 0:
        raise damage_of(&walk)
    return (found_offset, found_timestamp) if is_found else None
