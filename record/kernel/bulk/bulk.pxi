"""Many records in one call.

A call of ``append`` or ``spread`` is one atomic step for all threads, as ``lanes.pxi`` explains: from ``begin`` on it
runs no Python code and keeps the GIL. So it raises nothing: it stops at the first unusual row, and the slow path
reports what is wrong with it. Nor does it allocate: it also stops where the rows of another batch begin, for which
``RunTails.begin`` first makes room.
"""

cdef enum:  # bulk.py has the same
    NULL_KEY_SLOT = 0xFFFF
    ODD_KEY_SLOT = 0xFFFE


cdef struct Tail:
    int64_t next  # index in the batch after the slot's last run
    int64_t length  # records of the slot


@cython.final
cdef class RunTails:
    """See ``bulk.RunTails``."""

    cdef readonly Py_ssize_t record_count
    cdef list _outcomes
    cdef Tail *_tails
    cdef Py_ssize_t _count

    def __cinit__(self):
        self.record_count = 0
        self._outcomes = []
        self._tails = NULL
        self._count = 0

    def __dealloc__(self):
        PyMem_Free(self._tails)

    def reserve(self, Py_ssize_t slots):
        """See ``bulk.RunTails.reserve``."""
        if slots <= self._count:
            return
        cdef list outcomes = self._outcomes + [None] * (slots - self._count)
        cdef Tail *larger = <Tail *>PyMem_Realloc(self._tails, slots * sizeof(Tail))
        if larger is NULL:
            raise MemoryError()
        self._tails = larger
        memset(larger + self._count, 0, (slots - self._count) * sizeof(Tail))
        self._outcomes = outcomes
        self._count = slots

    def begin(self, Py_ssize_t slot, PartitionLane lane not None):
        """See ``bulk.RunTails.begin``."""
        cdef tuple run
        self.check(slot)
        while lane.buffer is not None and not self.goes_on(slot, lane):
            run = (lane.outcome, lane.buffer.record_count)
            # Its creation may have run a finalizer, which may have sent a record.
            if lane.buffer is not None and lane.outcome is run[0] and lane.buffer.record_count == <Py_ssize_t>run[1]:
                self.put(slot, <object>PyTuple_GET_ITEM(run, 0), lane.buffer.record_count)
                return run
        return None

    def next_index(self, Py_ssize_t slot):
        """See ``bulk.RunTails.next_index``."""
        self.check(slot)
        return self._tails[slot].next

    def length(self, Py_ssize_t slot):
        """See ``bulk.RunTails.length``."""
        self.check(slot)
        return self._tails[slot].length

    def went(self, Py_ssize_t slot, outcome, int64_t index, Py_ssize_t count=1):
        """See ``bulk.RunTails.went``."""
        self.check(slot)
        self.put(slot, outcome, index + count)
        self.advance(slot, count)

    cdef int check(self, Py_ssize_t slot) except -1:
        if not 0 <= slot < self._count:
            raise IndexError(f"slot {slot} of {self._count}")
        return 0

    cdef void put(self, Py_ssize_t slot, object outcome, int64_t index):
        cdef object before = self._outcomes[slot]  # freed last
        self._outcomes[slot] = outcome
        self._tails[slot].next = index

    cdef inline void advance(self, Py_ssize_t slot, Py_ssize_t count) noexcept:
        self._tails[slot].length += count
        self.record_count += count

    cdef inline bint goes_on(self, Py_ssize_t slot, PartitionLane lane) noexcept:
        """Whether the next record of the lane's open batch continues the slot's last run."""
        return (
            PyList_GET_ITEM(self._outcomes, slot) == <PyObject *>lane.outcome
            and self._tails[slot].next == lane.buffer.record_count
        )


