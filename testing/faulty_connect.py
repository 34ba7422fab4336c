"""A network with faults, around any `splashdam.net.connect.Connect`."""

from __future__ import annotations

import attrs
import trio

from splashdam.model.errors import KafkaConnectionError
from splashdam.model.values import Buffer
from splashdam.net.connect import Connect, address_text


@attrs.define
class Faults:
    """The faults of one connection; the defaults do nothing.

    Attributes:
        cut_after_sent_bytes: break the connection once this many bytes were sent; the rest of that write is
            lost. None never breaks it.
        cut_after_received_bytes: break it once this many bytes were received.
        black_hole: take every byte and deliver none, like a host behind a lost route.
        delay_ms: milliseconds that every read waits before it returns.
    """

    cut_after_sent_bytes: int | None = None
    cut_after_received_bytes: int | None = None
    black_hole: bool = False
    delay_ms: float = 0.0


class FaultyStream(trio.abc.Stream):
    """A stream with faults. ``sent_bytes`` and ``received_bytes`` count the bytes that passed it."""

    def __init__(self, stream: trio.abc.Stream, faults: Faults) -> None:
        self.faults = faults
        self.sent_bytes = 0
        self.received_bytes = 0
        self._stream = stream
        self._broken = False

    async def send_all(self, data: Buffer) -> None:
        """Send, as far as the faults allow."""
        self._check()
        if self.faults.black_hole:
            await trio.lowlevel.checkpoint()
            return
        limit = self.faults.cut_after_sent_bytes
        allowed = len(data) if limit is None else min(len(data), max(0, limit - self.sent_bytes))
        await self._stream.send_all(memoryview(data)[:allowed])
        self.sent_bytes += allowed
        if allowed < len(data):
            await self.cut()
            self._check()

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until the stream takes more bytes."""
        self._check()
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Receive, as far as the faults allow."""
        self._check()
        if self.faults.black_hole:
            await trio.sleep_forever()
        limit = self.faults.cut_after_received_bytes
        if limit is not None:
            if self.received_bytes >= limit:
                await self.cut()
                self._check()
            left = limit - self.received_bytes
            max_bytes = left if max_bytes is None else min(max_bytes, left)
        data = await self._stream.receive_some(max_bytes)
        self.received_bytes += len(data)
        await trio.sleep(self.faults.delay_ms / 1000)
        if self.faults.black_hole:  # it may have been set while this read waited
            await trio.sleep_forever()
        return data

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    async def cut(self) -> None:
        """Break the connection at both ends."""
        self._broken = True
        await trio.aclose_forcefully(self._stream)

    def _check(self) -> None:
        if self._broken:
            raise trio.BrokenResourceError("the connection was cut on purpose")


class FaultyConnect:
    """A `splashdam.net.connect.Connect` whose connections have faults.

    ``faults`` may be changed at any time; a new connection gets a copy.

    Args:
        connect: opens the real connections.

    Attributes:
        faults: of connections made from now on.
        refuse: number of the next connections that are refused.
        streams: the connections made so far, oldest first.
    """

    def __init__(self, connect: Connect) -> None:
        self.faults = Faults()
        self.refuse = 0
        self.streams: list[FaultyStream] = []
        self._connect = connect

    async def __call__(self, host: str, port: int) -> FaultyStream:
        """Connect; raise `KafkaConnectionError` while ``refuse`` is above 0."""
        if self.refuse > 0:
            self.refuse -= 1
            await trio.lowlevel.checkpoint()
            raise KafkaConnectionError(f"cannot connect to {address_text(host, port)}: refused on purpose")
        # A copy: a test may change the faults of one connection, and later ones keep theirs.
        stream = FaultyStream(await self._connect(host, port), attrs.evolve(self.faults))
        self.streams.append(stream)
        return stream

    async def cut_all(self) -> None:
        """Break every connection made so far."""
        for stream in self.streams:
            await stream.cut()
