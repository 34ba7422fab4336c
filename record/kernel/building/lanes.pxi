"""The open batch of each partition, for records that take the fast path.

The compiled appends run no Python code, so the GIL makes each of them one atomic step, and no lock is needed. All
other code keeps an order: to open a batch, it publishes the buffer in the lane last; to close one, it withdraws the
buffer first and reads its size afterwards. So code that finds a buffer in a lane may append to it
(docs/decisions/batch-ownership.md).
"""


cdef inline FutureCell new_cell(type future_type):
    """Make an empty future. Called before a lane is read: an allocation may run a finalizer, which may do anything."""
    return <FutureCell?>(<CTypeObject *>future_type).tp_new(<void *>future_type, EMPTY, NULL)


cdef int fill_cell(
    FutureCell future,
    BatchOutcome outcome,
    int index,
    int64_t timestamp_ms,
    object key,
    object value,
    object headers,
) except -1:
    future.outcome = outcome
    future.index = index
    future.timestamp_ms = timestamp_ms
    future.key_size = -1 if key is None else <int>PyBytes_GET_SIZE(key)
    future.value_size = -1 if value is None else <int>PyBytes_GET_SIZE(value)
    future.header_size = payload_size(headers) if header_count(headers) else -1
    return 0


cdef bint append_to(
    PartitionLane lane, FutureCell future, int64_t timestamp_ms, object key, object value, object headers
) except -1:
    """Append the record to the lane's batch and bind its future, if there is room. Runs no Python code."""
    cdef BatchBuffer buffer = lane.buffer
    if buffer is None:
        return False
    cdef int index = <int>buffer.record_count
    if not buffer.put(timestamp_ms, key, value, headers):
        return False
    # Cannot fail now that the record is in: the UTF-8 forms of the headers' keys exist already.
    fill_cell(future, lane.outcome, index, timestamp_ms, key, value, headers)
    return True


@cython.no_gc_clear
cdef class PartitionLane:
    """See ``lanes.PartitionLane``."""

    cdef readonly object topic_partition
    cdef readonly BatchBuffer buffer
    cdef readonly BatchOutcome outcome

    def __init__(self, topic_partition):
        self.topic_partition = topic_partition

    def open(self, BatchBuffer buffer not None, BatchOutcome outcome not None):
        """See ``lanes.PartitionLane.open``."""
        if self.buffer is not None:
            raise IllegalStateError(f"the lane of {self.topic_partition} is open already")
        self.outcome = outcome
        self.buffer = buffer

    def withdraw(self):
        """See ``lanes.PartitionLane.withdraw``."""
        cdef BatchBuffer buffer = self.buffer  # freed at the end, so that no finalizer runs in between
        cdef BatchOutcome outcome = self.outcome
        self.buffer = None
        self.outcome = None

    def try_append(self, timestamp_ms, key, value, headers, future_type):
        """See ``lanes.PartitionLane.try_append``."""
        if self.buffer is None:
            return None
        if not issubclass(future_type, FutureCell):
            raise TypeError(f"future_type must be a FutureCell, not {future_type!r}")
        cdef FutureCell future = new_cell(future_type)
        cdef int64_t timestamp = as_int(timestamp_ms) if type(timestamp_ms) is not int else timestamp_ms
        key = as_blob(key, "key")
        value = as_blob(value, "value")
        headers = as_pairs(headers)
        return future if append_to(self, future, timestamp, key, value, headers) else None


@cython.no_gc_clear
cdef class TopicLanes:
    """See ``lanes.TopicLanes``."""

    cdef readonly tuple lanes
    cdef PartitionLane _sticky
    cdef public Py_ssize_t sticky_bytes
    cdef public Py_ssize_t sticky_limit_bytes
    cdef public object missed

    def __init__(self, lanes, PartitionLane sticky not None, Py_ssize_t sticky_bytes, Py_ssize_t sticky_limit_bytes):
        lanes = tuple(lanes)
        for lane in lanes:
            if not isinstance(lane, PartitionLane):
                raise TypeError(f"a lane must be a PartitionLane, not {type(lane).__name__}")
        self.lanes = lanes
        self._sticky = sticky
        self.sticky_bytes = sticky_bytes
        self.sticky_limit_bytes = sticky_limit_bytes

    @property
    def sticky(self):
        """See ``lanes.TopicLanes``."""
        return self._sticky

    def stick_to(self, PartitionLane lane not None, Py_ssize_t sticky_bytes):
        """See ``lanes.TopicLanes.stick_to``."""
        self._sticky = lane
        self.sticky_bytes = sticky_bytes
