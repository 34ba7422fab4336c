"""How a broker takes connections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import trio

from splashdam.model.errors import CannotListenError
from splashdam.net.connect import address_text

_LAST_PORT = 65_535


class Listen(Protocol):
    """Opens listeners on an address: TCP or memory."""

    async def __call__(self, host: str, port: int) -> Sequence[trio.abc.Listener[Any]]:
        """Listens; port 0 takes a free one, which `address_of` tells.

        Raises:
            CannotListenError: the address is taken or not ours.
        """
        ...


async def tcp_listen(host: str, port: int) -> Sequence[trio.abc.Listener[Any]]:
    """Listens by TCP on every address of ``host``, or of this machine where that is empty; with port 0 on the
    first only, so that there is one port.

    Raises:
        CannotListenError: the address is taken or not ours.
    """
    if not 0 <= port <= _LAST_PORT:  # the system would take the rest of a division
        raise CannotListenError(f"cannot listen on {address_text(host, port)}: a port is 0 to {_LAST_PORT}")
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
    """The host and port on which a listener of TCP or memory really listens."""
    if isinstance(listener, trio.SocketListener):
        host, port = listener.socket.getsockname()[:2]
        return str(host), int(port)
    address: tuple[str, int] = listener.address  # type: ignore[attr-defined]  # memory listeners have it
    return address
