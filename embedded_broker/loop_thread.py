"""What runs in a trio loop of its own, in a daemon thread, for programs that are not written in trio.

Tests steer it from outside, whether it runs or not: its clock, and what stands between clients and handlers.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, TypeVar

import trio

from splashdam.embedded_broker.fork_guard import check_process
from splashdam.embedded_broker.serving.interception import Interception
from splashdam.model.errors import IllegalStateError, KafkaTimeoutError
from splashdam.net.clock import LoopClock
from splashdam.net.guard import Guard
from splashdam.net.steered_clock import SteeredClock

if TYPE_CHECKING:
    from splashdam.testing.faults.faults import Faults
    from splashdam.testing.faults.request_log import RequestLog

_log = logging.getLogger(__name__)

_EXIT_SECONDS = 5.0

T = TypeVar("T")
R = TypeVar("R")


class LoopThread(Generic[T]):
    """The thread and what it shares with its owner, whom it does not know: that one may be collected.

    Args:
        what: it is, for messages and the thread's name.
        path: where, likewise.
        opened: makes what runs, in the loop; it must not know the owner either.
        clock: the loop's.

    Attributes:
        pid: the process it belongs to.
    """

    def __init__(
        self,
        what: str,
        path: object,
        opened: Callable[[], AbstractAsyncContextManager[T]],
        clock: trio.abc.Clock,
    ) -> None:
        self.pid = os.getpid()
        self._what = what
        self._opened = opened
        self._clock = clock
        self._value: T | None = None
        self._failure: BaseException | None = None
        self._has_started = False
        self._gate = threading.Lock()  # opened once; of an Event, Ctrl-C on Python 3.14 could keep the lock
        self._gate.acquire()
        self._stop = trio.Event()
        self._is_stopping = False
        self._token: trio.lowlevel.TrioToken | None = None
        self._thread = threading.Thread(target=self._run, name=f"splashdam {what} {path}", daemon=True)

    @property
    def value(self) -> T:
        """What runs. It belongs to its own thread; what never changes may be asked from others."""
        if self._value is None:
            raise IllegalStateError(f"this {self._what} has stopped")
        return self._value

    def start(self) -> None:
        """Returns once it runs, or raises why it does not."""
        self._thread.start()
        self._gate.acquire()
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def stop(self, timeout_s: float | None) -> bool:
        """Asks it to end and waits for that; whether it has ended."""
        self._is_stopping = True  # first: without a token yet, the thread looks at this once it has one
        if self._token is not None:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._stop.set)
        if self._thread.ident is None:
            return True
        if threading.current_thread() is self._thread:  # the collector runs anywhere, here too
            return False
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def stop_at_exit(self) -> None:
        """As ``stop`` with little patience, and nothing at all in a forked child."""
        if self.pid == os.getpid():
            self.stop(_EXIT_SECONDS)

    def call_soon(self, function: Callable[[T | None], object]) -> None:
        """Calls a function in the loop, with what runs, or with None where that is about to end.

        Raises:
            IllegalStateError: it has stopped.
        """
        if self._token is None or self._value is None:
            raise IllegalStateError(f"this {self._what} has stopped")
        try:
            self._token.run_sync_soon(lambda: function(self._value))
        except trio.RunFinishedError:
            raise IllegalStateError(f"this {self._what} has stopped") from None

    def call(self, function: Callable[[T], Awaitable[R]]) -> R:
        """Calls a function in the loop with what runs, and waits for its end; from other threads.

        Raises:
            IllegalStateError: it has stopped, or stops meanwhile.
            What the function raises.
        """
        value = self.value
        try:
            return trio.from_thread.run(function, value, trio_token=self._token)
        except (trio.RunFinishedError, trio.Cancelled):
            raise IllegalStateError(f"this {self._what} has stopped") from None

    def _run(self) -> None:
        try:
            trio.run(self._main, clock=self._clock)
        except BaseException as error:  # whatever it is, the thread that starts it must hear of it
            if self._has_started:
                _log.exception("the embedded %s has failed", self._what)
            self._failure = error
        finally:
            self._value = None
            self._let_start_return()

    def _let_start_return(self) -> None:
        if not self._has_started:
            self._has_started = True
            self._gate.release()

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        if self._is_stopping:
            return
        async with self._opened() as value:
            self._value = value
            self._let_start_return()
            try:
                await self._stop.wait()
            finally:
                self._value = None


class RunsInThread(ABC, Generic[T]):
    """What is started and stopped, in a ``with`` block too, and runs in a `LoopThread` meanwhile.

    Args:
        clock: of the loop, and of all times in it; None: one that is steered by ``clock``.
    """

    _WHAT: str

    def __init__(self, clock: LoopClock | None) -> None:
        self._clock = SteeredClock() if clock is None else clock
        self._interception = Interception()
        self._running: LoopThread[T] | None = None
        self._finalizer: weakref.finalize[..., RunsInThread[T]] | None = None
        self._guard = Guard()  # a signal handler may call stop() while start() waits

    @cached_property
    def faults(self) -> Faults:
        """What is to go wrong; it outlives restarts."""
        from splashdam.testing.faults.faults import Faults

        return Faults(self._interception)

    @property
    def requests(self) -> RequestLog:
        """What the brokers were asked: ``requests.start()`` begins to log."""
        return self.faults.requests

    @property
    def clock(self) -> SteeredClock:
        """The brokers' clock, which can be set, stepped, frozen and advanced.

        Raises:
            IllegalStateError: another clock was given.
        """
        if not isinstance(self._clock, SteeredClock):
            raise IllegalStateError(f"nobody steers the {type(self._clock).__name__} of this {self._WHAT}")
        return self._clock

    @abstractmethod
    def _new_thread(self) -> LoopThread[T]:
        """What begins with the next start."""

    def _begin(self) -> None:
        if self._running is not None:  # before the lock, which a forked child may have got locked
            check_process(self._running.pid)
        self._guard.run(self._begin_alone)

    def _begin_alone(self) -> None:
        if self._running is not None:
            raise IllegalStateError(f"this {self._WHAT} runs already")
        running = self._running = self._new_thread()
        self._finalizer = weakref.finalize(self, running.stop_at_exit)
        try:
            running.start()
        except BaseException:  # Ctrl-C too: a thread whose start failed here must not stay behind
            self._forget(running)
            running.stop(0)
            raise

    def _end(self, timeout_s: float | None = None) -> None:
        running = self._running
        if running is None:
            return
        check_process(running.pid)
        if not running.stop(timeout_s):
            raise KafkaTimeoutError(f"the {self._WHAT} has not stopped within {timeout_s} s")
        self._forget(running)

    def _forget(self, running: LoopThread[T]) -> None:
        self._guard.run(self._forget_alone, running)

    def _forget_alone(self, running: LoopThread[T]) -> None:
        if self._running is running:
            self._running = None
            if self._finalizer is not None:
                self._finalizer.detach()

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._running is not None and self._running.pid == os.getpid():
            self._end()

    def _thread(self) -> LoopThread[T]:
        if self._running is None:
            raise IllegalStateError(f"this {self._WHAT} does not run; call start() or use it in a with block")
        check_process(self._running.pid)
        return self._running
