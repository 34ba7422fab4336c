"""A network in memory, inside one ``trio.run``: bounded streams, ports, refused and broken connections."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import trio

from splashdam.model.errors import CannotConnectError, CannotListenError
from splashdam.model.values import Buffer
from splashdam.net.connect import address_text

_FIRST_PORT = 50_000
_DEFAULT_READ = 65_536


class Pipe:
    """One direction of a connection; a writer waits while ``capacity_bytes`` are not read.

    The simulator's ``SlowPipe`` is its one subclass and overrides only what happens between writer and
    reader: ``_put``, ``_arrive``, ``waiting_bytes`` and ``_is_over``. A delegate instead of a subclass would
    cost every pipe without delay one more call per piece.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self.ended = False  # the writer will send no more
        self.abandoned = False  # the reader has gone, or the line was cut
        self._capacity_bytes = capacity_bytes
        self._data = bytearray()
        self._changed = trio.lowlevel.ParkingLot()
        self._sending = False
        self._receiving = False

    async def send(self, data: Buffer) -> None:
        with self._one_sender():
            await trio.lowlevel.checkpoint()
            self._check_writable()
            view = memoryview(data)
            while view:
                room = await self._room()
                self._put(view[:room])
                view = view[room:]
                self.wake()

    def send_now(self, parts: Sequence[Buffer]) -> int:
        """Write as much as there is room for; return its size, 0 if a write would wait or raise."""
        # A task that sends may have written a part of its bytes, and the rest comes first.
        if self._sending or self.ended or self.abandoned:
            return 0
        taken = 0
        for part in parts:
            room = self._capacity_bytes - self.waiting_bytes
            if room <= 0:
                break
            self._put(memoryview(part)[:room])
            taken += min(room, len(part))
        self.wake()
        return taken

    async def wait_room(self) -> None:
        with self._one_sender():
            await trio.lowlevel.checkpoint()
            self._check_writable()
            await self._room()

    def end(self) -> None:
        with self._one_sender():
            self.ended = True
        self.wake()

    async def _room(self) -> int:
        while self.waiting_bytes >= self._capacity_bytes:
            await self._changed.park()
            self._check_writable()
        return self._capacity_bytes - self.waiting_bytes

    @property
    def waiting_bytes(self) -> int:
        """Bytes written and not yet read."""
        return len(self._data)

    def _put(self, piece: memoryview) -> None:
        """Take a piece that fits."""
        self._data += piece

    async def _arrive(self) -> None:
        """Wait until there may be something to read, or the writer has ended the stream."""
        await self._changed.park()

    @property
    def _is_over(self) -> bool:
        """Whether all bytes have arrived."""
        return self.ended

    @contextmanager
    def _one_sender(self) -> Iterator[None]:
        if self._sending:
            raise trio.BusyResourceError("another task is sending on this stream")
        self._sending = True
        try:
            yield
        finally:
            self._sending = False

    def _check_writable(self) -> None:
        if self.ended:
            raise trio.ClosedResourceError("this stream was closed here")
        if self.abandoned:
            raise trio.BrokenResourceError("the peer has closed the stream")

    async def receive(self, max_bytes: int) -> bytes:
        if self._receiving:
            raise trio.BusyResourceError("another task is receiving from this stream")
        self._receiving = True
        try:
            await trio.lowlevel.checkpoint()
            while not self._data and not self._is_over and not self.abandoned:
                await self._arrive()
            if self.abandoned:
                raise trio.ClosedResourceError("this stream was closed here")
            data = bytes(self._data[:max_bytes])
            del self._data[:max_bytes]
            self.wake()
            return data
        finally:
            self._receiving = False

    def wake(self) -> None:
        self._changed.unpark_all()


