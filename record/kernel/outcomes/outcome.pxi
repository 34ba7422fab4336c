"""The outcome of a batch, and the futures of its records.

To add a waiter, a thread reads the state and joins the queue without running Python code in between. To complete the
batch, a thread stores the state and then takes the whole queue. The GIL makes each of the two atomic, so the queue
holds every waiter that saw the old state; the Python twin needs the longer protocol that it describes. Completion as a
whole is not atomic: one thread at a time does it, in both twins. After a split the waiters are added to the parts one
by one, in the same way.
"""


# Not tracked by the garbage collector, for the same reason as futures: there may be one per record. A batch drops
# its handles when it ends, and every batch ends.
@cython.no_gc
cdef class Handle:
    """See ``outcome.Handle``."""

    cdef object waiter
    cdef Py_ssize_t index
    cdef bint is_callback

    def __call__(self):
        cdef object waiter = self.waiter
        if waiter is not None:
            waiter()


@cython.final
cdef class BatchOutcome:
    """See ``outcome.BatchOutcome``."""

    cdef readonly object topic_partition
    cdef readonly int state
    cdef readonly int64_t base_offset
    cdef readonly int64_t log_append_time_ms
    cdef readonly object error
    cdef object _record_errors
    cdef tuple _bounds
    cdef tuple _parts
    cdef list _waiters

    def __cinit__(self, topic_partition):
        self.topic_partition = topic_partition
        self.state = PENDING
        self.base_offset = -1
        self.log_append_time_ms = -1
        self._bounds = ()
        self._parts = ()
        self._waiters = []

    def succeed(self, int64_t base_offset, int64_t log_append_time_ms):
        """See ``outcome.BatchOutcome.succeed``."""
        if takes(self.state, Event.SUCCEED):
            self.base_offset = base_offset
            self.log_append_time_ms = log_append_time_ms
            # Last: a thread that sees the state sees the result.
            self.state = SUCCEEDED

    def fail(self, error, record_errors=None):
        """See ``outcome.BatchOutcome.fail``."""
        if takes(self.state, Event.FAIL):
            self.error = error
            self._record_errors = record_errors
            self.state = FAILED

    def split(self, bounds, children):
        """See ``outcome.BatchOutcome.split``."""
        cdef Handle handle
        cdef object problem = None
        bounds, children = tuple(bounds), tuple(children)  # read once, so that what was checked is what is kept
        check_parts(bounds, [(<BatchOutcome?>child).state for child in children])
        takes(self.state, Event.SPLIT)
        self._bounds = bounds
        self._parts = children
        self.state = SPLIT
        for handle in self.take_waiters():
            try:
                self.enqueue_at_parts(handle)
            except Exception as error:  # the other waiters still need their results
                problem = problem or error
        if problem is not None:
            raise problem

    def run_waiters(self):
        """See ``outcome.BatchOutcome.run_waiters``."""
        cdef object interrupt = None
        cdef object before = None
        cdef bint inside = False
        cdef Handle handle
        cdef list taken = self.take_waiters()  # freed at the end, outside of all callbacks: a finalizer may wait
        for handle in taken:
            try:
                try:
                    if handle.is_callback and not inside:
                        try:
                            before = outcome_table.enter_callbacks()
                            inside = True
                        finally:  # also if a signal handler raised in it: a callback runs once
                            run_callback(<Callback>handle)
                    elif handle.is_callback:
                        run_callback(<Callback>handle)
                    elif handle.waiter is not None:
                        handle.waiter()
                except Exception as error:
                    outcome_table.on_waiter_error(error)
            except BaseException as error:
                if interrupt is None or not isinstance(error, Exception):
                    interrupt = error
        try:
            if inside:
                outcome_table.leave_callbacks(before)
        finally:
            if interrupt is not None:
                raise interrupt

    cdef list take_waiters(self):
        cdef list nobody = []  # allocated before the swap, since an allocation may run a finalizer
        cdef list taken = self._waiters
        self._waiters = nobody
        return taken

    def done(self):
        """See ``outcome.BatchOutcome.done``."""
        cdef BatchOutcome part
        if self.state == SPLIT:
            for part in self._parts:
                if not part.done():
                    return False
            return True
        return self.state != PENDING

    def add_waiter(self, waiter, Py_ssize_t index=-1):
        """See ``outcome.BatchOutcome.add_waiter``."""
        cdef Handle handle = Handle.__new__(Handle)
        handle.waiter = waiter
        handle.index = index
        return handle if self.enqueue(handle) else None

    def remove_waiter(self, Handle handle not None):
        """See ``outcome.BatchOutcome.remove_waiter``."""
        cdef BatchOutcome part
        cdef Py_ssize_t position
        handle.waiter = None
        for position in range(len(self._waiters)):
            if self._waiters[position] is handle:
                del self._waiters[position]
                return
        for part in self._parts:
            part.remove_waiter(handle)

    cdef bint enqueue(self, Handle handle) except -1:
        if self.state == PENDING:
            self._waiters.append(handle)
            return True
        return self.state == SPLIT and self.enqueue_at_parts(handle)

    cdef bint enqueue_at_parts(self, Handle handle) except -1:
        if handle.index < 0:
            return not AllOf(self._parts, handle).all_done()
        cdef Py_ssize_t at = self.part_at(handle.index)
        handle.index -= <Py_ssize_t>self._bounds[at]
        return (<BatchOutcome>self._parts[at]).enqueue(handle)

    cdef Py_ssize_t part_at(self, Py_ssize_t index) except -1:
        if not 0 <= index < self._bounds[len(self._bounds) - 1]:
            raise IllegalArgumentError(
                f"record {index} of a batch that held {self._bounds[len(self._bounds) - 1]}"
            )
        return bisect_right(self._bounds, index) - 1

    def leaf_of(self, Py_ssize_t index):
        """See ``outcome.BatchOutcome.leaf_of``."""
        cdef BatchOutcome outcome = self
        cdef Py_ssize_t at
        while outcome.state == SPLIT:
            at = outcome.part_at(index)
            index -= <Py_ssize_t>outcome._bounds[at]
            outcome = <BatchOutcome>outcome._parts[at]
        return outcome, index

    def error_of(self, index):
        """See ``outcome.BatchOutcome.error_of``."""
        cdef BatchOutcome leaf
        leaf, index = self.leaf_of(index)
        return (leaf._record_errors or {}).get(index, leaf.error)

    def offset_of(self, index):
        """See ``outcome.BatchOutcome.offset_of``."""
        cdef BatchOutcome leaf
        leaf, index = self.leaf_of(index)
        if leaf.state == PENDING:
            raise IllegalStateError(f"the batch for {leaf.topic_partition} is not done")
        error = leaf.error_of(index)
        if error is not None:
            raise fresh(error)
        return -1 if leaf.base_offset < 0 else leaf.base_offset + <int64_t>index


