"""How a broker listens for connections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import trio

from splashdam.model.errors import CannotListenError
from splashdam.net.connect import address_text

_LAST_PORT = 65_535


class Listen(Protocol):
    """Opens listeners on an address, by TCP or in memory."""

    async def __call__(self, host: str, port: int) -> Sequence[trio.abc.Listener[Any]]:
        """Listen; port 0 takes a free port, which `address_of` returns.

        Raises:
            CannotListenError: the address is in use or not one of this machine.
        """
        ...


async def tcp_listen(host: str, port: int) -> Sequence[trio.abc.Listener[Any]]:
    """Listen by TCP on every address of ``host``, or of this machine if it is empty; with port 0 on the first
    address only, so that there is one port.

    Raises:
        CannotListenError: the address is in use or not one of this machine.
    """
    if not 0 <= port <= _LAST_PORT:  # the system would take it modulo 65536
        raise CannotListenError(f"cannot listen on {address_text(host, port)}: ports are 0 to {_LAST_PORT}")
    try:
        listeners = await trio.open_tcp_listeners(port, host=host or None)
    except OSError as error:
        raise CannotListenError(f"cannot listen on {address_text(host, port)}: {error}") from error
    if port == 0:
        for extra in listeners[1:]:
            await extra.aclose()
        del listeners[1:]
    return listeners


def address_of(listener: trio.abc.Listener[Any]) -> tuple[str, int]:
    """Return the host and port on which a TCP or memory listener listens."""
    if isinstance(listener, trio.SocketListener):
        host, port = listener.socket.getsockname()[:2]
        return str(host), int(port)
    address: tuple[str, int] = listener.address  # type: ignore[attr-defined]  # memory listeners have it
    return address
