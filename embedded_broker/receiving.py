"""How requests arrive: bytes into a buffer that is kept, whole frames out."""

from __future__ import annotations

import trio

from splashdam.model.values import Buffer
from splashdam.wire.framing import FrameDecoder

_FIRST_READ = 64 * 1024


class FrameReceiver:
    """Reads one client's frames.

    How much is read at once, and so the memory held, begins at 64 KiB and doubles each time it was filled: a
    client that merely claims a large frame costs no more.

    Args:
        stream: where they come from.
        max_frame_bytes: largest frame accepted.
    """

    def __init__(self, stream: trio.abc.ReceiveStream, max_frame_bytes: int) -> None:
        self._stream = stream
        self._socket = stream.socket if type(stream) is trio.SocketStream else None
        self._decoder = FrameDecoder(max_frame_bytes)
        self._buffer = bytearray()
        self._step_bytes = _FIRST_READ

    async def receive(self) -> list[memoryview] | None:
        """The frames that the next bytes complete, or None at the end of the stream.

        Raises:
            ProtocolError: a size is negative or above the limit.
            trio.BrokenResourceError: the connection is lost.
        """
        data = await self._receive_some()
        return self._decoder.feed(data) if data else None

    async def _receive_some(self) -> Buffer:
        wanted_bytes = min(self._decoder.wanted_bytes, self._step_bytes)
        if self._socket is None:
            data = await self._stream.receive_some(wanted_bytes)
            self._grow(len(data))
            return data
        if len(self._buffer) < wanted_bytes:
            self._buffer = bytearray(wanted_bytes)
        try:
            count = await self._socket.recv_into(self._buffer, wanted_bytes)
        except OSError as error:
            raise trio.BrokenResourceError(f"receiving: {error}") from error
        self._grow(count)
        return memoryview(self._buffer)[:count]

    def _grow(self, count: int) -> None:
        if count == self._step_bytes:
            self._step_bytes *= 2
