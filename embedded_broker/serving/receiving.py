"""How requests arrive: into one buffer that is kept, out as views of it; and when the loop polls for them.

A client that sends its next request within 0.1 ms of an answer, and is the only one to send any, is polled:
a turn of trio's loop and a wake-up cost more than the rest of a small Produce.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import cast

import trio

from splashdam.embedded_broker.execution.answers import CloseConnectionError
from splashdam.embedded_broker.serving.request_memory import (
    PATIENCE_SECONDS,
    SLOWEST_BYTES_PER_SECOND,
    RequestMemory,
)
from splashdam.embedded_broker.topics.parking import FetchParking
from splashdam.model.errors import ProtocolError
from splashdam.model.options import MAX_LONG
from splashdam.net.connection.streams import PATIENCE_US, SPIN_US, Eagerness, read_soon
from splashdam.wire.framing import SIZE_BYTES, frame_size

_FIRST_BYTES = 64 * 1024
_KEPT_BYTES = 2 * 1024 * 1024  # room for a request of the size that producers make by default, and some more

_FRAME_SECONDS = 30.0
"""A large request may take this long to arrive, and a second more for each 16 KiB."""

SOLE_CLIENT_SECONDS = 0.1
"""No other client may have been heard for so long before the loop polls."""
POLLED_READS = 16
"""After so many reads past the scheduler, about a millisecond, other clients and tasks have their turn."""


class BusyPolling:
    """Whether the loop may poll the socket of one client, and so keep all other clients waiting.

    Args:
        parking: fetches that wait; what wakes them needs the loop at once.
        own_loop: nothing but the broker runs in its trio loop.
    """

    def __init__(self, parking: FetchParking, own_loop: bool) -> None:
        self._parking = parking
        self._own_loop = own_loop
        self._client: object = None  # the client that was read last
        self._since = 0.0  # when it became the only one

    def reads_granted(self, client: object, now: float) -> int:
        """Return for how many of this client's next reads the loop may poll.

        Args:
            client: identifies the client that was read just now, through the scheduler; it is kept.
            now: in seconds, of any clock.
        """
        if client is not self._client:
            self._client = client
            self._since = now
            return 0
        if not self._own_loop or self._parking.parked or now - self._since < SOLE_CLIENT_SECONDS:
            return 0
        return POLLED_READS


class FrameReceiver:
    """Reads one client's frames.

    Bytes are read into the buffer in which they stay until their frame is answered. It has 64 KiB at first,
    and doubles each time a frame has filled it, up to the size of that frame: a client that only claims a
    large frame costs no more. A buffer above 2 MiB is given back once its frame is answered. Bytes beyond
    64 KiB are taken from ``memory``, which all clients share, so such a frame has a time limit: 30 s, and a
    second more for each 16 KiB.

    Args:
        stream: the connection.
        max_frame_bytes: largest frame accepted; the attribute may be changed between calls.
        busy_polling: says when the loop may poll the socket.
        memory: for large frames; without it there is no limit.
        party: returns the unit of fairness in ``memory`` that the client belongs to now.

    Attributes:
        party: the same, when the present frame became large.
        request_bytes: size of that frame.
        credit_until: the client may be silent until then, having sent 16 KiB a second; 5 s ahead at most.
        is_alone: no other client has sent anything for some time, so the loop may poll this one.
        read_at: when something was read last, on trio's clock.
    """

    def __init__(
        self,
        stream: trio.abc.ReceiveStream,
        max_frame_bytes: int,
        busy_polling: BusyPolling,
        memory: RequestMemory | None = None,
        party: Callable[[], Hashable] = lambda: None,
    ) -> None:
        self._stream = stream
        self._socket = stream.socket if type(stream) is trio.SocketStream else None
        self.max_frame_bytes = max_frame_bytes
        self._busy_polling = busy_polling
        self._now = trio.lowlevel.current_clock().current_time  # two calls less than `trio.current_time`
        self._mark = object()  # this client, for ``busy_polling``
        self._eagerness = Eagerness()
        self._polls_left = 0
        self.is_alone = False
        self.read_at = float("-inf")
        self._buffer = memoryview(bytearray(_FIRST_BYTES))
        self._start = 0  # of the present frame
        self._end = 0  # of the bytes that have arrived
        self._memory = memory or RequestMemory(MAX_LONG)
        self.party: Hashable = None
        self.request_bytes = 0
        self.credit_until = 0.0
        self._find_party = party
        self._given_up = ""
        self._scope: trio.CancelScope | None = None
        self._has_grown = False
        self._began_at: float | None = None
        """When the present frame first outgrew the buffer that every client has."""

    @property
    def is_empty(self) -> bool:
        """Whether no part of a further frame has arrived."""
        return self._start == self._end

    @property
    def may_read_now(self) -> bool:
        """Whether ``read_now`` may be called: no part of a frame has arrived, and none was ever large."""
        return self._start == self._end and not self._has_grown

    def read_now(self) -> int:
        """Read what has arrived, for ``next_frame``; return the number of bytes, 0 at the end of the stream.

        Raises:
            BlockingIOError: nothing has arrived.
            trio.BrokenResourceError: the connection is lost.
        """
        self._start = self._end = 0
        sock = cast("trio.socket.SocketType", self._socket)
        try:
            self._end = self._read(sock)
        except BlockingIOError:
            raise
        except OSError as error:
            raise _lost(error) from error
        return self._end

    @property
    def has_filled_buffer(self) -> bool:
        """Whether more bytes may have arrived than there was room for."""
        return self._end == len(self._buffer)

    def next_frame(self) -> memoryview | None:
        """Return the next frame that has been read; None if it is not whole yet.

        Raises:
            ProtocolError: its size is negative or above the limit.
        """
        start = self._start
        if self._end - start < SIZE_BYTES:
            return None
        stop = start + SIZE_BYTES + frame_size(self._buffer, start, self.max_frame_bytes)
        if stop > self._end:
            return None
        self._start = stop
        return self._buffer[start + SIZE_BYTES : stop]

    def next_good_frame(self) -> memoryview | None:
        """As ``next_frame``, but return None for a size that it refuses: ``receive`` meets that again."""
        try:
            return self.next_frame()
        except ProtocolError:
            return None

    def put_back(self, frame: memoryview) -> None:
        """Leave the last frame of ``next_frame`` to ``receive``."""
        self._start -= SIZE_BYTES + len(frame)

    async def receive(self, *, has_read: bool = False) -> list[memoryview] | None:
        """Return the frames that the next bytes complete, or None at the end of the stream.

        They are views of the buffer, valid until the next call.

        Args:
            has_read: ``read_now`` has read bytes already.

        Raises:
            ProtocolError: a size is negative or above the limit.
            CloseConnectionError: a frame takes too long to arrive.
            trio.BrokenResourceError: the connection is lost.
        """
        if has_read:
            return self._frames()
        if self._start == self._end and len(self._buffer) <= _KEPT_BYTES:
            self._start = self._end = 0
            if self._has_grown:
                self._end_growth()
        elif self._start or self._end == len(self._buffer):
            await self._make_room()
        count = await self._receive_in_time() if self._has_grown else await self._receive_some()
        if not count:
            return None
        self._end += count
        frames = self._frames()
        if self._has_grown:
            self._arrived(count, bool(frames))
        return frames

    def give_up(self, why: str) -> None:
        """Stop waiting for the present frame; see ``RequestMemory``."""
        self._given_up = why
        if self._scope is not None:
            self._scope.cancel()

    def close(self) -> None:
        """Give back its memory, of the buffer too: its connection may be part of a cycle of references."""
        if self._has_grown:
            self._memory.done(self, 0)
        self._buffer = memoryview(b"")

    def _arrived(self, count: int, is_whole: bool) -> None:
        now = trio.current_time()
        credit_until = max(self.credit_until, now) + count / SLOWEST_BYTES_PER_SECOND
        self.credit_until = min(credit_until, now + PATIENCE_SECONDS)
        if is_whole:
            self._memory.whole(self)
        if self._began_at is None or is_whole:
            self._began_at = now
        elif now >= self._due_at(self._began_at):
            raise self._too_slow(self._began_at)

    def _too_slow(self, began_at: float) -> CloseConnectionError:
        seconds = trio.current_time() - began_at
        return CloseConnectionError(
            f"only {self._end - self._start} bytes of a request have arrived in {seconds:.0f} s"
        )

    def _due_at(self, began_at: float) -> float:
        return began_at + _FRAME_SECONDS + (self._end - self._start) / SLOWEST_BYTES_PER_SECOND

    async def _receive_in_time(self) -> int:
        """As ``_receive_some``, with the time limit of a large frame."""
        if self._began_at is None or self._start == self._end:
            return await self._receive_some()
        with self._may_be_given_up() as scope:
            scope.deadline = self._due_at(self._began_at)
            return await self._receive_some()
        raise self._too_slow(self._began_at)

    @contextmanager
    def _may_be_given_up(self) -> Iterator[trio.CancelScope]:
        with trio.CancelScope() as self._scope:
            if self._given_up:
                self._scope.cancel()
            yield self._scope
        self._scope = None
        if self._given_up:
            raise CloseConnectionError(self._given_up)

    def _end_growth(self) -> None:
        """Keep the buffer of an answered large frame for the next one, unless memory is scarce."""
        self._began_at = None
        if self._memory.is_scarce:
            self._buffer = memoryview(bytearray(_FIRST_BYTES))
        self._has_grown = len(self._buffer) > _FIRST_BYTES
        self._memory.done(self, len(self._buffer) if self._has_grown else 0)

    def _frames(self) -> list[memoryview]:
        frames: list[memoryview] = []
        try:
            # The first condition saves a call: usually one whole frame has arrived.
            while self._start < self._end and (frame := self.next_frame()) is not None:
                frames.append(frame)
        except ProtocolError:
            if not frames:
                raise
            # Earlier frames are answered first.
        return frames

    async def _receive_some(self) -> int:
        if self._socket is None:
            data = await self._stream.receive_some(len(self._buffer) - self._end)
            self._buffer[self._end : self._end + len(data)] = data
            self.read_at = self._now()
            return len(data)
        try:
            count = self._poll(self._socket)
            while count is None:
                # trio's own recv_into would pass the scheduler a second time at each read.
                await trio.lowlevel.wait_readable(self._socket)
                try:  # noqa: SIM105 (suppress makes three calls)
                    count = self._read(self._socket)
                except BlockingIOError:
                    pass
        except OSError as error:
            raise _lost(error) from error
        else:
            return count

    def _read(self, sock: trio.socket.SocketType) -> int:
        """Read what the socket has.

        Raises:
            BlockingIOError: it has nothing.
        """
        count = os.readv(sock.fileno(), (self._buffer[self._end :],))
        self.read_at = self._now()
        self._polls_left = self._busy_polling.reads_granted(self._mark, self.read_at)
        self.is_alone = self._polls_left > 0
        return count

    def _poll(self, sock: trio.socket.SocketType) -> int | None:
        """Poll the socket for a short time, if that is allowed; return None if nothing has come."""
        if not self._polls_left or not self._eagerness.is_due():
            return None
        self._polls_left -= 1
        count = read_soon(sock.fileno(), self._buffer[self._end :], PATIENCE_US, SPIN_US)
        if count is not None:
            self.read_at = self._now()
        self._eagerness.note(count is not None)
        return count

    async def _make_room(self) -> None:
        """Move the present frame to the front, of a larger or smaller buffer where that fits better."""
        rest = self._buffer[self._start : self._end]
        size = len(self._buffer)
        due = SIZE_BYTES + frame_size(rest, 0, self.max_frame_bytes) if len(rest) >= SIZE_BYTES else 0
        if self._start == 0:
            size = min(2 * size, due)
        elif len(rest) <= _FIRST_BYTES // 2 and (size > _KEPT_BYTES or self._memory.is_scarce):
            size = _FIRST_BYTES
        if size > len(self._buffer):
            await self._grow(size, due)
        elif self._has_grown and size == _FIRST_BYTES:
            self._has_grown = False
            self._began_at = None
            self._memory.done(self, 0)
        elif self._has_grown and len(rest):
            self.request_bytes = due
            self._memory.begin(self)
        if size != len(self._buffer):
            self._buffer = memoryview(bytearray(size))
        self._buffer[: len(rest)] = rest
        self._start, self._end = 0, len(rest)

    async def _grow(self, size: int, due: int) -> None:
        if not self._has_grown:
            self.party = self._find_party()
            self._has_grown = True
        self.request_bytes = due
        asked_at, credit_until = trio.current_time(), self.credit_until
        self.credit_until = math.inf  # not silent while it waits: it is not read
        with self._may_be_given_up():
            await self._memory.grow(self, size)
        # The time that it waited for memory neither counts nor renews its credit.
        granted_at = trio.current_time()
        if self._began_at is None:
            self._began_at = granted_at
            self.credit_until = granted_at + PATIENCE_SECONDS
        else:
            self._began_at += granted_at - asked_at
            self.credit_until = credit_until + granted_at - asked_at


def _lost(error: OSError) -> trio.BrokenResourceError:
    return trio.BrokenResourceError(f"receiving: {error}")
