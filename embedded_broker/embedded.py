"""A broker for programs that are not written in trio: it runs in a thread of its own."""

from __future__ import annotations

import logging
import os
import socket
import threading
import weakref
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import trio

from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.embedded_broker.fork_guard import check_process
from splashdam.embedded_broker.interception import Interception
from splashdam.embedded_broker.settings import BrokerSettings
from splashdam.embedded_broker.storage.files import DiskFiles, Files
from splashdam.embedded_broker.storage.unsynced_files import UnsyncedFiles
from splashdam.model.errors import IllegalStateError, KafkaConnectionError, KafkaTimeoutError
from splashdam.net.clock import SystemClock
from splashdam.net.connect import Connect
from splashdam.net.pair import PairConnect, stream_of

if TYPE_CHECKING:
    from splashdam.embedded_broker.security.authority import TokenValidator
    from splashdam.embedded_broker.security.users import UserStore
    from splashdam.embedded_broker.telemetry import ClientTelemetry

_log = logging.getLogger(__name__)

_EXIT_SECONDS = 5.0


class _Open(NamedTuple):
    """What ``open_broker`` is given."""

    path: str | os.PathLike[str]
    host: str
    port: int | None
    settings: BrokerSettings
    token_validator: TokenValidator | None
    clock: SystemClock
    files: Files | None


