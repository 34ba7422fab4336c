"""Records that an event loop waits for; see ``event_loops.py``.

A loop's watch is used in the loop's thread alone, but for ``ring``, and so are its tellings.
"""

cdef extern from "Python.h":
    object PyContext_CopyCurrent()
    int PyContext_Enter(object context) except -1
    int PyContext_Exit(object context) except -1

cdef object watch_of_thread = None
cdef object running_loop = None
cdef object cancelled_error = None
cdef object invalid_state_error = None
cdef LoopWatch last_watch = None  # the one that was used last, in whatever thread


def use_asyncio(here, running, cancelled, invalid_state):
    """See ``event_loops.use_asyncio``."""
    global watch_of_thread, running_loop, cancelled_error, invalid_state_error
    watch_of_thread = here
    running_loop = running
    cancelled_error = cancelled
    invalid_state_error = invalid_state


cdef LoopWatch watch_here():
    global last_watch
    cdef object loop = running_loop()
    cdef LoopWatch watch = last_watch
    if loop is None or watch is None or watch._loop() is not loop:
        watch = watch_of_thread()
        last_watch = watch  # frees an earlier one, perhaps with tasks: then other threads come here
    return watch


cdef class Telling:
    """See ``event_loops.Telling``."""

    cdef readonly FutureCell cell
    cdef readonly object told
    cdef readonly object context

    def __init__(self, FutureCell cell not None, told, context):
        self.cell = cell
        self.told = told
        self.context = context

    @property
    def waiting(self):
        """See ``event_loops.Telling.waiting``."""
        return self if type(self) is Wait else self.cell

    def tell(self):
        """See ``event_loops.Telling.tell``."""
        tell(self)


cdef int tell(Telling telling) except -1:
    cdef object told = telling.told
    cdef object context = telling.context
    telling.told = telling.context = None  # a task refers to its wait
    PyContext_Enter(context)
    try:
        if type(telling) is Wait:
            told(telling)
        else:
            told(telling.cell)
    finally:
        PyContext_Exit(context)
    return 0


@cython.final
cdef class Wait(Telling):
    """See ``event_loops.Wait``."""

    cdef public bint _asyncio_future_blocking
    cdef tuple _message
    cdef LoopWatch _watch

    def __init__(self, FutureCell cell not None, LoopWatch watch not None):
        self.cell = cell
        self._watch = watch

    def __iter__(self):
        return self

    def __next__(self):
        if is_done(self.cell):
            raise StopIteration(metadata_now(self.cell))
        self._asyncio_future_blocking = True
        return self

    def send(self, _value):
        """See ``event_loops.Wait.send``."""
        return self.__next__()

    def get_loop(self):
        """See ``event_loops.Wait.get_loop``."""
        return self._watch.loop

    def add_done_callback(self, told, *, context):
        """See ``event_loops.Wait.add_done_callback``."""
        if self._watch is None:
            raise IllegalStateError("a wait that was not initialized")
        self.told = told
        self.context = context
        self._watch.watch(self)

    def cancel(self, msg=None):
        """See ``event_loops.Wait.cancel``."""
        if not self._watch.remove(self.cell, lambda each: each is self):
            return False
        self._message = () if msg is None else (msg,)
        self._watch.soon(self)
        return True

    def result(self):
        """See ``event_loops.Wait.result``."""
        if self._message is not None:
            raise cancelled_error(*self._message)


