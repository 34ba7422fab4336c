"""Writing the parts of a frame without copying them together, and at once where the stream takes them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import trio

from splashdam.model.values import Buffer

_MOST_PARTS = 512  # the system takes at most IOV_MAX, 1024 on Linux


@runtime_checkable
class TakesNow(Protocol):
    """A stream of ours that can take bytes without a task's waiting for it."""

    def send_now(self, parts: Sequence[Buffer]) -> int:
        """Takes what there is room for, and answers how many bytes that were."""
        ...


def send_now(stream: trio.abc.SendStream, parts: Sequence[Buffer]) -> int:
    """Gives a stream what it takes without waiting: one system call for a socket.

    Never raises: a broken or closed stream, or one that cannot take anything in this way, takes nothing, and
    whoever goes on with `send_parts` meets the error.

    Returns:
        how many bytes were taken, from the first on.
    """
    if isinstance(stream, trio.SocketStream):
        try:
            return os.writev(stream.socket.fileno(), parts[:_MOST_PARTS])
        except OSError:
            return 0
    return stream.send_now(parts) if isinstance(stream, TakesNow) else 0


def rest_of(parts: Sequence[Buffer], taken: int) -> list[memoryview]:
    """What is left of the parts after ``taken`` bytes, without a copy; empty if nothing is."""
    for number, part in enumerate(parts):
        if taken < len(part):
            return [memoryview(part)[taken:], *(memoryview(each) for each in parts[number + 1 :])]
        taken -= len(part)
    return []


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
            views = rest_of(views, sent)
    except OSError as error:
        if stream.socket.fileno() == -1:
            raise trio.ClosedResourceError("the stream was closed here") from None
        raise trio.BrokenResourceError(f"the socket is broken: {error}") from error
