"""The walk through a batch's records, on bytes from an untrusted source that may change during the walk.

Each number is read once, compared with the bytes that are left, and only then used; no byte is read twice. So bytes
that change meanwhile (in a mapped file, or by a finalizer) make a wrong record at worst, and never a wild read.
"""

cdef enum:
    SMALLEST_RECORD_BYTES = 7
    SMALLEST_HEADER_BYTES = 2

cdef enum:  # damage.Damage
    NUMBER_CUT = 1
    NUMBER_TOO_LONG = 2
    WRONG_SIZE = 3
    NO_ATTRIBUTES = 4
    WRONG_HEADER_COUNT = 5
    NULL_HEADER_KEY = 6
    HEADER_KEY_TEXT = 7
    LEFT_OVER = 8
    WRONG_OFFSET = 9
    BEHIND_LAST = 10
    WRONG_COUNT = 11
    WRONG_ATTRIBUTES = 12

cdef enum:  # damage.Field
    FIELD_RECORD = 0
    FIELD_TIMESTAMP_DELTA = 1
    FIELD_OFFSET_DELTA = 2
    FIELD_KEY = 3
    FIELD_VALUE = 4
    FIELD_HEADER_COUNT = 5
    FIELD_HEADER_KEY = 6
    FIELD_HEADER_VALUE = 7

cdef struct Blob:
    const uint8_t *data
    int64_t size  # -1 for null

cdef struct Walk:
    const uint8_t *start
    const uint8_t *at
    const uint8_t *stop  # end of the last record
    const uint8_t *end  # end of the current record
    int64_t number  # of the current record
    int64_t record_bytes
    int64_t timestamp_delta
    int64_t offset_delta
    int64_t offset_delta_at
    bint exact  # also reject what some other readers reject: see records.scan_records
    int damage  # 0, or the kind of damage for damaged()
    int field
    int64_t position
    int64_t said
    int64_t left


cdef int fail(Walk *walk, int damage, int field, int64_t position, int64_t said, int64_t left) noexcept nogil:
    walk.damage = damage
    walk.field = field
    walk.position = position
    walk.said = said
    walk.left = left
    return -1


cdef object damage_of(Walk *walk):
    return damaged(walk.damage, walk.field, walk.number, walk.position, said=walk.said, left=walk.left)


cdef int start_walk(Walk *walk, Py_buffer *records, int64_t record_count) noexcept nogil:
    memset(walk, 0, sizeof(Walk))
    walk.start = <const uint8_t *>records.buf
    walk.at = walk.start
    walk.end = walk.start
    walk.stop = walk.start + records.len
    # The first comparison keeps the product of the second within 64 bits.
    if not 0 <= record_count <= records.len or record_count * SMALLEST_RECORD_BYTES > records.len:
        return fail(walk, WRONG_COUNT, FIELD_RECORD, 0, record_count, records.len)
    return 0


cdef inline int take_number(Walk *walk, int field, int bits, int64_t *out) noexcept nogil:
    """Read a zigzag varint."""
    cdef const uint8_t *at = walk.at
    cdef uint64_t byte
    if at < walk.end:
        byte = at[0]
        if byte < 0x80:  # most numbers take one byte
            walk.at = at + 1
            out[0] = <int64_t>((byte >> 1) ^ (0 - (byte & 1)))
            return 0
    return take_long_number(walk, field, bits, out)


cdef int take_long_number(Walk *walk, int field, int bits, int64_t *out) noexcept nogil:
    """Read a varint; drop bits above ``bits`` as Java's readers do, unless the walk is exact."""
    cdef const uint8_t *at = walk.at
    cdef uint64_t number = 0
    cdef uint64_t byte
    cdef int shift = 0
    while True:
        if at >= walk.end:
            return fail(walk, NUMBER_CUT, field, walk.at - walk.start, 0, walk.end - walk.start)
        byte = at[0]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= bits:
            return fail(walk, NUMBER_TOO_LONG, field, walk.at - walk.start, bits, 0)
    if bits == 32:
        if walk.exact and number >> 32:
            return fail(walk, NUMBER_TOO_LONG, field, walk.at - walk.start, bits, 0)
        number &= <uint64_t>0xFFFFFFFF
    walk.at = at
    out[0] = <int64_t>((number >> 1) ^ (0 - (number & 1)))
    return 0


cdef inline int take_blob(Walk *walk, int field, Blob *out) noexcept nogil:
    cdef int64_t position = walk.at - walk.start
    if take_number(walk, field, 32, &out.size) < 0:
        return -1
    out.data = walk.at
    if out.size == -1:
        return 0
    if not 0 <= out.size <= walk.end - walk.at:
        return fail(walk, WRONG_SIZE, field, position, out.size, walk.end - walk.at)
    walk.at += out.size
    return 0


