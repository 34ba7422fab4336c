"""``bootstrap_servers="embedded:DIR"``: a broker in this process, shared by all producers that name DIR.

Only this module connects producers to the embedded broker.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl

from splashdam.model.errors import KafkaConfigurationError, WrongSettingError
from splashdam.model.options import nearest_name
from splashdam.net.reentrant_lock import ReentrantLock

if TYPE_CHECKING:
    from splashdam.embedded_broker.embedded import EmbeddedBroker
    from splashdam.net.connect import Connect

PREFIX = "embedded:"

ADDRESS = ("embedded", 9092)
"""Placeholder address of the embedded broker; the connection is a socket pair and ignores it."""


class LocalAddress(NamedTuple):
    """A parsed ``embedded:DIR?port=N``.

    Attributes:
        directory: the broker's data directory, with symlinks resolved, so that a directory has one broker.
        port: TCP port for other clients on 127.0.0.1, 0: a free one, None: no port.
    """

    directory: Path
    port: int | None


def local_address(bootstrap_servers: str | Iterable[str]) -> LocalAddress | None:
    """Parse the address of an embedded broker; return None for addresses of a cluster.

    Raises:
        WrongSettingError: the ``embedded:`` address is invalid, or not the only address.
    """
    given: object = [bootstrap_servers] if isinstance(bootstrap_servers, str) else bootstrap_servers
    servers: list[Any] = list(given) if isinstance(given, Iterable) else []
    if not any(isinstance(server, str) and server.strip().startswith(PREFIX) for server in servers):
        return None
    if len(servers) > 1:
        raise _refusal(bootstrap_servers, "an embedded broker cannot be combined with other addresses")
    path, mark, query = servers[0].strip().removeprefix(PREFIX).partition("?")
    if not path:
        raise _refusal(bootstrap_servers, "names no directory; try 'embedded:./data'")
    port = None
    for name, value in parse_qsl(query, keep_blank_values=True, strict_parsing=False):
        if name != "port":
            raise _refusal(bootstrap_servers, f"unknown setting {name!r}.{nearest_name(name, ['port'])}")
        if not (value.isascii() and value.isdigit() and len(value) <= 5 and int(value) < 65_536):
            raise _refusal(bootstrap_servers, f"port={value!r} is not a number from 0 to 65535")
        port = int(value)
    if mark and port is None:
        raise _refusal(bootstrap_servers, "nothing follows the question mark; try '?port=9092'")
    return LocalAddress(Path(os.path.realpath(os.path.expanduser(path))), port)


def _refusal(bootstrap_servers: object, problem: str) -> WrongSettingError:
    return WrongSettingError("bootstrap_servers", problem, given=repr(bootstrap_servers))


class _Shared:
    """A running broker and its leases."""

    def __init__(self, broker: EmbeddedBroker, port: int | None) -> None:
        self.broker = broker
        self.port = port
        # Weak, so that a lease that was lost to Ctrl-C does not keep the broker running.
        self.leases: weakref.WeakSet[Lease] = weakref.WeakSet()


_guard = ReentrantLock()
_running: dict[Path, _Shared] = {}


class Lease:
    """One producer's lease of a directory's broker; releasing the last one stops the broker.

    Attributes:
        broker: the broker.
    """

    def __init__(self, address: LocalAddress) -> None:
        """Start the broker of the directory, unless it runs already.

        Raises:
            KafkaConfigurationError: it runs already with another port.
            IllegalStateError: another process uses the directory; the message names its pid.
        """
        self._directory = address.directory
        self._pid = os.getpid()
        try:
            self.broker = _guard.run(self._take, address)
        except BaseException:  # also Ctrl-C: the caller never gets this lease and cannot release it
            self.release()
            raise

    def connect(self) -> Connect:
        """Connect in this process, without TCP."""
        return self.broker.connect_in_process()

    def release(self) -> None:
        """Release the lease, once. Waits for the broker to stop if it was the last one."""
        # In a forked child the broker is the parent's.
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
        if not shared.leases:  # also after Ctrl-C between the start and the registration
            del _running[self._directory]
            shared.broker.stop()


def _start(address: LocalAddress) -> EmbeddedBroker:
    from splashdam.embedded_broker.embedded import EmbeddedBroker
    from splashdam.net.clock import SystemClock

    broker = EmbeddedBroker(address.directory, port=address.port, clock=SystemClock())
    broker.start()
    return broker


def _forget_in_child() -> None:
    """Drop the parent's brokers, and a lock that a thread of the parent may hold."""
    _guard.renew()
    _running.clear()


os.register_at_fork(after_in_child=_forget_in_child)
