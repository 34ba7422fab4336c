"""Sends answers: small parts joined into one write, large slices of log files by ``sendfile``."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable
from typing import cast

import trio

from splashdam.model.values import Buffer
from splashdam.storage.files.log_file import FileSlice
from splashdam.wire.fields import Part
from splashdam.wire.primitives import UNCOPIED_BYTES, records_size

_STEP_BYTES = 1 << 20
_FULL_BYTES = 1 << 20


async def send_slice(stream: trio.abc.SendStream, piece: FileSlice, progressed: Callable[[], None]) -> None:
    """Send a slice of a log file: by ``sendfile`` if it has a descriptor and the stream is plain TCP.

    ``progressed`` is called after each step, so that a slow reader does not count as idle. A failure or a
    cancellation closes the stream: it may have left half an answer on the wire.

    Raises:
        trio.BrokenResourceError: the peer is gone, or the file is shorter than the slice says.
        KafkaStorageError: the file cannot be read.
    """
    descriptor = piece.fileno()
    if descriptor is not None and _is_plain_tcp(stream):
        try:
            await _send_file(cast("trio.SocketStream", stream), descriptor, piece, progressed)
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
    else:
        await _send_stepwise(stream, piece.read(), progressed)


async def _send_file(
    stream: trio.SocketStream, descriptor: int, piece: FileSlice, progressed: Callable[[], None]
) -> None:
    sock = stream.socket
    position, end = piece.position, piece.position + piece.size_bytes
    while position < end:
        try:
            sent = os.sendfile(sock.fileno(), descriptor, position, min(_STEP_BYTES, end - position))
        except BlockingIOError:
            await sock.wait_writable()
            continue
        except OSError as error:
            raise trio.BrokenResourceError(f"sendfile: {error}") from error
        if sent == 0:
            raise trio.BrokenResourceError(f"the log file ends {end - position} bytes too early")
        position += sent
        progressed()
        if position < end:  # even if the socket would take more: other clients have their turn
            await sock.wait_writable()


async def _send_stepwise(stream: trio.abc.SendStream, data: Buffer, progressed: Callable[[], None]) -> None:
    with memoryview(data) as view:
        for start in range(0, len(view), _STEP_BYTES):
            await stream.send_all(view[start : start + _STEP_BYTES])
            progressed()


def _is_plain_tcp(stream: trio.abc.SendStream) -> bool:
    return type(stream) is trio.SocketStream and stream.socket.family in (socket.AF_INET, socket.AF_INET6)


class Outbox:
    """Answers on their way to one client, in order."""

    def __init__(self, stream: trio.abc.SendStream, progressed: Callable[[], None]) -> None:
        self._stream = stream
        self._progressed = progressed
        self._socket = stream.socket if type(stream) is trio.SocketStream else None
        self._parts: list[Part] = []
        self._size_bytes = 0
        self._is_small = True  # whether all parts may be joined

    @property
    def is_full(self) -> bool:
        """Whether so many bytes wait that they should be sent before more are added."""
        return self._size_bytes >= _FULL_BYTES

    @property
    def is_empty(self) -> bool:
        """Whether no answer waits to be sent."""
        return not self._parts

    def add(self, frame: Iterable[Part]) -> None:
        for part in frame:
            self._parts.append(part)
            size = len(part) if type(part) is bytes else records_size(part)  # most are bytes: a call less
            self._size_bytes += size
            if size >= UNCOPIED_BYTES or not isinstance(part, bytes | bytearray | memoryview):
                self._is_small = False

    def write_now(self) -> bool:
        """Send what the socket takes at once, if all parts are small; return whether that is all.

        ``flush`` sends the rest.

        Raises:
            trio.BrokenResourceError: the peer is gone.
        """
        parts = self._parts
        if not parts:
            return True
        if not self._is_small or self._socket is None:
            return False
        # Only slices of files are no buffers, and with one `_is_small` is false. ``cast`` would be a call for
        # each answer, so the types are ignored here.
        data: Buffer = parts[0] if len(parts) == 1 else b"".join(parts)  # type: ignore[arg-type, assignment]
        sent = self._write(data)
        parts.clear()
        self._size_bytes = len(data) - sent
        if self._size_bytes:
            parts.append(memoryview(data)[sent:])
            return False
        return True

    async def flush(self) -> None:
        """Send all answers: small neighbours as one write, large parts without copying.

        Raises:
            trio.BrokenResourceError: the peer is gone.
            KafkaStorageError: a slice cannot be read; half an answer may have left.
        """
        if self._is_small:
            parts, self._parts, self._size_bytes = self._parts, [], 0
            await self._send_small(cast("list[Buffer]", parts))
            return
        small: list[Buffer] = []
        for part in self._parts:
            if not isinstance(part, bytes | bytearray | memoryview):
                await self._send_small(small)
                # The only parts that are not in memory are slices of logs, from fetches.
                await send_slice(self._stream, cast("FileSlice", part), self._progressed)
            elif len(part) >= UNCOPIED_BYTES:
                await self._send_small(small)
                await _send_stepwise(self._stream, part, self._progressed)
            else:
                small.append(part)
        await self._send_small(small)
        self.discard()

    async def _send_small(self, small: list[Buffer]) -> None:
        """Send small parts as one write, without the scheduler if the socket takes them at once.

        A turn of the scheduler costs more than the rest of a small Produce. Other tasks are not starved: the
        connection waits for its next request before it answers again.
        """
        if not small:
            return
        data = small[0] if len(small) == 1 else b"".join(small)
        small.clear()
        sent = self._write(data)
        if sent < len(data):
            await self._stream.send_all(memoryview(data)[sent:])
            self._progressed()

    def _write(self, data: Buffer) -> int:
        """Return the number of bytes that the socket takes at once."""
        if self._socket is None:
            return 0
        try:
            return os.write(self._socket.fileno(), data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise trio.BrokenResourceError(f"sending: {error}") from error

    def discard(self) -> None:
        """Drop all answers, and close their slices."""
        for part in self._parts:
            if not isinstance(part, bytes | bytearray | memoryview):
                cast("FileSlice", part).close()
        self._parts.clear()
        self._size_bytes = 0
        self._is_small = True
