"""A broker for programs that are not written in trio: it runs in a thread of its own."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.embedded_broker.configs.broker_settings import BrokerSettings
from splashdam.embedded_broker.configs.security import check_port
from splashdam.embedded_broker.loop_thread import LoopThread, RunsInThread
from splashdam.embedded_broker.serving.interception import Interception
from splashdam.model.errors import IllegalStateError, KafkaConnectionError
from splashdam.net.clock import LoopClock
from splashdam.net.connect import Connect, PairConnect, stream_of
from splashdam.storage.files.disk import DiskFiles, Files

if TYPE_CHECKING:
    from splashdam.embedded_broker.security.authentication import TokenValidator
    from splashdam.embedded_broker.security.users import UserStore
    from splashdam.embedded_broker.telemetry.client_metrics import ClientTelemetry


class _Open(NamedTuple):
    """What ``open_broker`` is given."""

    path: str | os.PathLike[str]
    host: str
    port: int | None
    settings: BrokerSettings
    token_validator: TokenValidator | None
    clock: LoopClock
    files: Files | None


class EmbeddedBroker(RunsInThread[Broker]):
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
        clock: what time it is; by default a clock that the attribute ``clock`` steers.
            `splashdam.net.clock.SystemClock` is the machine's.
        settings: as ``BrokerSettings``, by Python name: ``log_retention_hours=1``.

    Raises:
        KafkaConfigurationError: a setting is unknown or illegal, or the port is none.
    """

    _WHAT = "broker"

    def __init__(
        self,
        path: str | os.PathLike[str],
        port: int | None = 0,
        *,
        host: str = "127.0.0.1",
        config: Mapping[str, Any] | None = None,
        token_validator: TokenValidator | None = None,
        fsync: bool = True,
        clock: LoopClock | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(clock)
        check_port(port)
        checked = BrokerSettings.from_options(settings, config)
        files = None if fsync else DiskFiles(fsync=False)
        self._open = _Open(path, host, port, checked, token_validator, self._clock, files)

    def start(self) -> None:
        """Starts the broker; returns once clients can connect.

        Raises:
            IllegalStateError: it runs already, or the directory is in use (the text names by which process).
            KafkaConnectionError: the address is taken.
            KafkaStorageError: the directory cannot be used.
        """
        self._begin()

    def stop(self, timeout_s: float | None = None) -> None:
        """Closes every connection and the log; a broker that does not run is left alone.

        Raises:
            KafkaTimeoutError: it has not ended within ``timeout_s`` seconds; it goes on ending.
            IllegalStateError: this is a forked child.
        """
        self._end(timeout_s)

    def _new_thread(self) -> LoopThread[Broker]:
        opened = partial(_opened, self._open, self._interception)
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
    def telemetry(self) -> ClientTelemetry:
        """Asks clients for their metrics (KIP-714), and keeps what they push; from any thread.

        Raises:
            IllegalStateError: the broker does not run, or this is a forked child.
        """
        return self._thread().value.telemetry

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
        return PairConnect(partial(_hand_over, self._thread()))


@asynccontextmanager
async def _opened(to_open: _Open, interception: Interception) -> AsyncIterator[Broker]:
    async with open_broker(**to_open._asdict(), own_loop=True) as broker:
        broker.interception = interception
        yield broker


def _hand_over(thread: LoopThread[Broker], end: socket.socket) -> None:
    """Gives the broker its end of an in-process connection; runs in the connecting thread.

    Raises:
        KafkaConnectionError: the broker has stopped.
    """
    try:
        thread.call_soon(partial(_adopt, end))
    except IllegalStateError as error:
        raise KafkaConnectionError("the embedded broker has stopped") from error


def _adopt(end: socket.socket, broker: Broker | None) -> None:
    if broker is None:
        end.close()
    else:
        broker.adopt(stream_of(end))
