"""A broker for programs that are not written in trio: it runs in a daemon thread of its own.

Tests steer it from outside, whether it runs or not: its clock, and the interceptor of its requests.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import cached_property, partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar

import trio

from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.embedded_broker.configs.broker_settings import BrokerSettings
from splashdam.embedded_broker.configs.developer import developer_settings
from splashdam.embedded_broker.configs.security import check_port
from splashdam.embedded_broker.serving.dispatch import Interception
from splashdam.model.errors import IllegalStateError, KafkaConnectionError, KafkaError, KafkaTimeoutError
from splashdam.net.clock import LoopClock
from splashdam.net.connect import Connect, PairConnect, stream_of
from splashdam.net.reentrant_lock import ReentrantLock
from splashdam.net.steered_clock import SteeredClock
from splashdam.storage.files.disk import DiskFiles, Files

if TYPE_CHECKING:
    from splashdam.embedded_broker.security.authentication import TokenValidator
    from splashdam.embedded_broker.security.users import UserStore
    from splashdam.embedded_broker.telemetry.client_metrics import ClientTelemetry
    from splashdam.testing.faults.faults import Faults
    from splashdam.testing.faults.request_log import RequestLog

_log = logging.getLogger(__name__)

_EXIT_SECONDS = 5.0

T = TypeVar("T")
R = TypeVar("R")


class RunsInThread(ABC, Generic[T]):
    """Starts and stops a broker or cluster in a `LoopThread`; also a context manager.

    Args:
        clock: of the loop; None: one that the attribute ``clock`` steers.
    """

    _WHAT: str

    def __init__(self, clock: LoopClock | None) -> None:
        self._clock = SteeredClock() if clock is None else clock
        self._interception = Interception()
        self._running: LoopThread[T] | None = None
        self._finalizer: weakref.finalize[..., RunsInThread[T]] | None = None
        self._guard = ReentrantLock()  # a signal handler may call stop() during start()

    @cached_property
    def faults(self) -> Faults:
        """Faults to inject; they outlive restarts."""
        from splashdam.testing.faults.faults import Faults

        return Faults(self._interception)

    @property
    def requests(self) -> RequestLog:
        """The log of requests; ``requests.start()`` begins it."""
        return self.faults.requests

    @property
    def clock(self) -> SteeredClock:
        """The clock of the brokers, which can be set, stepped, frozen and advanced.

        Raises:
            IllegalStateError: another clock was given.
        """
        if not isinstance(self._clock, SteeredClock):
            raise IllegalStateError(
                f"the {type(self._clock).__name__} of this {self._WHAT} cannot be steered; leave clock out"
            )
        return self._clock

    @abstractmethod
    def _new_thread(self) -> LoopThread[T]:
        """Make the thread of the next start."""

    def _begin(self) -> None:
        if self._running is not None:  # before the lock: a forked child may have inherited it locked
            _check_process(self._running.pid)
        self._guard.run(self._begin_alone)

    def _begin_alone(self) -> None:
        if self._running is not None:
            raise IllegalStateError(f"this {self._WHAT} runs already")
        running = self._running = self._new_thread()
        self._finalizer = weakref.finalize(self, running.stop_at_exit)
        try:
            running.start()
        except BaseException:  # Ctrl-C, too: the thread must not stay behind
            self._forget(running)
            running.stop(0)
            raise

    def _end(self, timeout_s: float | None = None) -> None:
        running = self._running
        if running is None:
            return
        _check_process(running.pid)
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
        _check_process(self._running.pid)
        return self._running


class EmbeddedBroker(RunsInThread[Broker]):
    """A broker in a daemon thread, as a blocking context manager::

        with EmbeddedBroker("./data") as broker:
            KafkaProducer(bootstrap_servers=broker.bootstrap_servers)

    It ends with its ``with`` block, with ``stop()``, when it is collected, or at the latest with the
    interpreter, and closes its directory cleanly then. In a forked child every call raises
    ``IllegalStateError``.

    Args:
        path: data directory; made if missing. Kafka's own files are in it. None: the files are in memory, and
            live as long as this object.
        port: TCP port, 0 for a free one, None for no TCP at all: then only ``connect_in_process`` reaches it.
        host: address to listen on.
        config: settings by Kafka's dotted names, as in ``server.properties``: ``{"log.retention.hours": 1}``.
            The defaults are Kafka's, but for three that suit a single developer:
            ``group.initial.rebalance.delay.ms`` is 0, and ``offsets.topic.num.partitions`` and
            ``transaction.state.log.num.partitions`` are 4. Topics that exist keep their partitions.
            ``splashdam configs`` prints all settings.
        topics: names of topics that are created at each start, unless they exist, with their numbers of
            partitions; None: ``num.partitions``.
        token_validator: for OAUTHBEARER, see ``open_broker``.
        fsync: False: never sync, whatever the settings say. For tests: a power cut may lose all records; a
            killed process loses no more than usual.
        clock: for all times; by default one that the attribute ``clock`` steers.
            `splashdam.net.clock.SystemClock` is the machine's.
        console_port: port of a page that looks into the broker, on 127.0.0.1; 0 for a free one, None for no
            page. Its link is ``console_link`` and a line on standard error. Needs ``splashdam[console]``.
        console_principal: with whose permissions the page asks, as ``User:name``; for brokers with ACLs.
        settings: as ``BrokerSettings``, by Python name: ``log_retention_hours=1``.

    Raises:
        KafkaConfigurationError: a setting is unknown or illegal, a port is not one, or a package is missing.
    """

    _WHAT = "broker"

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        port: int | None = 0,
        *,
        host: str = "127.0.0.1",
        config: Mapping[str, Any] | None = None,
        topics: Mapping[str, int | None] | None = None,
        token_validator: TokenValidator | None = None,
        fsync: bool = True,
        clock: LoopClock | None = None,
        console_port: int | None = None,
        console_principal: str | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(clock)
        check_port(port)
        check_port(console_port)
        self._console = None if console_port is None else (console_port, console_principal)
        checked = developer_settings(settings, config)
        files = _memory_files() if path is None else None if fsync else DiskFiles(fsync=False)
        path = IN_MEMORY if path is None else path
        self._open = _Open(path, host, port, checked, token_validator, self._clock, files)
        self._topics = dict(topics or {})

    def start(self) -> None:
        """Start the broker; return once clients can connect.

        Raises:
            IllegalStateError: it runs already, or the directory is in use (the text names by which process).
            KafkaConnectionError: the address is taken.
            KafkaStorageError: the directory cannot be used.
        """
        self._begin()

    def stop(self, timeout_s: float | None = None) -> None:
        """Close every connection and the log; do nothing if the broker does not run.

        Raises:
            KafkaTimeoutError: it has not ended within ``timeout_s`` seconds; it goes on in its thread.
            IllegalStateError: this is a forked child.
        """
        self._end(timeout_s)

    def _new_thread(self) -> LoopThread[Broker]:
        opened = partial(_opened, self._open, self._interception, self._topics, self._console)
        return LoopThread(self._WHAT, self._open.path, opened, self._clock)

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` for clients.

        Raises:
            IllegalStateError: the broker does not run, has no TCP port, or this is a forked child.
        """
        return self._thread().value.bootstrap_servers

    def bootstrap_servers_of(self, listener: str) -> str:
        """``host:port`` for clients of one of several ``listeners``, by its name.

        Raises:
            IllegalStateError: as ``bootstrap_servers``, or there is no such listener.
        """
        return self._thread().value.bootstrap_servers_of(listener)

    @property
    def console_link(self) -> str:
        """The link of the page that looks into the broker; whoever opens it may also change things.

        Raises:
            IllegalStateError: the broker does not run, has no such page, or this is a forked child.
        """
        link = self._thread().value.console_link
        if link is None:
            raise IllegalStateError("this broker has no console; give it a console_port")
        return link

    @property
    def telemetry(self) -> ClientTelemetry:
        """The metrics that clients push (KIP-714), and the subscriptions to them; usable from any thread.

        Raises:
            IllegalStateError: the broker does not run, or this is a forked child.
        """
        return self._thread().value.telemetry

    @property
    def users(self) -> UserStore:
        """The users of SASL listeners; they can be changed whether the broker runs or not."""
        from splashdam.embedded_broker.security.users import UserStore

        return UserStore(self._open.files or DiskFiles(), os.path.abspath(self._open.path))

    def connect_in_process(self) -> Connect:
        """Return a ``Connect`` for clients in this process, in any trio loop: a socket pair for any address.

        Raises:
            IllegalStateError: the broker does not run, or this is a forked child.
        """
        return PairConnect(partial(_hand_over, self._thread()))