cdef enum:  # as in outcome.py
    ON_SUCCESS = 1
    ON_FAILURE = 2


# Millions may be alive, so the garbage collector does not track them, which would cost it a look at each. Then it
# cannot find a cycle through one either: nothing that an outcome keeps may lead back to a future. Waiters are
# dropped when the batch ends; a raised error refers to frames, so only copies of it are raised (outcome.fresh).
@cython.no_gc
cdef class FutureCell:
    """See ``outcome.FutureCell``."""

    cdef readonly BatchOutcome outcome
    cdef readonly int64_t timestamp_ms
    cdef readonly int index
    cdef readonly int key_size
    cdef readonly int value_size
    cdef readonly int header_size

    def __cinit__(self):
        if PyObject_GC_IsTracked(self):  # a subclass defined in Python: the garbage collector tracks these
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
        """See ``outcome.FutureCell.done``."""
        return is_done(self)

    def metadata(self):
        """See ``outcome.FutureCell.metadata``."""
        return metadata_now(self)

    def _leave_for(self, BatchOutcome outcome not None):
        """See ``outcome.FutureCell._leave_for``."""
        self.outcome = outcome

    def add_callback(self, function, /, *args, **kwargs):
        call_back(self, ON_SUCCESS, function, args, kwargs)
        return self

    def add_errback(self, function, /, *args, **kwargs):
        call_back(self, ON_FAILURE, function, args, kwargs)
        return self

    def add_both(self, function, /, *args, **kwargs):
        call_back(self, ON_SUCCESS | ON_FAILURE, function, args, kwargs)
        return self


