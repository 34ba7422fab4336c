"""``bootstrap_servers="embedded:DIR"``: a broker inside this process, shared by all producers that name DIR.

This is the one place where a producer meets the embedded broker.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl

from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.options import nearest_name
from splashdam.net.guard import Guard

if TYPE_CHECKING:
    from splashdam.embedded_broker.embedded import EmbeddedBroker
    from splashdam.net.connect import Connect

PREFIX = "embedded:"

ADDRESS = ("embedded", 9092)
"""Where the cluster seems to be; the connection is a pair of sockets and reaches the broker by any name."""


class LocalAddress(NamedTuple):
    """``embedded:DIR?port=N``, read.

    Attributes:
        directory: where the broker keeps its log, with links resolved, so that one directory has one
            broker.
        port: TCP port for other clients on 127.0.0.1, 0: a free one, None: no port.
    """

    directory: Path
    port: int | None


def local_address(bootstrap_servers: str | Iterable[str]) -> LocalAddress | None:
    """The directory and port of an embedded broker; None for addresses of a cluster.

    Raises:
        KafkaConfigurationError: it begins with ``embedded:`` and goes on wrongly, or is named beside others.
    """
    given: object = [bootstrap_servers] if isinstance(bootstrap_servers, str) else bootstrap_servers
    servers: list[Any] = list(given) if isinstance(given, Iterable) else []
    if not any(isinstance(server, str) and server.strip().startswith(PREFIX) for server in servers):
        return None
    if len(servers) > 1:
        raise _refusal(bootstrap_servers, "an embedded broker stands alone")
    path, mark, query = servers[0].strip().removeprefix(PREFIX).partition("?")
    if not path:
        raise _refusal(bootstrap_servers, "names no directory; try 'embedded:./data'")
    port = None
    for name, value in parse_qsl(query, keep_blank_values=True, strict_parsing=False):
        if name != "port":
            raise _refusal(bootstrap_servers, f"unknown setting {name!r}.{nearest_name(name, ['port'])}")
        if not (value.isascii() and value.isdigit() and int(value) < 65_536):
            raise _refusal(bootstrap_servers, f"port={value!r} is not a number from 0 to 65535")
        port = int(value)
    if mark and port is None:
        raise _refusal(bootstrap_servers, "nothing follows the question mark; try '?port=9092'")
    return LocalAddress(Path(os.path.realpath(os.path.expanduser(path))), port)


def _refusal(bootstrap_servers: object, problem: str) -> KafkaConfigurationError:
    return KafkaConfigurationError(f"bootstrap_servers={bootstrap_servers!r}: {problem}")


class _Shared:
    """A running broker and who uses it."""

    def __init__(self, broker: EmbeddedBroker, port: int | None) -> None:
        self.broker = broker
        self.port = port
        # Weak: a lease that Ctrl-C lost on its way to its holder keeps no broker running.
        self.leases: weakref.WeakSet[Lease] = weakref.WeakSet()


_guard = Guard()
_running: dict[Path, _Shared] = {}


class Lease:
    """One producer's share in the broker of a directory; the last one to release it stops the broker.

    Attributes:
        broker: the broker.
    """

    def __init__(self, address: LocalAddress) -> None:
        """Starts the broker of the directory, if it does not run yet.

        Raises:
            KafkaConfigurationError: it runs already, without the port that is asked for.
            IllegalStateError: another process uses the directory; its pid is named.
        """
        self._directory = address.directory
        self._pid = os.getpid()
        try:
            self.broker = _guard.run(self._take, address)
        except BaseException:  # Ctrl-C, too: nobody has this lease, and nobody would release it
            self.release()
            raise

    def connect(self) -> Connect:
        """Connections to the broker, without TCP."""
        return self.broker.connect_in_process()

    def release(self) -> None:
        """Gives the share back; once. Waits for the broker to stop if this was the last one."""
        if self._pid == os.getpid():
            _guard.run(self._leave)

    def _take(self, address: LocalAddress) -> EmbeddedBroker:
        shared = _running.get(address.directory)
        if shared is None:
            shared = _running[address.directory] = _Shared(_start(address), address.port)
        elif address.port is not None and address.port != shared.port:
            raise KafkaConfigurationError(
                f"the broker on {address.directory} runs already in this process, with"
                f" {'no port' if shared.port is None else f'port {shared.port}'}, not {address.port}"
            )
        shared.leases.add(self)
        return shared.broker

    def _leave(self) -> None:
        shared = _running.get(self._directory)
        if shared is None:
            return
        shared.leases.discard(self)
        if not shared.leases:  # also of one whom Ctrl-C struck between the start and its entry here
            del _running[self._directory]
            shared.broker.stop()


def _start(address: LocalAddress) -> EmbeddedBroker:
    from splashdam.embedded_broker.embedded import EmbeddedBroker
    from splashdam.net.clock import SystemClock

    broker = EmbeddedBroker(address.directory, port=address.port, clock=SystemClock())
    broker.start()
    return broker


def _forget_in_child() -> None:
    """The brokers are the parent's, and so may be whoever held the lock."""
    _guard.renew()
    _running.clear()


os.register_at_fork(after_in_child=_forget_in_child)