class _Open(NamedTuple):
    """Arguments of ``open_broker``."""

    path: str | os.PathLike[str]
    host: str
    port: int | None
    settings: BrokerSettings
    token_validator: TokenValidator | None
    clock: LoopClock
    files: Files | None


IN_MEMORY = "/memory"
"""Data directory of a broker whose files are in memory."""


def _memory_files() -> Files:
    from splashdam.storage.files.memory import MemoryFiles

    return MemoryFiles()


@asynccontextmanager
async def _opened(
    to_open: _Open,
    interception: Interception,
    topics: Mapping[str, int | None],
    console: tuple[int, str | None] | None,
) -> AsyncIterator[Broker]:
    async with open_broker(**to_open._asdict(), own_loop=True) as broker:
        broker.interception = interception
        broker.topics.create_missing(topics)
        if console is None:
            yield broker
            return
        from splashdam.console.console import ConsoleSettings
        from splashdam.embedded_broker.console import open_broker_console

        port, principal = console
        async with open_broker_console(broker, ConsoleSettings(port=port), principal=principal) as opened:
            broker.console_link = opened.link
            sys.stderr.write(f"console: {opened.link}\n")
            yield broker


def _hand_over(thread: LoopThread[Broker], end: socket.socket) -> None:
    """Pass the broker its end of an in-process connection; called in the connecting thread.

    Raises:
        KafkaConnectionError: the broker has stopped.
    """
    try:
        thread.call_soon(partial(_adopt, end))
    except IllegalStateError as error:
        raise KafkaConnectionError("the embedded broker has stopped") from error


