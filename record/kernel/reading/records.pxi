"""Reads batches: checks their records, or makes an object of each."""


cdef enum:
    # Below this size a walk takes less time than to get the GIL back in a busy program.
    SCANNED_WITH_GIL_BYTES = 1 << 20
    TRANSACTIONAL_BIT = 0x10

cdef struct Scan:
    int64_t smallest
    int64_t largest
    int64_t null_keys
    int64_t misplaced
    int64_t misplaced_delta
    int64_t misplaced_position


def scan_records(records, int64_t record_count, int64_t base_timestamp, bint exact=False):
    """See ``records.scan_records``; the GIL is released for more than 1 MiB."""
    cdef Py_buffer view
    cdef Walk walk
    cdef Scan scan
    cdef int status
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    status = start_walk(&walk, &view, record_count)
    # After `start_walk`, which clears the walk.
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
    # By ``tuple.__new__``, as in record_of: the broker scans every batch that a producer sends.
    cdef object found = (
        scan.smallest, scan.largest, scan.null_keys, scan.misplaced, scan.misplaced_delta, scan.misplaced_position
    )
    return (<CTypeObject *>tuple).tp_new(<void *>RecordScan, (found,), NULL)


def usual_batch(batch):
    """See ``records.usual_batch``."""
    cdef Py_buffer view, records
    cdef Walk walk
    cdef Scan scan
    cdef const uint8_t *at
    cdef int64_t length, base_timestamp, max_timestamp, producer_id, count
    cdef uint64_t attributes
    cdef int32_t last_delta, sequence
    cdef uint32_t checksum, found
    cdef bint is_usual = False
    cdef tuple fields = None
    PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
    try:
        at = <const uint8_t *>view.buf
        if view.len < HEADER_BYTES or view.len > MAX_BATCH_BYTES:
            return None
        length = <int32_t>big_endian(at + 8, 4)
        checksum = <uint32_t>big_endian(at + 17, 4)
        attributes = big_endian(at + 21, 2)
        last_delta = <int32_t>big_endian(at + 23, 4)
        base_timestamp = <int64_t>big_endian(at + 27, 8)
        max_timestamp = <int64_t>big_endian(at + 35, 8)
        producer_id = <int64_t>big_endian(at + 43, 8)
        sequence = <int32_t>big_endian(at + 53, 4)
        count = <int32_t>big_endian(at + 57, 4)
        if (
            length != view.len - 12
            or at[16] != 2  # magic
            or big_endian(at, 8)  # base offset
            or attributes and (attributes != TRANSACTIONAL_BIT or producer_id < 0)
            or count <= 0
            or count != <int64_t>last_delta + 1
            or producer_id >= 0 > sequence
        ):
            return None
        fields = (
            0, length, <int32_t>big_endian(at + 12, 4), 2, checksum, attributes, last_delta, base_timestamp,
            max_timestamp, producer_id, <int16_t>big_endian(at + 51, 2), sequence, count,
        )
        if not can_sum:
            found = crc32c(memoryview(batch)[CRC_FROM:])
            if found != checksum:
                return None
        records.buf = <void *>(at + HEADER_BYTES)
        records.len = view.len - HEADER_BYTES
        if view.len <= SCANNED_WITH_GIL_BYTES:
            is_usual = is_usual_body(&walk, &scan, &records, count, base_timestamp, checksum)
        else:
            with nogil:
                is_usual = is_usual_body(&walk, &scan, &records, count, base_timestamp, checksum)
    finally:
        PyBuffer_Release(&view)
    if not is_usual or scan.largest != max_timestamp:
        return None
    return fields, scan.smallest, scan.null_keys


cdef inline uint64_t big_endian(const uint8_t *at, int size) noexcept nogil:
    cdef uint64_t number = 0
    cdef int position
    for position in range(size):
        number = number << 8 | at[position]
    return number


cdef bint is_usual_body(
    Walk *walk, Scan *scan, Py_buffer *records, int64_t count, int64_t base_timestamp, uint32_t checksum
) noexcept nogil:
    """Whether the records have the batch's checksum and count, and consecutive offsets."""
    cdef const uint8_t *at
    cdef Py_ssize_t steps
    if can_sum:
        at = <const uint8_t *>records.buf - (HEADER_BYTES - CRC_FROM)
        steps = (records.len + HEADER_BYTES - CRC_FROM) // SUM_STEP_BYTES
        if checksum != sum_rest(
            sum_steps(0, at, steps),
            at + steps * SUM_STEP_BYTES,
            records.len + HEADER_BYTES - CRC_FROM - steps * SUM_STEP_BYTES,
        ):
            return False
    if start_walk(walk, records, count) < 0:
        return False
    walk.exact = True
    return scan_all(walk, scan, count, base_timestamp) == 0 and scan.misplaced < 0


