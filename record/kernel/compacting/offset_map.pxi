"""The newest offset of each key, from which compaction decides; ``offset_map.py`` documents the methods.

The passes over a batch release the GIL. A map belongs to one cleaning, which uses it from one thread at a time;
``_begin`` refuses a second thread, because a pass relies on a table that only it changes.
"""

cdef extern from "stdlib.h":
    void *calloc(size_t count, size_t size) nogil
    void free(void *memory) nogil

cdef enum:
    JUMPS = 8

cdef struct Slot:
    uint64_t low
    uint64_t high
    int64_t next  # one more than the key's newest offset; 0 marks a free slot, so zeroed memory is an empty map

cdef struct Pass:  # one pass over a batch of which some records are kept
    int64_t base_offset
    int64_t base_timestamp
    int64_t append_time
    int64_t last_offset
    int64_t horizon_ms
    int64_t kept
    int64_t largest
    int64_t first
    bint has_append_time
    bint drops_tombstones
    bint has_horizon
    bint is_marker
    bint has_tombstones


cdef inline uint64_t rotated(uint64_t value, int bits) noexcept nogil:
    return (value << bits) | (value >> (64 - bits))


cdef inline uint64_t finished(uint64_t value) noexcept nogil:
    value ^= value >> 33
    value *= <uint64_t>0xff51afd7ed558ccd
    value ^= value >> 33
    value *= <uint64_t>0xc4ceb9fe1a85ec53
    return value ^ (value >> 33)


cdef void murmur3_x64_128(const uint8_t *key, int64_t size, uint64_t *low, uint64_t *high) noexcept nogil:
    """Compute MurmurHash3 (x64, 128 bits, seed 0), the same as ``mmh3.hash128``."""
    cdef uint64_t c1 = <uint64_t>0x87c37b91114253d5
    cdef uint64_t c2 = <uint64_t>0x4cf5ad432745937f
    cdef uint64_t h1 = 0, h2 = 0, k1, k2
    cdef const uint8_t *at = key
    cdef int64_t left = size
    while left >= 16:
        memcpy(&k1, at, 8)
        memcpy(&k2, at + 8, 8)
        h1 = (rotated(h1 ^ (rotated(k1 * c1, 31) * c2), 27) + h2) * 5 + 0x52dce729
        h2 = (rotated(h2 ^ (rotated(k2 * c2, 33) * c1), 31) + h1) * 5 + 0x38495ab5
        at += 16
        left -= 16
    k1 = 0
    k2 = 0
    if left > 8:
        memcpy(&k2, at + 8, left - 8)
        h2 ^= rotated(k2 * c2, 33) * c1
    if left:
        memcpy(&k1, at, min(left, 8))
        h1 ^= rotated(k1 * c1, 31) * c2
    h1 ^= <uint64_t>size
    h2 ^= <uint64_t>size
    h1 += h2
    h2 += h1
    h1 = finished(h1)
    h2 = finished(h2)
    low[0] = h1 + h2
    high[0] = h2 + low[0]


cdef inline int pass_rest(Walk *walk) noexcept nogil:
    cdef int64_t header_count = 0
    if take_header_count(walk, &header_count) < 0 or pass_headers(walk, header_count) < 0:
        return -1
    return finish_record(walk)


