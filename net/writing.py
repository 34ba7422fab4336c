"""Writing the parts of a frame without copying them together."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from splashdam.model.values import Buffer

_MOST_PARTS = 512  # the system takes at most IOV_MAX, 1024 on Linux


async def send_parts(stream: trio.abc.SendStream, parts: Sequence[Buffer]) -> None:
    """Writes all parts in order: ``sendmsg`` of many at once to a socket, ``send_all`` per part elsewhere.

    Nothing guards against two writers at once: the caller does. After a cancel an unknown number of bytes has
    been written, so the stream must be closed.

    Raises:
        trio.BrokenResourceError: the peer has gone.
        trio.ClosedResourceError: the stream was closed here.
    """
    if len(parts) > 1 and isinstance(stream, trio.SocketStream):
        await _send_gathered(stream, parts)
        return
    for part in parts:
        await stream.send_all(part)


async def _send_gathered(stream: trio.SocketStream, parts: Sequence[Buffer]) -> None:
    views = [memoryview(part) for part in parts]
    try:
        while views:
            sent = await stream.socket.sendmsg(views[:_MOST_PARTS])
            views = _rest(views, sent)
    except OSError as error:
        if stream.socket.fileno() == -1:
            raise trio.ClosedResourceError("the stream was closed here") from None
        raise trio.BrokenResourceError(f"the socket is broken: {error}") from error


def _rest(views: list[memoryview], sent: int) -> list[memoryview]:
    """What is left of the views after ``sent`` bytes."""
    for number, view in enumerate(views):
        if sent < len(view):
            return [view[sent:], *views[number + 1 :]]
        sent -= len(view)
    return []