class MemoryStream(trio.abc.HalfCloseableStream):
    """One end of a connection in memory, made by `memory_stream_pair`."""

    def __init__(self, incoming: Pipe, outgoing: Pipe) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._cut = False

    @property
    def is_closed(self) -> bool:
        """Whether this end was closed or cut."""
        return self._incoming.abandoned

    async def send_all(self, data: Buffer) -> None:
        """Send all; wait while the peer does not read."""
        self._check_cut()
        try:
            await self._outgoing.send(data)
        finally:
            self._check_cut()

    def send_now(self, parts: Sequence[Buffer]) -> int:
        """Send as much as there is room for; return its size. See ``net.connection.streams``."""
        return 0 if self._cut else self._outgoing.send_now(parts)

    async def wait_send_all_might_not_block(self) -> None:
        self._check_cut()
        try:
            await self._outgoing.wait_room()
        finally:
            self._check_cut()

    async def send_eof(self) -> None:
        """End this direction; the other stays open."""
        await trio.lowlevel.checkpoint()
        if self._incoming.abandoned:
            raise trio.ClosedResourceError("this stream was closed here")
        self._outgoing.end()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Wait for bytes; empty means that the peer ended the stream."""
        limit = _DEFAULT_READ if max_bytes is None else operator.index(max_bytes)
        if limit < 1:
            raise ValueError("max_bytes must be at least 1")
        self._check_cut()
        try:
            return await self._incoming.receive(limit)
        finally:
            self._check_cut()

    async def aclose(self) -> None:
        self._close()
        await trio.lowlevel.checkpoint()

    def cut(self) -> None:
        """Break the connection, as a network does: calls at this end raise ``BrokenResourceError``."""
        self._cut = True
        self._close()

    def _close(self) -> None:
        self._incoming.abandoned = True
        self._outgoing.ended = True
        self._incoming.wake()
        self._outgoing.wake()

    def _check_cut(self) -> None:
        if self._cut:
            raise trio.BrokenResourceError("the connection was cut")


def memory_stream_pair(capacity_bytes: int = 1024 * 1024) -> tuple[MemoryStream, MemoryStream]:
    """Return two connected ends; each direction holds up to ``capacity_bytes``."""
    one, other = Pipe(capacity_bytes), Pipe(capacity_bytes)
    return MemoryStream(one, other), MemoryStream(other, one)


MakePair = Callable[[str, int], tuple[MemoryStream, MemoryStream]]
"""Makes both ends of a new connection to a host and port."""


class MemoryListener(trio.abc.Listener[MemoryStream]):
    """Accepts what `MemoryNetwork.connect` opens to its ``address``."""

    def __init__(self, network: MemoryNetwork, address: tuple[str, int]) -> None:
        self.address = address
        self._network = network
        self._send, self._receive = trio.open_memory_channel[MemoryStream](1024)

    async def accept(self) -> MemoryStream:
        """Wait for the next connection."""
        return await self._receive.receive()

    async def aclose(self) -> None:
        """Stop listening; open connections stay open."""
        self._network.forget(self)
        await self._receive.aclose()

    def offer(self, stream: MemoryStream) -> None:
        """Queue the broker's end of a new connection."""
        self._send.send_nowait(stream)


class MemoryNetwork:
    """Hosts and ports in memory. ``connect`` and ``listen`` are a `Connect` and a `Listen`.

    Args:
        capacity_bytes: how many bytes each direction of a connection holds.
        make_pair: makes both ends of a new connection; None: `memory_stream_pair`.
    """

    def __init__(self, capacity_bytes: int = 1024 * 1024, make_pair: MakePair | None = None) -> None:
        self._make_pair = make_pair or (lambda _host, _port: memory_stream_pair(capacity_bytes))
        self._listeners: dict[tuple[str, int], MemoryListener] = {}
        self._connections: dict[tuple[str, int], list[tuple[MemoryStream, MemoryStream]]] = {}
        self._refusing: set[tuple[str, int]] = set()
        self._next_port = _FIRST_PORT

    async def listen(self, host: str, port: int) -> Sequence[trio.abc.Listener[Any]]:
        """Listen; port 0 takes the next free port."""
        await trio.lowlevel.checkpoint()
        if port == 0:
            port, self._next_port = self._next_port, self._next_port + 1
        if (host, port) in self._listeners:
            raise CannotListenError(f"cannot listen on {address_text(host, port)}: address in use")
        listener = self._listeners[host, port] = MemoryListener(self, (host, port))
        return [listener]

    async def connect(self, host: str, port: int) -> MemoryStream:
        """Connect to a listener, or raise ``KafkaConnectionError`` if nothing listens there."""
        await trio.lowlevel.checkpoint()
        listener = self._listeners.get((host, port))
        if listener is None or (host, port) in self._refusing:
            raise CannotConnectError(f"cannot connect to {address_text(host, port)}: Connection refused")
        ours, theirs = self._make_pair(host, port)
        self._connections.setdefault((host, port), []).append((ours, theirs))
        listener.offer(theirs)
        return ours

    def refuse(self, host: str, port: int, refusing: bool = True) -> None:
        """Refuse new connections to an address from now on, or accept them again."""
        (self._refusing.add if refusing else self._refusing.discard)((host, port))

    def drop(self, host: str, port: int) -> None:
        """Break every open connection to an address, at both ends."""
        for ours, theirs in self._connections.pop((host, port), []):
            ours.cut()
            theirs.cut()

    def forget(self, listener: MemoryListener) -> None:
        """Remove a closed listener."""
        self._listeners.pop(listener.address, None)
