"""Splits a byte stream into frames: an int32 size, then that many bytes."""

from __future__ import annotations

import struct

from splashdam.model.errors import ProtocolError
from splashdam.model.values import Buffer

_SIZE = struct.Struct(">i")
_SMALLEST_READ = 64 * 1024
_LARGEST_READ = 1024 * 1024


class FrameDecoder:
    """Collects bytes and hands out whole frames, without their size.

    A frame is a writable ``memoryview`` of memory of its own, so that a slice kept of it pins nothing else.
    Memory grows with the bytes that arrive, never with what a size claims.

    Args:
        max_frame_bytes: the largest frame accepted.
    """

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._pending = bytearray()
        self._size = -1  # of the frame under way, -1 while its size is not complete

    @property
    def wanted_bytes(self) -> int:
        """How much to read at once: the rest of the frame, within 64 KiB and 1 MiB."""
        return min(max(self._size - len(self._pending), _SMALLEST_READ), _LARGEST_READ)

    @property
    def is_between_frames(self) -> bool:
        """Whether the stream may end here."""
        return self._size < 0 and not self._pending

    def feed(self, data: Buffer) -> list[memoryview]:
        """Takes bytes and returns the frames they complete.

        Raises:
            ProtocolError: a size is negative or above the limit; the decoder is of no use afterwards.
        """
        frames: list[memoryview] = []
        view = memoryview(data)
        while view or self._size == len(self._pending):
            if self._size < 0:
                view = self._take(view, _SIZE.size)
                if len(self._pending) < _SIZE.size:
                    break
                self._size = self._checked(_SIZE.unpack(self._pending)[0])
                self._pending = bytearray()
                continue
            view = self._take(view, self._size)
            if len(self._pending) < self._size:
                break
            frames.append(memoryview(self._pending))
            self._pending, self._size = bytearray(), -1
        return frames

    def _take(self, view: memoryview, upto: int) -> memoryview:
        missing = upto - len(self._pending)
        self._pending += view[:missing]
        return view[missing:]

    def _checked(self, size: int) -> int:
        if size < 0:
            raise ProtocolError(f"frame size {size} is negative")
        if size > self._max_frame_bytes:
            raise ProtocolError(f"frame size {size} is above the limit of {self._max_frame_bytes} bytes")
        return size