FutureCell.add_callback.__doc__ = PythonFutureCell.add_callback.__doc__
FutureCell.add_errback.__doc__ = PythonFutureCell.add_errback.__doc__
FutureCell.add_both.__doc__ = PythonFutureCell.add_both.__doc__


@cython.no_gc
@cython.final
cdef class Callback(Handle):
    """See ``outcome.Callback``."""

    cdef FutureCell future
    cdef int kinds
    cdef object function
    cdef tuple arguments
    cdef dict keywords  # None if there are none


cdef int call_back(FutureCell future, int kinds, object function, tuple arguments, dict keywords) except -1:
    """Register as a waiter, or call at once if the record is done."""
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
        finally:  # also if a signal handler raised in it: a callback runs once
            run_callback(callback)
    finally:
        if inside:
            outcome_table.leave_callbacks(before)
    return 0


cdef int run_callback(Callback callback) except -1:
    """Call the application's function; what it raises goes to ``on_callback_error``."""
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


cdef bint is_done(FutureCell future) except -1:
    if future is None or future.outcome is None:
        raise IllegalStateError("a future that was not initialized")
    cdef BatchOutcome leaf = future.outcome
    if leaf.state == SPLIT:
        leaf = leaf.leaf_of(future.index)[0]
    return leaf.state != PENDING


cdef object metadata_now(FutureCell future):
    """Return the metadata, or raise the record's error or that it is not done."""
    cdef BatchOutcome leaf = future.outcome
    cdef Py_ssize_t index = future.index
    if leaf is None:
        raise IllegalStateError("a future that was not initialized")
    if leaf.state == SPLIT:
        leaf, index = leaf.leaf_of(index)
    if leaf.state != SUCCEEDED:
        leaf.offset_of(index)  # always raises here
    return metadata_of(future, leaf, index)


cdef object metadata_of(FutureCell future, BatchOutcome leaf, Py_ssize_t index):
    """Make the metadata of a delivered record."""
    cdef object place = leaf.topic_partition
    cdef int64_t offset = -1 if leaf.base_offset < 0 else leaf.base_offset + index
    cdef int64_t timestamp_ms = leaf.log_append_time_ms
    if timestamp_ms < 0:
        timestamp_ms = future.timestamp_ms
    cdef object topic, partition
    if type(place) is TopicPartition:  # read by position: two attribute lookups cost as much as all else here
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
    # Not allocated and filled by hand: tuples of Python 3.14 cache their hash, which would be wrong.
    return (<CTypeObject *>tuple).tp_new(<void *>RecordMetadata, (fields,), NULL)


def uncollected(cls):
    """See ``outcome.uncollected``."""
    cdef PyType_Slot[1] slots
    cdef PyType_Spec spec
    cdef bytes name = f"{cls.__module__}.{cls.__qualname__}".encode()
    if cls.__bases__ not in ((FutureCell,), (LoopFuture,)) or cls.__dictoffset__ or cls.__weakrefoffset__:
        raise TypeError(f"{cls.__name__} must derive from FutureCell or LoopFuture alone, and have __slots__ = ()")
    memset(slots, 0, sizeof(slots))
    memset(&spec, 0, sizeof(spec))
    spec.name = PyBytes_AS_STRING(name)
    spec.basicsize = cls.__basicsize__
    spec.flags = Py_TPFLAGS_DEFAULT
    spec.slots = slots
    made = PyType_FromSpecWithBases(&spec, cls.__bases__)
    _type_names.append(name)  # the type points into this string
    for attribute, thing in vars(cls).items():
        if attribute != "__slots__":
            setattr(made, attribute, thing)
    return made


cdef list _type_names = []