def _adopt(end: socket.socket, broker: Broker | None) -> None:
    if broker is not None:
        with suppress(KafkaConnectionError):  # the broker is stopping: the client meets the end of the stream
            broker.server.adopt(stream_of(end))
            return
    end.close()


class LoopThread(Generic[T]):
    """A daemon thread with a trio loop. It holds no reference to its owner, so that this can be collected.

    Args:
        what: "broker" or "cluster", for messages and the thread's name.
        path: for the thread's name.
        opened: opens the broker or cluster, in the loop; it must not refer to the owner either.
        clock: of the loop.

    Attributes:
        pid: of the process that started it.
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
        self._gate = threading.Lock()  # no Event: on Python 3.14 Ctrl-C could leave its lock taken
        self._gate.acquire()
        self._stop = trio.Event()
        self._is_stopping = False
        self._token: trio.lowlevel.TrioToken | None = None
        self._thread = threading.Thread(target=self._run, name=f"splashdam {what} {path}", daemon=True)

    @property
    def value(self) -> T:
        """The broker or cluster. It belongs to the loop; other threads may read only what never changes."""
        if self._value is None:
            raise IllegalStateError(f"this {self._what} has stopped")
        return self._value

    def start(self) -> None:
        """Return once it runs, or raise the reason why it does not."""
        self._thread.start()
        self._gate.acquire()
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def stop(self, timeout_s: float | None) -> bool:
        """Ask it to end, wait, and return whether it has ended."""
        self._is_stopping = True  # first: a thread that has no token yet checks this later
        if self._token is not None:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._stop.set)
        if self._thread.ident is None:
            return True
        if threading.current_thread() is self._thread:  # called by the garbage collector, in this very thread
            return False
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def stop_at_exit(self) -> None:
        """As ``stop`` with a short timeout; do nothing in a forked child."""
        if self.pid == os.getpid():
            self.stop(_EXIT_SECONDS)

    def call_soon(self, function: Callable[[T | None], object]) -> None:
        """Call a function in the loop with the broker or cluster, or with None if it is about to end.

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
        """Call a function in the loop with the broker or cluster, and wait for it; from other threads.

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
        except BaseException as error:  # start() raises it in the other thread
            if self._has_started:
                is_explained = isinstance(error, KafkaError)  # a full disk needs its remedy, and no traceback
                told = None if is_explained else error
                _log.error("the embedded %s has failed: %s", self._what, error, exc_info=told)
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
                # Before the broker closes: calls from now on get an error, and do not wait for ever.
                self._value = None


def _check_process(pid: int) -> None:
    """Refuse calls in another process than the one that started the broker.

    Raises:
        IllegalStateError: this is a forked child.
    """
    if os.getpid() != pid:
        raise IllegalStateError(
            f"this broker runs in process {pid}, not in its forked child {os.getpid()};"
            " create the broker in the worker, on a directory of its own, or connect to the parent's by TCP"
        )