@cython.final
cdef class BulkRecords:
    """See ``bulk.BulkRecords``."""

    cdef readonly BlobColumn values
    cdef readonly BlobColumn keys
    cdef bytes _headers
    cdef Py_ssize_t _max_bytes
    cdef bytes _timestamps
    cdef BlobColumn _blocks
    cdef HeaderLists _lists

    def __cinit__(
        self,
        BlobColumn values not None,
        BlobColumn keys,
        headers,
        Py_ssize_t max_bytes,
        bytes timestamps=None,
        BlobColumn header_blocks=None,
        HeaderLists header_lists=None,
    ):
        if timestamps is not None and PyBytes_GET_SIZE(timestamps) // 8 < len(values):
            raise IllegalArgumentError(f"{len(values)} values, but {len(timestamps) // 8} timestamps")
        self._timestamps = timestamps
        self._blocks = header_blocks
        self._lists = header_lists
        self.values = values
        self.keys = keys
        self._headers = NO_HEADERS if headers is None else encode_headers(headers)
        self._max_bytes = max_bytes

    def __len__(self):
        return len(self.values)

    def append(
        self,
        PartitionLane lane not None,
        TopicLanes topic,
        RunTails tails not None,
        int64_t timestamp_ms,
        Py_ssize_t start,
        Py_ssize_t stop,
    ):
        """See ``bulk.BulkRecords.append``."""
        cdef Py_ssize_t row = start
        cdef Py_ssize_t taken = 0
        tails.check(0)
        stop = self.begin(start, stop)
        cdef BatchBuffer buffer = lane.buffer
        if buffer is None or not tails.goes_on(0, lane):
            return start
        while row < stop:
            taken = self.put(buffer, timestamp_ms, row)
            if not taken:
                break
            if topic is not None:
                topic.sticky_bytes += taken
            row += 1
        tails._tails[0].next = buffer.record_count
        tails.advance(0, row - start)
        return row

    def hash_keys(self, Py_ssize_t partition_count, bytearray slots not None, Py_ssize_t at, Py_ssize_t start, Py_ssize_t stop):
        """See ``bulk.BulkRecords.hash_keys``."""
        cdef RowBytes key
        cdef Py_ssize_t row
        cdef uint16_t *out = self.checked_slots(slots, at, start, stop)
        if not 0 < partition_count <= ODD_KEY_SLOT:
            raise IllegalArgumentError(f"{partition_count} partitions")
        if self.keys is None:
            raise IllegalArgumentError("there are no keys")
        stop = self.begin(start, stop)
        for row in range(start, stop):
            key = self.keys.at(row)
            if key.size >= 0 and key.size <= MAX_KEY_BYTES:
                out[row - start] = <uint16_t>((hash_of(key.start, <uint32_t>key.size) & <uint32_t>0x7FFFFFFF) % <uint32_t>partition_count)
            else:
                out[row - start] = NULL_KEY_SLOT if key.size == NULL_BLOB else ODD_KEY_SLOT

    def spread(
        self,
        TopicLanes topic not None,
        RunTails tails not None,
        bytearray slots not None,
        Py_ssize_t at,
        int64_t timestamp_ms,
        Py_ssize_t start,
        Py_ssize_t stop,
    ):
        """See ``bulk.BulkRecords.spread``."""
        cdef PartitionLane sticky = topic._sticky
        cdef Py_ssize_t sticky_slot = sticky.topic_partition.partition
        cdef uint16_t *out = self.checked_slots(slots, at, start, stop)
        cdef Py_ssize_t count = min(PyTuple_GET_SIZE(topic.lanes), tails._count)
        cdef Py_ssize_t row = start
        cdef Py_ssize_t slot, taken
        cdef PartitionLane lane
        stop = self.begin(start, stop)
        while row < stop:
            slot = out[row - start]
            if slot == NULL_KEY_SLOT and topic.sticky_bytes < topic.sticky_limit_bytes:
                slot = sticky_slot
            # A null key, too, once the sticky partition is full: its slot is above all counts,
            # and the slow path switches the partition.
            if slot >= count:
                break
            lane = <PartitionLane>PyTuple_GET_ITEM(topic.lanes, slot)
            if lane.buffer is None or not tails.goes_on(slot, lane):
                break
            taken = self.put(lane.buffer, timestamp_ms, row)
            if not taken:
                break
            tails._tails[slot].next += 1
            tails.advance(slot, 1)
            if out[row - start] == NULL_KEY_SLOT:
                # Kept for the delivery, which finds a record's batch by its slot.
                out[row - start] = <uint16_t>slot
                topic.sticky_bytes += taken
            row += 1
        return row

    cdef uint16_t *checked_slots(self, bytearray slots, Py_ssize_t at, Py_ssize_t start, Py_ssize_t stop) except NULL:
        if not 0 <= start <= stop or not 0 <= at <= PyByteArray_GET_SIZE(slots) // 2 - (stop - start):
            raise IllegalArgumentError(f"rows {start} to {stop} from slot {at}")
        return <uint16_t *>PyByteArray_AS_STRING(slots) + at

    cdef Py_ssize_t begin(self, Py_ssize_t start, Py_ssize_t stop) except -1:
        """Return the row to stop at. From here to the end of the call no Python code runs."""
        if start < 0:
            raise IllegalArgumentError(f"row {start}")
        self.values.refresh()
        stop = min(stop, self.values.length)
        if self.keys is not None:
            self.keys.refresh()
            stop = min(stop, self.keys.length)
        if self._timestamps is not None:
            stop = min(stop, PyBytes_GET_SIZE(self._timestamps) // 8)
        if self._blocks is not None:
            self._blocks.refresh()
            stop = min(stop, self._blocks.length)
        if self._lists is not None:
            stop = min(stop, self._lists.length)
        return stop

    cdef bint take_block(self, Py_ssize_t row, RowBytes *block) noexcept:
        """Read the row's own headers, if it has any; False if they are ODD."""
        cdef RowBytes own = self._blocks.at(row)
        if own.size >= 0:
            block[0] = own
        return own.size != ODD_BLOB

    cdef inline Py_ssize_t put(self, BatchBuffer buffer, int64_t timestamp_ms, Py_ssize_t row) noexcept:
        """Append a row; return its size, 0 if it is ODD, too large or does not fit."""
        cdef RowBytes key
        cdef RowBytes value = self.values.at(row)
        cdef int64_t delta = 0
        cdef Py_ssize_t max_bytes = self._max_bytes
        cdef Py_ssize_t body, size
        cdef RowBytes block
        cdef uint8_t *out
        key.size = NULL_BLOB
        if self.keys is not None:
            key = self.keys.at(row)
        if value.size < 0 or key.size < 0:  # null or ODD
            # Equal sizes: both are null, and the slow path decides about such a record.
            if value.size == ODD_BLOB or key.size == ODD_BLOB or value.size == key.size:
                return 0
        block.start = <const uint8_t *>PyBytes_AS_STRING(self._headers)
        block.size = PyBytes_GET_SIZE(self._headers)
        if self._blocks is not None:
            if not self.take_block(row, &block):
                return 0
            max_bytes -= block.size
        elif self._lists is not None:
            block.size = self._lists.take(row, max_bytes)
            if block.size < 0:
                return 0
            max_bytes -= block.size
        if self._timestamps is not None:
            timestamp_ms = load_64(<const uint8_t *>PyBytes_AS_STRING(self._timestamps) + 8 * row)
        if max(value.size, 0) > max_bytes - max(key.size, 0):
            return 0
        if buffer.record_count:
            delta = <int64_t>(<uint64_t>timestamp_ms - <uint64_t>buffer.base_timestamp_ms)
        body = 1 + varint_size(delta) + varint_size(buffer.record_count) + block.size
        body += size_of(key.size) + size_of(value.size)
        size = varint_size(body) + body
        if size > buffer.capacity_bytes - buffer.size_bytes:
            return 0
        out = put_varint(buffer._start + buffer.size_bytes, body)
        out[0] = 0  # attributes
        out = put_varint(out + 1, delta)
        out = put_varint(out, buffer.record_count)
        out = put_bytes(out, key)
        out = put_bytes(out, value)
        if self._lists is None or self._blocks is not None:
            memcpy(out, block.start, block.size)
        else:
            self._lists.write(out)
        buffer.size_bytes += size
        if not buffer.record_count:
            buffer.base_timestamp_ms = timestamp_ms
            buffer.max_timestamp_ms = timestamp_ms
        elif timestamp_ms > buffer.max_timestamp_ms:
            buffer.max_timestamp_ms = timestamp_ms
        buffer.record_count += 1
        if buffer.size_bytes >= buffer._sum_at:
            buffer.sum_up()
        return size


cdef inline Py_ssize_t size_of(Py_ssize_t size) noexcept nogil:
    """Return the size of a length-prefixed value; null is the length -1 without bytes."""
    return 1 if size < 0 else varint_size(size) + size


cdef inline uint8_t *put_bytes(uint8_t *out, RowBytes blob) noexcept nogil:
    if blob.size < 0:
        out[0] = 1  # varint -1
        return out + 1
    out = put_varint(out, blob.size)
    memcpy(out, blob.start, blob.size)
    return out + blob.size


def count_slot(bytearray slots not None, Py_ssize_t slot, Py_ssize_t stop):
    """See ``bulk.count_slot``."""
    cdef const uint16_t *at = <const uint16_t *>PyByteArray_AS_STRING(slots)
    cdef Py_ssize_t found = 0
    cdef Py_ssize_t position
    for position in range(min(stop, PyByteArray_GET_SIZE(slots) // 2)):
        found += at[position] == slot
    return found