@cython.final
cdef class OffsetMap:
    """See ``offset_map.OffsetMap``."""

    cdef Slot *_table
    cdef int64_t _slots
    cdef int64_t _limit
    cdef int64_t _size
    cdef bint _is_busy

    def __cinit__(self, int64_t slots, int64_t limit):
        if not 0 < limit < slots:
            raise IllegalArgumentError(f"limit={limit}: it is at least 1 and below slots={slots}")
        self._table = <Slot *>calloc(slots, sizeof(Slot))
        if self._table == NULL:
            raise MemoryError
        self._slots = slots
        self._limit = limit

    def __dealloc__(self):
        free(self._table)

    def __len__(self):
        return self._size

    def put(self, bytes key not None, int64_t offset):
        """See ``offset_map.OffsetMap``."""
        self._begin()
        cdef Blob blob
        blob.data = <const uint8_t *>PyBytes_AS_STRING(key)
        blob.size = PyBytes_GET_SIZE(key)
        self._is_busy = False
        # The GIL is held up to the end, so no pass of another thread begins in between.
        return self._put(&blob, offset)

    def get(self, bytes key not None):
        """See ``offset_map.OffsetMap``."""
        self._begin()
        cdef Blob blob
        blob.data = <const uint8_t *>PyBytes_AS_STRING(key)
        blob.size = PyBytes_GET_SIZE(key)
        self._is_busy = False
        return self._find(&blob).next - 1

    def put_records(self, records, int64_t record_count, *, int64_t base_offset, int64_t first_offset):
        """See ``offset_map.OffsetMap``."""
        cdef Py_buffer view
        cdef Walk walk
        cdef int status
        cdef int64_t no_room = -1
        PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
        try:
            self._begin()
            with nogil:
                status = start_walk(&walk, &view, record_count)
                if not status:
                    status = self._put_all(&walk, record_count, base_offset, first_offset, &no_room)
            self._is_busy = False
            if status < 0:
                raise damage_of(&walk)
        finally:
            PyBuffer_Release(&view)
        return no_room

    def keep_records(
        self,
        records,
        int64_t record_count,
        *,
        int64_t base_offset,
        int64_t base_timestamp,
        append_time,
        int64_t last_offset,
        bint drops_tombstones,
        bint has_horizon,
        int64_t horizon_ms,
        bint is_marker,
    ):
        """See ``offset_map.OffsetMap``."""
        cdef Py_buffer view
        cdef Walk walk
        cdef Pass plan
        cdef uint8_t *stays = NULL
        cdef uint8_t *out = NULL
        cdef uint8_t *end = NULL
        cdef int status
        memset(&plan, 0, sizeof(Pass))
        plan.base_offset = base_offset
        plan.base_timestamp = base_timestamp
        plan.has_append_time = append_time is not None
        plan.append_time = append_time if append_time is not None else 0
        plan.last_offset = last_offset
        plan.drops_tombstones = drops_tombstones
        plan.has_horizon = has_horizon
        plan.horizon_ms = horizon_ms
        plan.is_marker = is_marker
        PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
        try:
            if start_walk(&walk, &view, record_count) < 0:
                raise damage_of(&walk)
            # Another base timestamp changes each record's delta, by nine bytes at most, and so the length before it.
            stays = <uint8_t *>PyMem_Malloc(record_count + 1)
            out = <uint8_t *>PyMem_Malloc(view.len + record_count * 16 + 1)
            if stays == NULL or out == NULL:
                raise MemoryError
            self._begin()
            with nogil:
                status = self._choose(&walk, record_count, &plan, stays)
                if not status and (plan.kept < record_count or gets_horizon(&plan)):
                    start_walk(&walk, &view, record_count)
                    end = write_kept(&walk, record_count, &plan, stays, out)
                    if end == NULL:
                        status = -1
            self._is_busy = False
            if status < 0:
                raise damage_of(&walk)
            return KeptRecords(
                plan.kept,
                new_base(&plan) if end != NULL else base_timestamp,
                plan.largest if plan.kept else -1,
                bool(gets_horizon(&plan)),
                PyBytes_FromStringAndSize(<const char *>out, end - out) if end != NULL else None,
            )
        finally:
            PyMem_Free(stays)
            PyMem_Free(out)
            PyBuffer_Release(&view)

    cdef int _begin(self) except -1:
        if self._is_busy:
            raise IllegalStateError("the map is in use by another thread")
        self._is_busy = True
        return 0

    cdef Slot *_find(self, Blob *key) noexcept nogil:
        """Return the slot of a key, or the free slot that it would get."""
        cdef uint64_t low = 0, high = 0, place
        cdef int64_t tries = 0, slot
        murmur3_x64_128(key.data, key.size, &low, &high)
        place = low
        while True:
            # This ends, since the limit leaves slots free.
            slot = <int64_t>(place % <uint64_t>self._slots)
            if not self._table[slot].next:
                # For `get` as well: a slot stays free until `next` is set.
                self._table[slot].low = low
                self._table[slot].high = high
                return &self._table[slot]
            if self._table[slot].low == low and self._table[slot].high == high:
                return &self._table[slot]
            tries += 1
            place = place + high if tries < JUMPS else <uint64_t>(slot + 1)

    cdef bint _put(self, Blob *key, int64_t offset) noexcept nogil:
        cdef Slot *slot
        if self._size >= self._limit:
            return False
        slot = self._find(key)
        self._size += slot.next == 0
        slot.next = offset + 1
        return True

    cdef int _put_all(
        self, Walk *walk, int64_t record_count, int64_t base_offset, int64_t first_offset, int64_t *no_room
    ) noexcept nogil:
        cdef Blob key, value
        cdef int64_t offset = 0
        while walk.number < record_count:
            if begin_record(walk) < 0 or offset_of_record(walk, base_offset, &offset) < 0:
                return -1
            if take_blob(walk, FIELD_KEY, &key) < 0 or take_blob(walk, FIELD_VALUE, &value) < 0:
                return -1
            if pass_rest(walk) < 0:
                return -1
            if key.size >= 0 and offset >= first_offset and not self._put(&key, offset):
                no_room[0] = offset
                return 0
        return check_end(walk)

    cdef int _choose(self, Walk *walk, int64_t record_count, Pass *plan, uint8_t *stays) noexcept nogil:
        """Mark in ``stays`` the records that are kept."""
        cdef Blob key, value
        cdef int64_t offset = 0, number, timestamp
        cdef bint stay
        plan.has_tombstones = plan.is_marker
        while walk.number < record_count:
            number = walk.number
            if begin_record(walk) < 0 or offset_of_record(walk, plan.base_offset, &offset) < 0:
                return -1
            if take_blob(walk, FIELD_KEY, &key) < 0 or take_blob(walk, FIELD_VALUE, &value) < 0:
                return -1
            if pass_rest(walk) < 0:
                return -1
            stay = plan.is_marker or offset > plan.last_offset
            if not stay and key.size >= 0 and not (value.size < 0 and plan.drops_tombstones):
                stay = offset + 1 >= self._find(&key).next
            stays[number] = stay
            if stay:
                timestamp = time_of(walk, plan)
                if not plan.kept:
                    plan.first = plan.largest = timestamp
                plan.largest = max(plan.largest, timestamp)
                plan.kept += 1
                plan.has_tombstones = plan.has_tombstones or value.size < 0
        return check_end(walk)