cdef inline int begin_record(Walk *walk) noexcept nogil:
    """Read the next record up to its key."""
    cdef int64_t position = walk.at - walk.start
    cdef int64_t length = 0
    cdef uint8_t attributes
    walk.end = walk.stop
    if take_number(walk, FIELD_RECORD, 32, &length) < 0:
        return -1
    if not 0 <= length <= walk.stop - walk.at:
        return fail(walk, WRONG_SIZE, FIELD_RECORD, position, length, walk.stop - walk.at)
    walk.end = walk.at + length
    walk.record_bytes = length
    if not length:
        return fail(walk, NO_ATTRIBUTES, FIELD_RECORD, walk.at - walk.start, 0, 0)
    attributes = walk.at[0]  # Kafka defines no record attributes yet
    if walk.exact and attributes & 0x80:
        return fail(walk, WRONG_ATTRIBUTES, FIELD_RECORD, walk.at - walk.start, attributes, 0)
    walk.at += 1
    if take_number(walk, FIELD_TIMESTAMP_DELTA, 64, &walk.timestamp_delta) < 0:
        return -1
    walk.offset_delta_at = walk.at - walk.start
    return take_number(walk, FIELD_OFFSET_DELTA, 32, &walk.offset_delta)


cdef inline int offset_of_record(Walk *walk, int64_t base_offset, int64_t *out) noexcept nogil:
    # The next offset has to fit 64 bits, too: readers continue from there.
    if walk.offset_delta >= 0 and base_offset >= LLONG_MAX - walk.offset_delta:
        return fail(walk, WRONG_OFFSET, FIELD_OFFSET_DELTA, walk.offset_delta_at, walk.offset_delta, 0)
    if walk.offset_delta < 0 and base_offset < LLONG_MIN - walk.offset_delta:
        return fail(walk, WRONG_OFFSET, FIELD_OFFSET_DELTA, walk.offset_delta_at, walk.offset_delta, 0)
    out[0] = base_offset + walk.offset_delta
    return 0


cdef inline int take_header_count(Walk *walk, int64_t *out) noexcept nogil:
    cdef int64_t position = walk.at - walk.start
    cdef int64_t left
    if take_number(walk, FIELD_HEADER_COUNT, 32, out) < 0:
        return -1
    left = walk.end - walk.at
    if out[0] and not 0 < out[0] * SMALLEST_HEADER_BYTES <= left:
        return fail(walk, WRONG_HEADER_COUNT, FIELD_HEADER_COUNT, position, out[0], left)
    return 0


cdef int take_header(Walk *walk, Blob *key, Blob *value) noexcept nogil:
    cdef int64_t position = walk.at - walk.start
    if take_blob(walk, FIELD_HEADER_KEY, key) < 0:
        return -1
    if key.size < 0:
        return fail(walk, NULL_HEADER_KEY, FIELD_HEADER_KEY, position, 0, 0)
    return take_blob(walk, FIELD_HEADER_VALUE, value)


cdef int pass_headers(Walk *walk, int64_t header_count) noexcept nogil:
    cdef Blob key, value
    while header_count:
        if take_header(walk, &key, &value) < 0:
            return -1
        header_count -= 1
    return 0


cdef inline int finish_record(Walk *walk) noexcept nogil:
    cdef int64_t left = walk.end - walk.at
    if left:
        return fail(walk, LEFT_OVER, FIELD_RECORD, walk.at - walk.start, 0, left)
    walk.number += 1
    return 0


cdef int check_end(Walk *walk) noexcept nogil:
    cdef int64_t left = walk.stop - walk.at
    if left:
        return fail(walk, BEHIND_LAST, FIELD_RECORD, walk.at - walk.start, 0, left)
    return 0


cdef inline bint is_utf8(const uint8_t *at, int64_t size) noexcept nogil:
    """Whether Python's decoder accepts it: shortest forms, no surrogates, nothing above U+10FFFF."""
    cdef const uint8_t *end = at + size
    while at < end:
        if at[0] < 0x80:
            at += 1
        elif not pass_character(&at, end):
            return False
    return True


cdef int64_t put_sound_text(const uint8_t *at, int64_t size, uint8_t *out) noexcept nogil:
    """Copy text with U+FFFD for each malformed piece, as Python's decoder does; return its size, at most 3 * ``size``."""
    cdef const uint8_t *end = at + size
    cdef const uint8_t *start
    cdef uint8_t *began = out
    while at < end:
        start = at
        if pass_character(&at, end):
            memcpy(out, start, at - start)
            out += at - start
        else:
            out[0] = 0xEF
            out[1] = 0xBF
            out[2] = 0xBD
            out += 3
    return out - began


cdef bint pass_character(const uint8_t **place, const uint8_t *end) noexcept nogil:
    """Skip a character; return 0 if it is malformed, and skip only its well-formed beginning."""
    cdef const uint8_t *at = place[0]
    cdef uint8_t lead = at[0], low = 0x80, high = 0xBF
    cdef int more
    at += 1
    if lead < 0x80:
        more = 0
    elif 0xC2 <= lead <= 0xDF:
        more = 1
    elif 0xE0 <= lead <= 0xEF:
        more = 2
        low = 0xA0 if lead == 0xE0 else 0x80
        high = 0x9F if lead == 0xED else 0xBF
    elif 0xF0 <= lead <= 0xF4:
        more = 3
        low = 0x90 if lead == 0xF0 else 0x80
        high = 0x8F if lead == 0xF4 else 0xBF
    else:
        place[0] = at
        return False
    while more:
        if at >= end or not low <= at[0] <= high:
            place[0] = at
            return False
        low = 0x80
        high = 0xBF
        at += 1
        more -= 1
    place[0] = at
    return True
