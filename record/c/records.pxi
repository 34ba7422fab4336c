"""Batches that are read: scan their records, or make an object of each."""


cdef enum:
    # Below it a walk takes less time than a busy program may take to give the GIL back.
    SCANNED_WITH_GIL_BYTES = 1 << 20

cdef struct Scan:
    int64_t smallest
    int64_t largest
    int64_t null_keys
    int64_t misplaced
    int64_t misplaced_delta
    int64_t misplaced_position


def scan_records(records, int64_t record_count, int64_t base_timestamp, bint exact=False):
    """See ``walk.scan_records``; the GIL is released for more than a MiB."""
    cdef Py_buffer view
    cdef Walk walk
    cdef Scan scan
    cdef int status
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    status = start_walk(&walk, &view, record_count)
    walk.exact = exact
    if not status:
        if view.len <= SCANNED_WITH_GIL_BYTES:
            status = scan_all(&walk, &scan, record_count, base_timestamp)
        else:
            with nogil:
                status = scan_all(&walk, &scan, record_count, base_timestamp)
    PyBuffer_Release(&view)
    if status < 0:
        raise damage_of(&walk)
    # By ``tuple.__new__``, as in record_of: a scan is due for every batch that a producer sends.
    cdef object found = (
        scan.smallest, scan.largest, scan.null_keys, scan.misplaced, scan.misplaced_delta, scan.misplaced_position
    )
    return (<CTypeObject *>tuple).tp_new(<void *>RecordScan, (found,), NULL)


cdef int scan_all(Walk *walk, Scan *scan, int64_t record_count, int64_t base_timestamp) noexcept nogil:
    cdef int64_t timestamp
    cdef bint null_key = False
    scan.smallest = LLONG_MAX
    scan.largest = LLONG_MIN
    scan.null_keys = scan.misplaced_delta = scan.misplaced_position = 0
    scan.misplaced = -1
    while walk.number < record_count:
        if scan_record(walk, &null_key) < 0:
            return -1
        if walk.offset_delta != walk.number - 1 and scan.misplaced < 0:
            scan.misplaced = walk.number - 1
            scan.misplaced_delta = walk.offset_delta
            scan.misplaced_position = walk.offset_delta_at
        scan.null_keys += null_key
        timestamp = <int64_t>(<uint64_t>base_timestamp + <uint64_t>walk.timestamp_delta)
        scan.smallest = min(scan.smallest, timestamp)
        scan.largest = max(scan.largest, timestamp)
    return check_end(walk)


cdef inline int scan_record(Walk *walk, bint *null_key) noexcept nogil:
    """Passes the next record: at once where it is as most are, else field by field, which tells the damage."""
    cdef const uint8_t *at = walk.at
    cdef const uint8_t *end
    cdef const uint8_t *delta_at
    cdef int64_t length = 0, timestamp = 0, delta = 0, key = 0, value = 0
    if not short_number(&at, walk.stop, &length) or not SMALLEST_RECORD_BYTES - 1 <= length <= walk.stop - at:
        return scan_fields(walk, null_key)
    end = at + length
    if at[0] & 0x80:  # attributes
        return scan_fields(walk, null_key)
    at += 1
    if not short_number(&at, end, &timestamp):
        return scan_fields(walk, null_key)
    delta_at = at
    if not short_number(&at, end, &delta) or not short_number(&at, end, &key) or not -1 <= key <= end - at:
        return scan_fields(walk, null_key)
    at += max(key, 0)
    if not short_number(&at, end, &value) or not -1 <= value <= end - at:
        return scan_fields(walk, null_key)
    at += max(value, 0)
    if at != end - 1 or at[0]:  # headers, or damage
        return scan_fields(walk, null_key)
    walk.at = walk.end = end
    walk.number += 1
    walk.timestamp_delta = timestamp
    walk.offset_delta = delta
    walk.offset_delta_at = delta_at - walk.start
    null_key[0] = key < 0
    return 0


cdef inline bint short_number(const uint8_t **at, const uint8_t *end, int64_t *out) noexcept nogil:
    """A number of one to three bytes; False for others, and at the end."""
    cdef uint32_t number, byte
    if at[0] >= end:
        return False
    number = at[0][0]
    at[0] += 1
    if number >= 0x80:
        if at[0] >= end:
            return False
        byte = at[0][0]
        at[0] += 1
        number = (number & 0x7F) | (byte & 0x7F) << 7
        if byte >= 0x80:
            if at[0] >= end:
                return False
            byte = at[0][0]
            at[0] += 1
            if byte >= 0x80:
                return False
            number |= byte << 14
    out[0] = <int64_t>(<int32_t>(number >> 1) ^ -<int32_t>(number & 1))
    return True


cdef int scan_fields(Walk *walk, bint *null_key) noexcept nogil:
    cdef int64_t header_count = 0
    cdef Blob blob
    if begin_record(walk) < 0 or take_blob(walk, FIELD_KEY, &blob) < 0:
        return -1
    null_key[0] = blob.size < 0
    if take_blob(walk, FIELD_VALUE, &blob) < 0 or take_header_count(walk, &header_count) < 0:
        return -1
    if header_count and pass_headers(walk, header_count) < 0:
        return -1
    return finish_record(walk)


def faulty_records(
    records,
    int64_t record_count,
    int64_t base_timestamp,
    *,
    bint needs_key,
    int64_t earliest_ms,
    int64_t latest_ms,
    Py_ssize_t most,
):
    """See ``walk.faulty_records``."""
    cdef Py_buffer view
    cdef Walk walk
    cdef int64_t number, timestamp
    cdef bint null_key = False
    cdef list faulty = []
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    try:
        if start_walk(&walk, &view, record_count) < 0:
            raise damage_of(&walk)
        while walk.number < record_count and PyList_GET_SIZE(faulty) < most:
            number = walk.number
            if scan_record(&walk, &null_key) < 0:
                raise damage_of(&walk)
            timestamp = <int64_t>(<uint64_t>base_timestamp + <uint64_t>walk.timestamp_delta)
            if needs_key and null_key:
                faulty.append((number, None))
            elif timestamp != -1 and not earliest_ms <= timestamp <= latest_ms:
                faulty.append((number, timestamp))
    finally:
        PyBuffer_Release(&view)
    return faulty


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