cdef inline int64_t time_of(Walk *walk, Pass *plan) noexcept nogil:
    if plan.has_append_time:
        return plan.append_time
    return <int64_t>(<uint64_t>plan.base_timestamp + <uint64_t>walk.timestamp_delta)


cdef inline bint gets_horizon(Pass *plan) noexcept nogil:
    return plan.has_tombstones and not plan.has_horizon


cdef inline int64_t new_base(Pass *plan) noexcept nogil:
    if gets_horizon(plan):
        return plan.horizon_ms
    return plan.first if plan.kept and not plan.has_horizon else plan.base_timestamp


cdef uint8_t *write_kept(
    Walk *walk, int64_t record_count, Pass *plan, const uint8_t *stays, uint8_t *out
) noexcept nogil:
    """Encode the records that are kept; return the end, NULL if the bytes were changed meanwhile."""
    cdef Blob key, value
    cdef int64_t base = new_base(plan), delta, rest
    while walk.number < record_count:
        if begin_record(walk) < 0 or take_blob(walk, FIELD_KEY, &key) < 0:
            return NULL
        if take_blob(walk, FIELD_VALUE, &value) < 0 or pass_rest(walk) < 0:
            return NULL
        if stays[walk.number - 1]:
            delta = <int64_t>(<uint64_t>time_of(walk, plan) - <uint64_t>base)
            rest = walk.at - walk.start - walk.offset_delta_at
            out = put_varint(out, 1 + varint_size(delta) + rest)
            out[0] = 0
            out = put_varint(out + 1, delta)
            memcpy(out, walk.start + walk.offset_delta_at, rest)
            out += rest
    return out
