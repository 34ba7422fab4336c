"""A network that fails on purpose: wraps any `splashdam.net.connect.Connect`."""

from __future__ import annotations

import attrs
import trio

from splashdam.model.errors import KafkaConnectionError
from splashdam.model.values import Buffer
from splashdam.net.connect import Connect, address_text


@attrs.define
class Faults:
    """What goes wrong on one connection; the defaults harm nothing.

    Attributes:
        cut_after_sent_bytes: breaks the connection when this many bytes have gone out; the rest of that write
            is lost. None never does.
        cut_after_received_bytes: breaks it when this many bytes have come in.
        black_hole: takes every byte and answers nothing, as a host behind a lost route does.
        delay_ms: every read waits this long before it returns.
    """

    cut_after_sent_bytes: int | None = None
    cut_after_received_bytes: int | None = None
    black_hole: bool = False
    delay_ms: float = 0.0


class FaultyStream(trio.abc.Stream):
    """A stream with faults. ``sent_bytes`` and ``received_bytes`` count what really passed."""

    def __init__(self, stream: trio.abc.Stream, faults: Faults) -> None:
        self.faults = faults
        self.sent_bytes = 0
        self.received_bytes = 0
        self._stream = stream
        self._broken = False

    async def send_all(self, data: Buffer) -> None:
        """Sends, as far as the faults let it."""
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
        """Waits for room."""
        self._check()
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Receives, as far as the faults let it."""
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
        if self.faults.black_hole:  # it may have opened while this read waited
            await trio.sleep_forever()
        return data

    async def aclose(self) -> None:
        """Closes."""
        await self._stream.aclose()

    async def cut(self) -> None:
        """Breaks the connection now, at both ends."""
        self._broken = True
        await trio.aclose_forcefully(self._stream)

    def _check(self) -> None:
        if self._broken:
            raise trio.BrokenResourceError("the connection was cut on purpose")


class FaultyConnect:
    """A `splashdam.net.connect.Connect` whose connections fail as told.

    Change ``faults`` at any time; a new connection gets a copy of what is there when it is made.

    Args:
        connect: what really connects.

    Attributes:
        faults: for connections made from now on.
        refuse: how many of the next connections are refused.
        streams: the connections made so far, oldest first.
    """

    def __init__(self, connect: Connect) -> None:
        self.faults = Faults()
        self.refuse = 0
        self.streams: list[FaultyStream] = []
        self._connect = connect

    async def __call__(self, host: str, port: int) -> FaultyStream:
        """Connects, or raises ``KafkaConnectionError`` where told to refuse."""
        if self.refuse > 0:
            self.refuse -= 1
            await trio.lowlevel.checkpoint()
            raise KafkaConnectionError(f"cannot connect to {address_text(host, port)}: refused on purpose")
        stream = FaultyStream(await self._connect(host, port), attrs.evolve(self.faults))
        self.streams.append(stream)
        return stream

    async def cut_all(self) -> None:
        """Breaks every connection made so far."""
        for stream in self.streams:
            await stream.cut()
