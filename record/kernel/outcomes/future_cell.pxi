"""The cell a delivery future is made of, and the callbacks of applications."""

cdef enum:  # future_cell.ON_SUCCESS, ON_FAILURE
    ON_SUCCESS = 1
    ON_FAILURE = 2


# Millions may live, so the collector does not look at them. It cannot see a cycle through one either: nothing
# that an outcome keeps for good may lead back to a future. Waiters are dropped when the batch ends; an error
# that was raised leads to frames, so only copies of it are (outcome.fresh).
@cython.no_gc
cdef class FutureCell:
    """See ``future_cell.FutureCell``."""

    cdef readonly BatchOutcome outcome
    cdef readonly int64_t timestamp_ms
    cdef readonly int index
    cdef readonly int key_size
    cdef readonly int value_size
    cdef readonly int header_size

    def __cinit__(self):
        if PyObject_GC_IsTracked(self):  # every class made in Python is a collector's class
            PyObject_GC_UnTrack(<PyObject *>self)

    def __init__(
        self,
        BatchOutcome outcome not None,
        int index,
        int64_t timestamp_ms,
        int key_size=-1,
        int value_size=-1,
        int header_size=-1,
    ):
        self.outcome = outcome
        self.index = index
        self.timestamp_ms = timestamp_ms
        self.key_size = key_size
        self.value_size = value_size
        self.header_size = header_size

    def done(self):
        """See ``future_cell.FutureCell.done``."""
        cdef BatchOutcome leaf = self.outcome
        if leaf is None:
            raise IllegalStateError("a future that was not initialized")
        if leaf.state == SPLIT:
            leaf = leaf.leaf_of(self.index)[0]
        return leaf.state != PENDING

    def metadata(self):
        """See ``future_cell.FutureCell.metadata``."""
        cdef BatchOutcome leaf = self.outcome
        cdef Py_ssize_t index = self.index
        if leaf is None:
            raise IllegalStateError("a future that was not initialized")
        if leaf.state == SPLIT:
            leaf, index = leaf.leaf_of(index)
        if leaf.state != SUCCEEDED:
            leaf.offset_of(index)  # which raises
        return metadata_of(self, leaf, index)

    def add_callback(self, function, /, *args, **kwargs):
        call_back(self, ON_SUCCESS, function, args, kwargs)
        return self

    def add_errback(self, function, /, *args, **kwargs):
        call_back(self, ON_FAILURE, function, args, kwargs)
        return self

    def add_both(self, function, /, *args, **kwargs):
        call_back(self, ON_SUCCESS | ON_FAILURE, function, args, kwargs)
        return self


FutureCell.add_callback.__doc__ = future_cell.FutureCell.add_callback.__doc__
FutureCell.add_errback.__doc__ = future_cell.FutureCell.add_errback.__doc__
FutureCell.add_both.__doc__ = future_cell.FutureCell.add_both.__doc__


@cython.no_gc
@cython.final
cdef class Callback(Handle):
    """See ``future_cell.Callback``."""

    cdef FutureCell future
    cdef int kinds
    cdef object function
    cdef tuple arguments
    cdef dict keywords  # None without any


cdef int call_back(FutureCell future, int kinds, object function, tuple arguments, dict keywords) except -1:
    """Stands in line, or calls at once if the record is done."""
    cdef Callback callback = Callback.__new__(Callback)
    cdef object before = None
    cdef bint inside = False
    if future.outcome is None:
        raise IllegalStateError("a future that was not initialized")
    callback.is_callback = True
    callback.index = future.index
    callback.future = future
    callback.kinds = kinds
    callback.function = function
    callback.arguments = arguments
    callback.keywords = keywords if keywords else None
    if future.outcome.enqueue(callback):
        return 0
    try:
        try:
            before = outcome_table.enter_callbacks()
            inside = True
        finally:  # also if that was interrupted: a callback is called once
            run_callback(callback)
    finally:
        if inside:
            outcome_table.leave_callbacks(before)
    return 0


cdef int run_callback(Callback callback) except -1:
    """Calls the application; what that raises goes to the hook, which lets little through."""
    cdef FutureCell future = callback.future
    cdef BatchOutcome leaf = future.outcome
    cdef Py_ssize_t index = future.index
    cdef object result = None
    if leaf.state == SPLIT:
        leaf, index = leaf.leaf_of(index)
    if not callback.kinds & (ON_SUCCESS if leaf.state == SUCCEEDED else ON_FAILURE):
        return 0
    try:
        if leaf.state == SUCCEEDED:
            result = metadata_of(future, leaf, index)
        else:
            result = fresh(leaf.error_of(index))
        if callback.keywords is None and not callback.arguments:
            callback.function(result)
        else:
            callback.function(*callback.arguments, result, **(callback.keywords or {}))
    except BaseException as raised:
        outcome_table.on_callback_error(raised)
    return 0


cdef object metadata_of(FutureCell future, BatchOutcome leaf, Py_ssize_t index):
    """Of a record that was delivered."""
    cdef object place = leaf.topic_partition
    cdef int64_t offset = -1 if leaf.base_offset < 0 else leaf.base_offset + index
    cdef int64_t timestamp_ms = leaf.log_append_time_ms
    if timestamp_ms < 0:
        timestamp_ms = future.timestamp_ms
    cdef object topic, partition
    if type(place) is TopicPartition:  # by position: the lookup of two attributes costs as much as all the rest
        topic = <object>PyTuple_GET_ITEM(place, 0)
        partition = <object>PyTuple_GET_ITEM(place, 1)
    else:
        topic = place.topic
        partition = place.partition
    cdef tuple fields = (
        topic,
        partition,
        place,
        offset,
        timestamp_ms,
        None,
        future.key_size,
        future.value_size,
        future.header_size,
    )
    # Not tp_alloc and filled here: that leaves the hash wrong which tuples of Python 3.14 keep.
    return (<CTypeObject *>tuple).tp_new(<void *>RecordMetadata, (fields,), NULL)


def uncollected(cls):
    """See ``future_cell.uncollected``."""
    cdef PyType_Slot[1] slots
    cdef PyType_Spec spec
    cdef bytes name = f"{cls.__module__}.{cls.__qualname__}".encode()
    if cls.__bases__ != (FutureCell,) or cls.__dictoffset__ or cls.__weakrefoffset__:
        raise TypeError(f"{cls.__name__} must derive from FutureCell alone, and have __slots__ = ()")
    memset(slots, 0, sizeof(slots))
    memset(&spec, 0, sizeof(spec))
    spec.name = PyBytes_AS_STRING(name)
    spec.basicsize = cls.__basicsize__
    spec.flags = Py_TPFLAGS_DEFAULT
    spec.slots = slots
    made = PyType_FromSpecWithBases(&spec, (FutureCell,))
    _type_names.append(name)  # the type points into it
    for attribute, thing in vars(cls).items():
        if attribute != "__slots__":
            setattr(made, attribute, thing)
    return made


cdef list _type_names = []