cdef int scan_all(Walk *walk, Scan *scan, int64_t record_count, int64_t base_timestamp) noexcept nogil:
    """Walk through all records: by a shortcut for usual ones, else field by field, which finds the damage.

    The broker does this for every record that a producer sends, so every instruction counts: numbers are compared
    in their encoded form, and a timestamp is decoded only if it differs from that of the record before.
    """
    cdef const uint8_t *at = walk.at
    cdef const uint8_t *end
    cdef int64_t number = 0, null_keys = 0, smallest = LLONG_MAX, largest = LLONG_MIN
    cdef uint32_t timestamp = 0, offset = 0, key = 0, timestamp_before = 0
    cdef bint null_key = False
    scan.misplaced = -1
    scan.misplaced_delta = scan.misplaced_position = 0
    while number < record_count:
        end = usual_record(at, walk.stop, &timestamp, &offset, &key)
        if end is NULL or offset != <uint64_t>number << 1 and scan.misplaced < 0:
            walk.at = at
            walk.number = number
            if scan_fields(walk, &null_key) < 0:
                return -1
            at = walk.at
            null_keys += null_key
            note_time(base_timestamp, walk.timestamp_delta, &smallest, &largest)
            if walk.offset_delta != number and scan.misplaced < 0:
                scan.misplaced = number
                scan.misplaced_delta = walk.offset_delta
                scan.misplaced_position = walk.offset_delta_at
        else:
            at = end
            null_keys += key & 1
            if timestamp != timestamp_before or smallest > largest:
                timestamp_before = timestamp
                note_time(base_timestamp, signed(timestamp), &smallest, &largest)
        number += 1
    scan.smallest = smallest
    scan.largest = largest
    scan.null_keys = null_keys
    walk.at = at
    walk.number = number
    return check_end(walk)


cdef inline void note_time(
    int64_t base_timestamp, int64_t delta, int64_t *smallest, int64_t *largest
) noexcept nogil:
    cdef int64_t timestamp = <int64_t>(<uint64_t>base_timestamp + <uint64_t>delta)
    smallest[0] = min(smallest[0], timestamp)
    largest[0] = max(largest[0], timestamp)


cdef inline int scan_record(Walk *walk, bint *null_key) noexcept nogil:
    """Walk through one record; of its numbers only the timestamp delta is kept."""
    cdef uint32_t timestamp = 0, offset = 0, key = 0
    cdef const uint8_t *end = usual_record(walk.at, walk.stop, &timestamp, &offset, &key)
    if end is NULL:
        return scan_fields(walk, null_key)
    walk.at = end
    walk.number += 1
    walk.timestamp_delta = signed(timestamp)
    null_key[0] = key & 1
    return 0


cdef enum:
    SHORT_NUMBER_BYTES = 3
    # Length, attributes, deltas of timestamp and offset, and the lengths of key and value.
    USUAL_NUMBERS_BYTES = 5 * SHORT_NUMBER_BYTES + 1


cdef inline const uint8_t *usual_record(
    const uint8_t *at, const uint8_t *stop, uint32_t *timestamp, uint32_t *offset, uint32_t *key
) noexcept nogil:
    """Return the end of a usual record; NULL for one with headers, with large numbers, or damaged.

    The numbers are returned in their zigzag form: a length is doubled, and 1 stands for null.
    """
    cdef const uint8_t *end
    cdef uint32_t number = 0
    if stop - at < USUAL_NUMBERS_BYTES:
        return NULL
    at = short_number(at, &number)
    if at is NULL or number & 1 or number >> 1 > stop - at:
        return NULL
    end = at + (number >> 1)
    if at[0] & 0x80:  # attributes
        return NULL
    at = short_number(at + 1, timestamp)
    if at is NULL:
        return NULL
    at = short_number(at, offset)
    if at is NULL:
        return NULL
    at = short_number(at, key)
    if at is NULL:
        return NULL
    if key[0] != 1:
        # Three bytes must be readable behind the key, for the length of the value.
        if key[0] & 1 or key[0] >> 1 > stop - at - SHORT_NUMBER_BYTES:
            return NULL
        at += key[0] >> 1
    at = short_number(at, &number)
    if at is NULL or number & 1 and number != 1:
        return NULL
    # A walk that has run past the record's end does not arrive exactly there, so one check is enough.
    if end - at != (number >> 1) + 1 or end[-1]:  # headers, or damage
        return NULL
    return end


cdef inline const uint8_t *short_number(const uint8_t *at, uint32_t *out) noexcept nogil:
    """Return the end of a varint of up to three bytes, else NULL; three bytes must be readable."""
    cdef uint32_t number = at[0]
    if number >= 1 << 7:
        number = (number & 0x7F) | <uint32_t>at[1] << 7
        if number >= 1 << 14:
            number = (number & 0x3FFF) | <uint32_t>at[2] << 14
            if number >= 1 << 21:
                return NULL
            at += 1
        at += 1
    out[0] = number
    return at + 1


cdef inline int64_t signed(uint32_t number) noexcept nogil:
    """Decode a zigzag number."""
    return <int32_t>(number >> 1) ^ -<int32_t>(number & 1)


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
    """See ``records.faulty_records``."""
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
    """See ``records.decode_records``."""
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
    """Return the current record; None if it is damaged."""
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
    cdef list headers = []  # grows as headers are read: a huge count allocates nothing
    while header_count:
        if take_header(walk, &key, &value) < 0:
            return None
        headers.append((PyUnicode_DecodeUTF8(<const char *>key.data, key.size, "replace"), bytes_of(&value)))
        header_count -= 1
    return tuple(headers)


cdef inline object bytes_of(Blob *blob):
    return None if blob.size < 0 else PyBytes_FromStringAndSize(<const char *>blob.data, blob.size)


cdef object record_of(object offset, object timestamp, object key, object value, object headers):
    """Make a ``Record`` by ``tuple.__new__``: its own constructor is Python code and costs more than all else here.

    It holds only numbers, bytes and strings, so the garbage collector need not track it.
    """
    cdef object arguments = ((offset, timestamp, key, value, headers),)
    cdef object made = (<CTypeObject *>tuple).tp_new(<void *>Record, arguments, NULL)
    PyObject_GC_UnTrack(<PyObject *>made)
    return made


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
    """See ``records.find_by_time``."""
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
            walk.at = walk.end  # key, value and headers are not needed
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
