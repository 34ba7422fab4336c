"""Split a byte stream into frames: an int32 size, then that many bytes."""

from __future__ import annotations

import struct
from typing import NoReturn

from splashdam.model.errors import ForeignBytesError, ProtocolError, SettingText
from splashdam.model.values import Buffer

SIZE_BYTES = 4
_SIZE = struct.Struct(">i")
_SMALLEST_FRAME_BYTES = 4  # a response has a correlation id, a request more
_SMALLEST_READ = 64 * 1024
_LARGEST_READ = 1024 * 1024
_TLS_RECORDS = (0x1603, 0x1503)
"""The first two bytes of a TLS handshake and of a TLS alert."""


def frame_size(data: Buffer, position: int, max_frame_bytes: int) -> int:
    """Return the frame size in the four bytes at ``position``.

    Raises:
        ProtocolError: the size is too small for any message, or above the limit.
    """
    (size,) = _SIZE.unpack_from(data, position)
    if not _SMALLEST_FRAME_BYTES <= size <= max_frame_bytes:
        _refuse(size, max_frame_bytes)
    return int(size)


def _refuse(size: int, max_frame_bytes: int) -> NoReturn:
    if size < 0:
        raise ProtocolError(f"frame size {size} is negative")
    if size < _SMALLEST_FRAME_BYTES:
        raise ProtocolError(f"frame size {size} is too small for any message")
    if size >> 16 in _TLS_RECORDS:
        foreign = ForeignBytesError(
            SettingText("the peer speaks TLS, and this side does not: check {0}", "security_protocol")
        )
        foreign.is_tls = True
        foreign.speaks = "speaks TLS"
        foreign.advice = SettingText("set {0} to SSL or SASL_SSL", "security_protocol")
        raise foreign
    text = _SIZE.pack(size)
    if size > max_frame_bytes and text.isascii() and text.decode().isprintable():
        foreign = ForeignBytesError(f"the peer does not speak Kafka's protocol: it sent {text.decode()!r}…")
        foreign.speaks = f"does not speak Kafka's protocol: it sent {text.decode()!r}…"
        foreign.advice = "check host and port"
        raise foreign
    raise ProtocolError(f"frame size {size} is above the limit of {max_frame_bytes} bytes")


def framed(data: bytes) -> bytes:
    """Return a frame: the size, then the bytes."""
    return _SIZE.pack(len(data)) + data


class FrameDecoder:
    """Collects bytes and returns whole frames, without their size.

    A frame is a writable ``memoryview`` of its own memory, so a slice that is kept does not keep other frames
    alive. Memory grows with the bytes that arrive, never with the size that a frame claims.

    Args:
        max_frame_bytes: the largest frame accepted.
    """

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._pending = bytearray()
        self._size = -1  # of the incomplete frame, -1 before its size is complete

    @property
    def wanted_bytes(self) -> int:
        """How much to read next: the rest of the frame, at least 64 KiB and at most 1 MiB."""
        return min(max(self._size - len(self._pending), _SMALLEST_READ), _LARGEST_READ)

    def feed(self, data: Buffer) -> list[memoryview]:
        """Take bytes and return the frames that they complete.

        Raises:
            ProtocolError: a size is too small or too large; the decoder cannot be used afterwards.
        """
        between_frames = self._size < 0 and not self._pending and len(data) >= SIZE_BYTES
        if between_frames and frame_size(data, 0, self._max_frame_bytes) == len(data) - SIZE_BYTES:
            return [memoryview(bytearray(data))[SIZE_BYTES:]]  # the usual read: one whole frame
        frames: list[memoryview] = []
        view = memoryview(data)
        while view:
            due = SIZE_BYTES if self._size < 0 else self._size
            missing = due - len(self._pending)
            self._pending += view[:missing]
            view = view[missing:]
            if len(self._pending) < due:
                break
            whole, self._pending = self._pending, bytearray()
            if self._size < 0:
                self._size = frame_size(whole, 0, self._max_frame_bytes)
            else:
                frames.append(memoryview(whole))
                self._size = -1
        return frames
