"""A network with delays: bytes travel, brokers stall, connections break at either end or at both.

A connection that breaks only at the client's end lives on at the broker, as on a real network: the last bytes
arrive late, while the client has a new connection already.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Literal

import attrs
import trio

from lab.simulator.report import RunRecord
from splashdam.net.listen import Listen
from splashdam.net.memory import MemoryNetwork, MemoryStream, Pipe

Side = Literal["both", "client", "broker"]


@attrs.define
class Weather:
    """The conditions between the clients and one broker.

    Attributes:
        slowest_ms: longest travelling time of a piece.
        stalled_until: bytes sent before this time, in seconds, arrive after it; infinity loses them.
        cut_after_bytes: new connections break somewhere below this number of bytes; 0: never.
    """

    slowest_ms: float
    stalled_until: float = 0.0
    cut_after_bytes: int = 0


class SlowPipe(Pipe):
    """One direction with a delay: bytes arrive later, in order, in one piece or several."""

    def __init__(self, capacity_bytes: int, weather: Weather, random: Random) -> None:
        super().__init__(capacity_bytes)
        self._allowed_bytes: float = math.inf
        self._when_used_up: Callable[[], None] = lambda: None
        self._weather = weather
        self._random = random
        self._travelling: deque[tuple[float, bytes]] = deque()
        self._travelling_bytes = 0
        self._last_arrival = 0.0

    @property
    def waiting_bytes(self) -> int:
        """Bytes that travel, or have arrived and are not read."""
        return len(self._data) + self._travelling_bytes

    def end_after(self, allowed_bytes: int, then: Callable[[], None]) -> None:
        """Let ``allowed_bytes`` more bytes pass, lose all later ones, and call ``then``."""
        self._allowed_bytes, self._when_used_up = allowed_bytes, then

    @property
    def has_lost_bytes(self) -> bool:
        """Whether bytes were written that will never arrive."""
        return math.isinf(self._last_arrival)

    def postpone(self, seconds: float) -> int:
        """Delay the bytes that travel; return their number."""
        self._travelling = deque((arrival + seconds, piece) for arrival, piece in self._travelling)
        self._last_arrival += seconds
        return self._travelling_bytes

    def _put(self, piece: memoryview) -> None:
        if len(piece) >= self._allowed_bytes:
            self._send_off(piece[: int(self._allowed_bytes)])
            self._allowed_bytes = 0
            self._when_used_up()
            return
        self._allowed_bytes -= len(piece)
        if len(piece) > 1 and self._random.random() < 0.2:
            cut = self._random.randrange(1, len(piece))
            self._send_off(piece[:cut])
            piece = piece[cut:]
        self._send_off(piece)

    def _send_off(self, piece: memoryview) -> None:
        if not piece:
            return
        delay_ms = self._random.uniform(0.1, self._weather.slowest_ms)
        start = max(trio.current_time(), self._weather.stalled_until)
        self._last_arrival = max(self._last_arrival, start + delay_ms / 1000)
        self._travelling.append((self._last_arrival, bytes(piece)))
        self._travelling_bytes += len(piece)

    @property
    def _is_over(self) -> bool:
        self._unload()
        return not self._data and self.ended and not self._travelling

    async def _arrive(self) -> None:
        if self._data:  # a piece has arrived just now
            return
        if not self._travelling:
            await self._changed.park()
            return
        with trio.move_on_at(self._travelling[0][0]):
            await self._changed.park()

    def _unload(self) -> None:
        now = trio.current_time()
        while self._travelling and self._travelling[0][0] <= now:
            _, piece = self._travelling.popleft()
            self._travelling_bytes -= len(piece)
            self._data += piece


@attrs.define
class SimulatedConnection:
    """Both ends and both directions of one connection."""

    client: MemoryStream
    broker: MemoryStream
    to_broker: SlowPipe
    to_client: SlowPipe


class SimulatedNetwork:
    """Hosts, ports and the weather in front of each host.

    Args:
        random: chooses delays, and how pieces are cut.
        record: for the trace and the counts.
        capacity_bytes: as for ``MemoryNetwork``.
        distance_ms: longest travelling time in good weather.
    """

    def __init__(self, random: Random, record: RunRecord, *, capacity_bytes: int, distance_ms: float) -> None:
        self._memory = MemoryNetwork(make_pair=self.make_pair)
        self._capacity_bytes = capacity_bytes
        self.distance_ms = distance_ms
        self.connections: list[tuple[str, SimulatedConnection]] = []
        self._weather: dict[str, Weather] = {}
        self._random = random
        self._record = record

    async def connect(self, host: str, port: int) -> MemoryStream:
        """Connect to a listener, through the weather."""
        return await self._memory.connect(host, port)

    @property
    def listen(self) -> Listen:
        """The network's listen function."""
        return self._memory.listen

    def refuse(self, host: str, port: int, refusing: bool = True) -> None:
        """Refuse new connections to an address, or accept them again."""
        self._memory.refuse(host, port, refusing)

    def weather(self, host: str) -> Weather:
        """Return the weather in front of a host; faults change it."""
        return self._weather.setdefault(host, Weather(self.distance_ms))

    def make_pair(self, host: str, port: int) -> tuple[MemoryStream, MemoryStream]:
        """Make a connection through the host's weather."""
        weather = self.weather(host)
        to_broker = SlowPipe(self._capacity_bytes, weather, self._random)
        to_client = SlowPipe(self._capacity_bytes, weather, self._random)
        client, broker = MemoryStream(to_client, to_broker), MemoryStream(to_broker, to_client)
        if weather.cut_after_bytes:
            doomed, writer = self._random.choice(((to_broker, client), (to_client, broker)))
            doomed.end_after(self._random.randrange(1, weather.cut_after_bytes), writer.cut)
            self._record.count("connections that break at some byte")
        connection = SimulatedConnection(client, broker, to_broker, to_client)
        self.connections = [each for each in self.connections if not each[1].broker.is_closed]
        self.connections.append((host, connection))
        self._record.note("connect", f"{host}:{port}")
        self._record.count("connections")
        return client, broker

    def cut(self, host: str, side: Side, late_s: float = 0.0) -> None:
        """Break the open connections to a host.

        Args:
            host: the host.
            side: the end that notices: ``client``, whose last bytes still arrive ``late_s`` later and are
                handled; ``broker``; or ``both``, which loses the bytes that travel.
            late_s: see ``side``.
        """
        for where, connection in self.connections:
            if where != host or connection.client.is_closed:
                continue
            self._record.count(f"connections cut, {side} notices")
            if side in ("both", "client"):
                connection.client.cut()
            if side in ("both", "broker"):
                connection.broker.cut()
            if side == "client" and connection.to_broker.postpone(late_s):
                self._record.count("requests that arrive after their connection")
            self._record.note("cut", f"{host} {side}")

    def clear_up(self) -> None:
        """Make good weather everywhere; break connections that have lost bytes at the client's end."""
        for host, connection in self.connections:
            if connection.to_broker.has_lost_bytes or connection.to_client.has_lost_bytes:
                self._record.note("cut", f"{host} after a loss")
                connection.client.cut()
        for weather in self._weather.values():
            weather.slowest_ms = min(self.distance_ms, 10.0)
            weather.stalled_until = 0.0
            weather.cut_after_bytes = 0
