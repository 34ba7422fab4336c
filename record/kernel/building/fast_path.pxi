"""``send`` for a record that fits into the open batch of its partition: one call, no lock, no Python frame.

It reports no errors: an unusual argument makes the record take the slow path, which does all checks.
"""


@cython.no_gc_clear  # a finalizer may send while the garbage collector breaks a cycle
@cython.final
cdef class FastPath:
    """See ``fast_path.FastPath``."""

    cdef public bint closed
    cdef public bint detour
    cdef readonly bint plain
    cdef dict _routes
    cdef object _topic  # the topic published last, with its lanes: most producers send to one topic
    cdef TopicLanes _lanes
    cdef object _wall_ns
    cdef type _future_type
    cdef Py_ssize_t _fits_bytes

    __class_getitem__ = classmethod(GenericAlias)

    def __cinit__(self, *, wall_ns, future_type, Py_ssize_t fits_bytes, guard=None, bint plain=True):
        if not issubclass(future_type, FutureCell):
            raise TypeError(f"future_type must be a FutureCell, not {future_type!r}")
        self.closed = False
        self.detour = False
        self.plain = plain
        self._routes = {}
        self._wall_ns = wall_ns
        self._future_type = future_type
        self._fits_bytes = fits_bytes

    def publish(self, topic, TopicLanes lanes not None):
        """See ``fast_path.FastPath.publish``."""
        if lanes._sticky is None:
            raise IllegalStateError("these lanes were not initialized")
        if type(topic) is str:  # a subclass may have a Python __eq__
            before = (self._routes.get(topic), self._topic, self._lanes)  # freed last: a key's finalizer may send
            self._routes[topic] = lanes
            self._topic = topic
            self._lanes = lanes

    def route(self, topic):
        """See ``fast_path.FastPath.route``."""
        return self._routes.get(topic) if type(topic) is str else None

    def clear(self):
        """See ``fast_path.FastPath.clear``."""
        cdef dict empty = {}
        cdef dict before = self._routes  # freed at the end, as the others: a finalizer may run Python code
        cdef object topic = self._topic
        cdef TopicLanes lanes = self._lanes
        self._routes = empty
        self._topic = None
        self._lanes = None

    def try_send(self, topic, value, key=None, headers=None, partition=None, timestamp_ms=None):
        """See ``fast_path.FastPath.try_send``."""
        return self.take(topic, value, key, headers, partition, timestamp_ms)

    cdef FutureCell take(
        self, object topic, object value, object key, object headers, object partition, object timestamp_ms
    ):
        """Append the record and return its future, or None if it cannot take the fast path."""
        # Exact types only, here and below: to hash or compare a subclass may run its Python code.
        if self.closed or self.detour or type(topic) is not str:
            return None
        cdef Py_ssize_t size_bytes = 0
        if type(value) is bytes:
            size_bytes = PyBytes_GET_SIZE(value)
        elif value is not None or key is None:
            return None
        if key is not None:
            if type(key) is not bytes:
                return None
            size_bytes += PyBytes_GET_SIZE(key)
        if partition is not None and type(partition) is not int:
            return None
        cdef int64_t timestamp = 0
        cdef int overflow = 0
        if timestamp_ms is None:
            timestamp = <int64_t>PyObject_CallNoArgs(self._wall_ns)
            if timestamp < 0:
                return None
            timestamp //= 1_000_000
        elif type(timestamp_ms) is int:
            timestamp = PyLong_AsLongLongAndOverflow(timestamp_ms, &overflow)
            if overflow or timestamp < 0:
                return None
        else:
            return None
        cdef FutureCell future = new_cell(self._future_type)

        # The clock and the allocation may have run Python code, which may close the batch; from here on none runs.
        if headers is not None:
            if not plain_headers(headers):
                return None
            size_bytes += payload_limit(headers)
        if size_bytes > self._fits_bytes or self.closed or self.detour:
            return None
        cdef PyObject *found
        if topic is self._topic:
            found = <PyObject *>self._lanes
        else:
            found = PyDict_GetItemWithError(self._routes, topic)
        if found is NULL:
            return None
        return future if self.place(<TopicLanes>found, future, timestamp, key, value, headers, partition, size_bytes) else None

    cdef bint place(
        self,
        TopicLanes route,
        FutureCell future,
        int64_t timestamp,
        object key,
        object value,
        object headers,
        object partition,
        Py_ssize_t size_bytes,
    ) except -1:
        cdef Py_ssize_t count = PyTuple_GET_SIZE(route.lanes)
        cdef Py_ssize_t number
        cdef PartitionLane lane
        cdef int overflow = 0
        if partition is not None:
            number = PyLong_AsLongLongAndOverflow(partition, &overflow)
            if overflow or not 0 <= number < count:
                return False
        elif key is not None:
            if not count or PyBytes_GET_SIZE(key) > MAX_KEY_BYTES:
                return False
            number = (hash_of(<const uint8_t *>PyBytes_AS_STRING(key), <uint32_t>PyBytes_GET_SIZE(key)) & <uint32_t>0x7FFFFFFF) % count
            lane = <PartitionLane>PyTuple_GET_ITEM(route.lanes, number)
            if append_to(lane, future, timestamp, key, value, headers):
                return True
            route.missed = (key, lane)  # nothing was appended yet, so a finalizer may run here
            return False
        else:
            if route.sticky_bytes >= route.sticky_limit_bytes:
                return False
            if not append_to(route._sticky, future, timestamp, key, value, headers):
                return False
            route.sticky_bytes += size_bytes + RECORD_FRAMING_BYTES
            return True
        return append_to(
            <PartitionLane>PyTuple_GET_ITEM(route.lanes, number), future, timestamp, key, value, headers
        )


cdef class NowaitSends:
    """See ``fast_path.NowaitSends``."""

    cdef FastPath _fast_path

    __class_getitem__ = classmethod(GenericAlias)

    @property
    def _path(self):
        return self._fast_path

    @_path.setter
    def _path(self, FastPath path not None):
        self._fast_path = path

    def send_nowait(self, topic, value=None, key=None, headers=None, partition=None, timestamp_ms=None):
        cdef FutureCell future
        cdef FastPath path = self._fast_path
        if path is not None and path.plain:
            future = path.take(topic, value, key, headers, partition, timestamp_ms)
            if future is not None:
                return future
        return self._own_send_nowait(topic, value, key, headers, partition, timestamp_ms)


cdef class Sends(NowaitSends):
    """See ``fast_path.Sends``."""

    def send(self, topic, value=None, key=None, headers=None, partition=None, timestamp_ms=None):
        cdef FutureCell future
        cdef FastPath path = self._fast_path
        if path is not None and path.plain:
            future = path.take(topic, value, key, headers, partition, timestamp_ms)
            if future is not None:
                return future
        return self._own_send(topic, value, key, headers, partition, timestamp_ms)


NowaitSends.send_nowait.__doc__ = fast_path.NowaitSends.send_nowait.__doc__
Sends.send.__doc__ = fast_path.Sends.send.__doc__
