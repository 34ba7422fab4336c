"""How answers leave: small parts joined into one write, large slices of a log file by ``sendfile``."""

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
    """Sends one slice of a log file: by ``sendfile`` where it has a descriptor and the stream is plain TCP.

    ``progressed`` is called after each step, so that a slow reader is told from a dead one. A failure or a
    cancellation after the first byte leaves half an answer on the wire, so it closes the stream.

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
        if position < end:  # also where the socket would take more: others want their turn
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
        self._is_small = True  # whether nothing in it must leave by itself

    @property
    def is_full(self) -> bool:
        """Whether so much is owed that it should leave before more is added."""
        return self._size_bytes >= _FULL_BYTES

    @property
    def is_empty(self) -> bool:
        """Whether nothing is owed."""
        return not self._parts

    def add(self, frame: Iterable[Part]) -> None:
        """Owes one more answer."""
        for part in frame:
            self._parts.append(part)
            size = records_size(part)
            self._size_bytes += size
            if size >= UNCOPIED_BYTES or not isinstance(part, bytes | bytearray | memoryview):
                self._is_small = False

    async def flush(self) -> None:
        """Sends everything owed: small neighbours as one write, large parts uncopied.

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
                # The only parts that are not in memory are those that fetch took from a log.
                await send_slice(self._stream, cast("FileSlice", part), self._progressed)
            elif len(part) >= UNCOPIED_BYTES:
                await self._send_small(small)
                await _send_stepwise(self._stream, part, self._progressed)
            else:
                small.append(part)
        await self._send_small(small)
        self.discard()

    async def _send_small(self, small: list[Buffer]) -> None:
        """Sends small parts as one write, past the scheduler where the socket takes them at once.

        That turn costs more than the rest of a small produce. The connection reads before it answers again,
        so other tasks are not kept waiting.
        """
        if not small:
            return
        data = small[0] if len(small) == 1 else b"".join(small)
        small.clear()
        sent = 0
        if self._socket is not None:
            try:
                sent = os.write(self._socket.fileno(), data)
            except BlockingIOError:
                pass
            except OSError as error:
                raise trio.BrokenResourceError(f"sending: {error}") from error
        if sent < len(data):
            await self._stream.send_all(memoryview(data)[sent:])
            self._progressed()

    def discard(self) -> None:
        """Forgets everything owed and gives back the slices."""
        for part in self._parts:
            if not isinstance(part, bytes | bytearray | memoryview):
                cast("FileSlice", part).close()
        self._parts.clear()
        self._size_bytes = 0
        self._is_small = True
