"""How requests arrive: into one buffer that is kept, out as views of it."""

from __future__ import annotations

import os

import trio

from splashdam.embedded_broker.attention import Attention
from splashdam.model.errors import ProtocolError
from splashdam.net.reading import PATIENCE_US, Eagerness, read_soon
from splashdam.wire.framing import SIZE_BYTES, frame_size

_FIRST_BYTES = 64 * 1024
_KEPT_BYTES = 2 * 1024 * 1024  # room for a request of the size that producers make by default, and some more


class FrameReceiver:
    """Reads one client's frames.

    Bytes go from the socket to where they stay until the frame is answered. The buffer has 64 KiB at first
    and doubles each time a frame filled it and goes on, up to the size of that frame: a client that merely
    claims a large frame costs no more. A buffer above 2 MiB is given back once its frame is answered.

    Who asks anew within 0.1 ms of an answer, and is the only one to ask, is read straight: a turn of trio's
    loop and a wake-up cost more than the rest of a small Produce.

    Args:
        stream: where they come from.
        max_frame_bytes: largest frame accepted; the attribute may be changed between calls.
        attention: says when the loop may stand still for that.
    """

    def __init__(self, stream: trio.abc.ReceiveStream, max_frame_bytes: int, attention: Attention) -> None:
        self._stream = stream
        self._socket = stream.socket if type(stream) is trio.SocketStream else None
        self.max_frame_bytes = max_frame_bytes
        self._attention = attention
        self._mark = object()  # of this client, for ``attention``
        self._eagerness = Eagerness()
        self._straight_left = 0
        self._buffer = memoryview(bytearray(_FIRST_BYTES))
        self._start = 0  # of the frame under way
        self._end = 0  # of what has arrived

    async def receive(self) -> list[memoryview] | None:
        """The frames that the next bytes complete, or None at the end of the stream.

        They are parts of the buffer and valid until the next call.

        Raises:
            ProtocolError: a size is negative or above the limit.
            trio.BrokenResourceError: the connection is lost.
        """
        if self._start == self._end and len(self._buffer) <= _KEPT_BYTES:
            self._start = self._end = 0
        elif self._start or self._end == len(self._buffer):
            self._make_room()
        count = await self._receive_some()
        if not count:
            return None
        self._end += count
        return self._frames()

    def _frames(self) -> list[memoryview]:
        frames: list[memoryview] = []
        buffer, start, end = self._buffer, self._start, self._end
        while end - start >= SIZE_BYTES:
            try:
                stop = start + SIZE_BYTES + frame_size(buffer, start, self.max_frame_bytes)
            except ProtocolError:
                if not frames:
                    raise
                break  # what came before it is answered first
            if stop > end:
                break
            frames.append(buffer[start + SIZE_BYTES : stop])
            start = stop
        self._start = start
        return frames

    async def _receive_some(self) -> int:
        if self._socket is None:
            data = await self._stream.receive_some(len(self._buffer) - self._end)
            self._buffer[self._end : self._end + len(data)] = data
            return len(data)
        try:
            if self._straight_left and self._eagerness.is_due():
                self._straight_left -= 1
                soon = read_soon(self._socket.fileno(), self._buffer[self._end :], PATIENCE_US)
                self._eagerness.note(soon is not None)
                if soon is not None:
                    return soon
            return await self._read_in_turn(self._socket)
        except OSError as error:
            raise trio.BrokenResourceError(f"receiving: {error}") from error

    async def _read_in_turn(self, sock: trio.socket.SocketType) -> int:
        # Through trio's own recv_into each read would pass the scheduler a second time.
        while True:
            await trio.lowlevel.wait_readable(sock)
            try:
                count = os.readv(sock.fileno(), (self._buffer[self._end :],))
            except BlockingIOError:
                continue
            self._straight_left = self._attention.straight_reads(self._mark, trio.current_time())
            return count

    def _make_room(self) -> None:
        """Moves the frame under way to the front, of a buffer that fits it where this one does not."""
        rest = self._buffer[self._start : self._end]
        size = len(self._buffer)
        due = SIZE_BYTES + frame_size(rest, 0, self.max_frame_bytes) if len(rest) >= SIZE_BYTES else 0
        if self._start == 0:
            size = min(2 * size, due)
        elif size > _KEPT_BYTES and len(rest) <= _FIRST_BYTES // 2:
            size = _FIRST_BYTES
        if size != len(self._buffer):
            self._buffer = memoryview(bytearray(size))
        self._buffer[: len(rest)] = rest
        self._start, self._end = 0, len(rest)