@cython.final
cdef class LoopWatch:
    """See ``event_loops.LoopWatch``."""

    cdef object _loop
    cdef dict _batches
    cdef object _ended
    cdef list _due
    cdef list _turn
    cdef dict _held
    cdef bint _rung
    cdef bint _scheduled
    cdef bint _holds

    def __cinit__(self, loop):
        # Weak: an application may drop a loop while its records are still on their way.
        self._loop = weak_reference(loop)
        self._batches = {}
        self._ended = deque()
        self._due = []
        self._turn = []
        self._held = {}

    @property
    def loop(self):
        """See ``event_loops.LoopWatch.loop``."""
        cdef object loop = self._loop()
        if loop is None:
            raise RuntimeError("the event loop is gone")
        return loop

    def is_of(self, loop):
        """See ``event_loops.LoopWatch.is_of``."""
        return self._loop() is loop

    def add(self, Telling telling not None):
        """See ``event_loops.LoopWatch.add``."""
        self.watch(telling)

    cdef int watch(self, Telling telling) except -1:  # raises for a telling or a cell that was not initialized
        if is_done(telling.cell) or not self.join(telling):
            self.make_due(telling)
        return 0

    def soon(self, Telling telling not None):
        """See ``event_loops.LoopWatch.soon``."""
        self.make_due(telling)

    cdef int make_due(self, Telling telling) except -1:
        if not self._scheduled:
            self.schedule()
        self._due.append(telling)
        return 0

    def remove(self, FutureCell cell not None, is_one):
        """See ``event_loops.LoopWatch.remove``."""
        cdef BatchWatch batch
        cdef list batches, removed = []
        is_done(cell)  # raises for one that was not initialized
        # Those of a batch that was split may be with it and with any of its parts.
        if cell.outcome.state == SPLIT:
            batches = list(self._batches.values())
        else:
            batches = [self._batches.get(cell.outcome)]
        for batch in batches:
            if batch is not None:
                for telling in as_list(batch.tellings.pop(cell, None)):
                    if is_one(telling):
                        removed.append(telling)
                    else:
                        self.watch(telling)
        return removed

    def hold(self, wake):
        """See ``event_loops.LoopWatch.hold``."""
        if not self._holds:
            return False
        if not self._held:
            self.loop.call_soon(self._release)
        self._held[wake] = None
        return True

    def ring(self, BatchWatch batch not None):
        """See ``event_loops.LoopWatch.ring``."""
        # Before the look at `_rung`: `_tell` clears that before it empties the queue, so either
        # its run or the wake-up below finds the batch.
        self._ended.append(batch)
        if self._rung:
            return
        self._rung = True
        cdef object loop = self._loop()
        if loop is not None:
            try:
                loop.call_soon_threadsafe(self._tell)
                return
            except RuntimeError:  # the loop is closed, and its tasks with it
                pass
        self._batches.clear()
        self._ended.clear()
        self._rung = False

    cdef bint join(self, Telling telling) except -1:
        cdef BatchOutcome outcome = telling.cell.outcome
        cdef Py_ssize_t index = telling.cell.index
        cdef BatchWatch batch
        cdef PyObject *found
        if outcome.state == SPLIT:
            outcome, index = outcome.leaf_of(index)
        found = PyDict_GetItemWithError(self._batches, outcome)
        if found is NULL:
            batch = BatchWatch.__new__(BatchWatch)
            batch.loop_watch = self
            batch.outcome = outcome
            batch.tellings = {}
            # As a waiter of this record, and not of the batch: if that is split, the records that are done
            # first need not wait for the others.
            if outcome.add_waiter(batch, index) is None:
                return False
            self._batches[outcome] = batch
        else:
            batch = <BatchWatch>found
        found = PyDict_GetItemWithError(batch.tellings, telling.cell)
        if found is NULL:
            batch.tellings[telling.cell] = telling
        else:
            batch.tellings[telling.cell] = [*as_list(<object>found), telling]
        return True

    cdef int schedule(self) except -1:
        self.loop.call_soon(self._tell)
        self._scheduled = True
        return 0

    def _tell(self):
        cdef Telling telling
        cdef object told
        cdef list due
        self._rung = self._scheduled = False
        while self._ended:
            self.take(self._ended.popleft())
        # What is added meanwhile has the next turn, as with asyncio's futures. A nested run of the loop
        # (nest_asyncio) tells the rest of this turn first.
        due = self._due
        self._due = []
        due.reverse()
        self._turn[:0] = due
        self._holds = len(self._turn) > 1
        try:
            while self._turn:
                telling = self._turn.pop()
                told = telling.told
                try:
                    tell(telling)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self.loop.call_exception_handler(
                        {
                            "message": f"{told!r} raised for {telling.waiting!r}",
                            "exception": error,
                            "future": telling.waiting,
                        }
                    )
        finally:
            self._holds = False
            self._release()
            if (self._turn or self._due) and not self._scheduled:
                self.schedule()

    def _release(self):
        cdef dict held = self._held
        if held:
            self._held = {}
            for wake in held:
                wake()

    cdef int take(self, BatchWatch batch) except -1:
        cdef Telling telling
        self._batches.pop(batch.outcome, None)
        for value in batch.tellings.values():
            if type(value) is list:
                for telling in <list>value:
                    self.take_one(telling)
            else:
                self.take_one(<Telling>value)
        return 0

    cdef int take_one(self, Telling telling) except -1:
        if is_done(telling.cell) or not self.join(telling):
            self._due.append(telling)
        return 0


cdef list as_list(object tellings):
    """What a ``BatchWatch`` has for a record: nothing, a telling, or a list of several."""
    if tellings is None:
        return []
    return tellings if type(tellings) is list else [tellings]


@cython.final
cdef class BatchWatch:
    """See ``event_loops.BatchWatch``."""

    cdef LoopWatch loop_watch
    cdef BatchOutcome outcome
    cdef dict tellings  # a record has a telling or, if it is not alone, a list of them

    def __call__(self):
        self.loop_watch.ring(self)


# Not tracked by the garbage collector, as FutureCell.
@cython.no_gc
cdef class LoopFuture(FutureCell):
    """See ``event_loops.LoopFuture``."""

    def result(self):
        """See ``event_loops.LoopFuture.result``."""
        if not is_done(self):
            raise invalid_state_error("the record is not delivered yet")
        return metadata_now(self)

    def exception(self):
        """See ``event_loops.LoopFuture.exception``."""
        if not is_done(self):
            raise invalid_state_error("the record is not delivered yet")
        cdef object error = None if self.outcome.state == SUCCEEDED else self.outcome.error_of(self.index)
        if error is None:
            return None
        error = fresh(error)
        if isinstance(error, cancelled_error):
            raise error
        return error

    def cancelled(self):
        """See ``event_loops.LoopFuture.cancelled``."""
        if not is_done(self) or self.outcome.state == SUCCEEDED:
            return False
        return isinstance(self.outcome.error_of(self.index), cancelled_error)

    def add_done_callback(self, fn, /, *, context=None):
        """See ``event_loops.LoopFuture.add_done_callback``."""
        cdef Telling telling = Telling.__new__(Telling)
        telling.cell = self
        telling.told = fn
        telling.context = PyContext_CopyCurrent() if context is None else context
        watch_here().watch(telling)

    def get_loop(self):
        """See ``event_loops.LoopFuture.get_loop``."""
        return watch_here().loop

    def __await__(self):
        cdef Wait wait = Wait.__new__(Wait)
        wait.cell = self
        wait._watch = watch_here()
        return wait


LoopFuture.result.__doc__ = event_loops.LoopFuture.result.__doc__
LoopFuture.exception.__doc__ = event_loops.LoopFuture.exception.__doc__
LoopFuture.cancelled.__doc__ = event_loops.LoopFuture.cancelled.__doc__
LoopFuture.add_done_callback.__doc__ = event_loops.LoopFuture.add_done_callback.__doc__
LoopFuture.get_loop.__doc__ = event_loops.LoopFuture.get_loop.__doc__