class EmbeddedBroker:
    """A broker in a daemon thread, as a blocking context manager::

        with EmbeddedBroker("./data") as broker:
            KafkaProducer(bootstrap_servers=broker.bootstrap_servers)

    It ends with its ``with`` block, with ``stop()``, when it is collected, or at the latest with the
    interpreter, and closes its directory cleanly then. In a forked child every call raises
    ``IllegalStateError``.

    Args:
        path: data directory; made if missing. Kafka's own files are in it.
        port: TCP port, 0 for a free one, None for no TCP at all: then ``connect_in_process`` alone reaches
            it.
        host: address to listen on.
        config: settings by Kafka's dotted names, as in ``server.properties``: ``{"log.retention.hours": 1}``.
        token_validator: for OAUTHBEARER, see ``open_broker``.
        fsync: False never waits for the disk, whatever the settings say: for tests. A power cut may then cost
            everything; a killed process loses no more than usual.
        settings: as ``BrokerSettings``, by Python name: ``log_retention_hours=1``.

    Raises:
        KafkaConfigurationError: a setting is unknown or illegal.
    """

    _CLOCK: type[SystemClock] = SystemClock

    def __init__(
        self,
        path: str | os.PathLike[str],
        port: int | None = 0,
        *,
        host: str = "127.0.0.1",
        config: Mapping[str, Any] | None = None,
        token_validator: TokenValidator | None = None,
        fsync: bool = True,
        **settings: Any,
    ) -> None:
        checked = BrokerSettings.from_options(settings, config)
        self._interception = Interception()
        self._clock = self._CLOCK()
        files = None if fsync else UnsyncedFiles()
        self._open = _Open(path, host, port, checked, token_validator, self._clock, files)
        self._running: _BrokerThread | None = None
        self._finalizer: weakref.finalize[..., EmbeddedBroker] | None = None
        self._lock = threading.RLock()  # a signal handler may call stop() while start() waits

    def start(self) -> None:
        """Starts the broker; returns once clients can connect.

        Raises:
            IllegalStateError: it runs already, or the directory is in use (the text names by which process).
            KafkaConnectionError: the address is taken.
            KafkaStorageError: the directory cannot be used.
        """
        if self._running is not None:  # before the lock, which a forked child may have got locked
            check_process(self._running.pid)
        with self._lock:
            if self._running is not None:
                raise IllegalStateError("this broker runs already")
            running = self._running = _BrokerThread(self._open, self._interception)
            self._finalizer = weakref.finalize(self, running.stop_at_exit)
            try:
                running.start()
            except BaseException:  # Ctrl-C too: what nobody knows to run must not go on running
                self._forget(running)
                running.stop(0)
                raise

    def stop(self, timeout_s: float | None = None) -> None:
        """Closes every connection and the log; a broker that does not run is left alone.

        Raises:
            KafkaTimeoutError: it has not ended within ``timeout_s`` seconds; it goes on ending.
            IllegalStateError: this is a forked child.
        """
        running = self._running
        if running is None:
            return
        check_process(running.pid)
        if not running.stop(timeout_s):
            raise KafkaTimeoutError(f"the broker has not stopped within {timeout_s} s")
        self._forget(running)

    def _forget(self, running: _BrokerThread) -> None:
        with self._lock:
            if self._running is running:
                self._running = None
                if self._finalizer is not None:
                    self._finalizer.detach()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._running is not None and self._running.pid == os.getpid():
            self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` for clients.

        Raises:
            IllegalStateError: the broker does not run, has no TCP port, or this is a forked child.
        """
        return self._thread().broker.bootstrap_servers

    def bootstrap_servers_of(self, listener: str) -> str:
        """``host:port`` for clients of one of several ``listeners``, by its name.

        Raises:
            IllegalStateError: as ``bootstrap_servers``, or there is no such listener.
        """
        return self._thread().broker.bootstrap_servers_of(listener)

    @property
    def telemetry(self) -> ClientTelemetry:
        """Asks clients for their metrics (KIP-714), and keeps what they push; from any thread.

        Raises:
            IllegalStateError: the broker does not run, or this is a forked child.
        """
        return self._thread().broker.telemetry

    @property
    def users(self) -> UserStore:
        """Who may come in by listeners that ask; it can be changed whether the broker runs or not."""
        from splashdam.embedded_broker.security.users import UserStore

        return UserStore(DiskFiles(), os.path.abspath(self._open.path))

    def connect_in_process(self) -> Connect:
        """A ``Connect`` for clients in this process, in any trio loop: a socket pair, whatever address is
        named.

        Raises:
            IllegalStateError: the broker does not run, or this is a forked child.
        """
        return PairConnect(self._thread().hand_over)

    def _thread(self) -> _BrokerThread:
        if self._running is None:
            raise IllegalStateError("this broker does not run; call start() or use it in a with block")
        check_process(self._running.pid)
        return self._running


class _BrokerThread:
    """The thread and what it shares with its owner, whom it does not know: that one may be collected."""

    def __init__(self, to_open: _Open, interception: Interception) -> None:
        self.pid = os.getpid()
        self._to_open = to_open
        self._interception = interception
        self._broker: Broker | None = None
        self._failure: BaseException | None = None
        self._started = threading.Event()
        self._stop = trio.Event()
        self._is_stopping = False
        self._token: trio.lowlevel.TrioToken | None = None
        self._thread = threading.Thread(
            target=self._run, name=f"splashdam broker {to_open.path}", daemon=True
        )

    @property
    def broker(self) -> Broker:
        """It belongs to its own thread; what never changes may be asked from others."""
        if self._broker is None:
            raise IllegalStateError("this broker has stopped")
        return self._broker

    def start(self) -> None:
        """Returns once clients can connect, or raises why they cannot."""
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def stop(self, timeout_s: float | None) -> bool:
        """Asks the broker to end and waits for it; whether it has ended."""
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

    def hand_over(self, end: socket.socket) -> None:
        """Gives the broker its end of an in-process connection; runs in the connecting thread.

        Raises:
            KafkaConnectionError: the broker has stopped.
        """
        if self._token is None or self._broker is None:
            raise KafkaConnectionError("the embedded broker has stopped")
        try:
            self._token.run_sync_soon(self._adopt, end)
        except trio.RunFinishedError:
            raise KafkaConnectionError("the embedded broker has stopped") from None

    def _adopt(self, end: socket.socket) -> None:
        if self._broker is None:
            end.close()
        else:
            self._broker.adopt(stream_of(end))

    def _run(self) -> None:
        try:
            trio.run(self._main, clock=self._to_open.clock)
        except BaseException as error:  # whatever it is, the thread that starts the broker must hear of it
            if self._started.is_set():
                _log.exception("the embedded broker has failed")
            self._failure = error
        finally:
            self._broker = None
            self._started.set()

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        if self._is_stopping:
            return
        async with open_broker(**self._to_open._asdict(), own_loop=True) as broker:
            broker.interception = self._interception
            self._broker = broker
            self._started.set()
            try:
                await self._stop.wait()
            finally:
                self._broker = None
