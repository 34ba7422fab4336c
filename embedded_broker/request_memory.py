"""How much of a broker's memory the requests that are being received may take, all clients together.

Buffers grow as bytes arrive. Where there is no room the client waits, unread; but the one whose request began
first may always grow, so that not all wait for each other. More than the limit is then held by one request.

Anybody may claim a large request and fall silent. As long as nobody waits that harms nobody. While somebody
does:

* Memory is shared equally among the parties that hold it or wait for it: an address, and who has logged in
  from there, however many connections they have. Nobody's share grows beyond that.
* Each request that holds memory has to receive 16 KiB a second, looked at over 5 s.
* Who has waited for 5 s for memory within its share gets it from those who hold more than theirs: their
  largest requests are given up, but for the one that began first. Where there is one party alone, its
  requests share alike.

Somebody looks once a second, and only while somebody waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Protocol

import trio

LOOK_SECONDS = 1.0
PATIENCE_SECONDS = 5.0
SLOWEST_BYTES_PER_SECOND = 16 * 1024
"""Who sends a large request more slowly than this does it on purpose."""


class Holder(Protocol):
    """Who receives a large request.

    Attributes:
        party: among whom memory is shared; stays the same until ``done``.
        arrived_bytes: of all its requests.
    """

    party: Hashable
    arrived_bytes: int

    def give_up(self, why: str) -> None:
        """Ends the connection soon; ``done`` follows."""


class RequestMemory:
    """The bytes held in receive buffers beyond the small one that each connection has.

    Args:
        limit_bytes: the most.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._held: dict[Holder, int] = {}
        self._growing: dict[Holder, None] = {}  # in the order in which their requests began
        self._waiting: dict[Holder, tuple[float, int]] = {}  # since when, for how much
        self._shares: Counter[Hashable] = Counter()  # what each party holds; all who hold or wait are here
        self._line: Counter[Hashable] = Counter()  # how many of each party wait
        self._seen: dict[Holder, tuple[float, int]] = {}  # when, and what had arrived then
        self._given_up: set[Holder] = set()
        self._look_at = 0.0
        self._total_bytes = 0
        self._room = trio.Event()

    @property
    def held_bytes(self) -> int:
        """By all together."""
        return self._total_bytes

    @property
    def is_scarce(self) -> bool:
        """Whether who needs a buffer no more should give it back at once."""
        return 2 * self._total_bytes > self._limit_bytes

    async def grow(self, who: Holder, size_bytes: int) -> None:
        """Returns once somebody may hold so many bytes."""
        self._growing.setdefault(who)
        if not self._may_hold(who, size_bytes):
            await self._wait(who, size_bytes)
        self._hold(who, size_bytes)

    def done(self, who: Holder, kept_bytes: int) -> None:
        """Somebody's request is complete; so much of the memory is kept for the next one."""
        self._growing.pop(who, None)
        self._seen.pop(who, None)
        self._given_up.discard(who)
        self._hold(who, kept_bytes)
        self._tell()

    async def _wait(self, who: Holder, size_bytes: int) -> None:
        if not self._waiting:
            self._look_at = trio.current_time() + LOOK_SECONDS
        self._waiting[who] = trio.current_time(), size_bytes
        self._line[who.party] += 1
        self._shares[who.party] += 0
        try:
            while not self._may_hold(who, size_bytes):
                with trio.move_on_at(self._look_at):
                    await self._room.wait()
                if trio.current_time() >= self._look_at:
                    self._look_at = trio.current_time() + LOOK_SECONDS
                    self._look(trio.current_time())
        finally:
            del self._waiting[who]
            self._line[who.party] -= 1
            self._forget(who.party)
            if not self._waiting:
                self._seen.clear()

    def _may_hold(self, who: Holder, size_bytes: int) -> bool:
        more = size_bytes - self._held.get(who, 0)
        if who is next(iter(self._growing)):
            return True
        if self._total_bytes + more > self._limit_bytes:
            return False
        if not self._waiting or len(self._shares) == 1:
            return True
        return self._shares[who.party] + more <= self._share_bytes

    @property
    def _share_bytes(self) -> int:
        return self._limit_bytes // max(len(self._shares), 1)

    def _hold(self, who: Holder, size_bytes: int) -> None:
        more = size_bytes - self._held.pop(who, 0)
        self._total_bytes += more
        self._shares[who.party] += more
        if size_bytes:
            self._held[who] = size_bytes
        self._forget(who.party)

    def _forget(self, party: Hashable) -> None:
        if not self._shares[party] and not self._line[party]:
            del self._shares[party], self._line[party]
            self._tell()  # the shares of the others are larger now

    def _tell(self) -> None:
        if self._waiting:
            room, self._room = self._room, trio.Event()
            room.set()

    def _look(self, now: float) -> None:
        """Takes memory from who does not use it, or has more than its share."""
        for who in self._growing:
            if who not in self._held or who in self._waiting:
                self._seen.pop(who, None)  # it is not read, so nothing can arrive
                continue
            since, arrived_bytes = self._seen.setdefault(who, (now, who.arrived_bytes))
            if now - since < PATIENCE_SECONDS:
                continue
            if who.arrived_bytes - arrived_bytes < PATIENCE_SECONDS * SLOWEST_BYTES_PER_SECOND:
                came_bytes, seconds = who.arrived_bytes - arrived_bytes, now - since
                self._give_up(who, f"of a request {came_bytes} bytes have come in {seconds:.0f} s")
            self._seen[who] = now, who.arrived_bytes
        self._make_room(now)

    def _make_room(self, now: float) -> None:
        """For those who have waited long for no more than their share."""
        share_bytes = self._share_bytes
        requests = Counter(who.party for who in self._growing)
        wanted_bytes = self._total_bytes - self._limit_bytes
        for who, (since, size_bytes) in self._waiting.items():
            more = size_bytes - self._held.get(who, 0)
            all_alike_bytes = size_bytes * requests[who.party]
            is_modest = min(self._shares[who.party] + more, all_alike_bytes) <= share_bytes
            if is_modest and now - since >= PATIENCE_SECONDS:
                wanted_bytes += more
        wanted_bytes -= sum(self._held.get(who, 0) for who in self._given_up)
        left = Counter(self._shares)
        oldest = next(iter(self._growing))  # it may be larger than any share, and has to end some time
        for who in sorted(self._growing, key=lambda each: self._held.get(each, 0), reverse=True):
            held_bytes = self._held.get(who, 0)
            if wanted_bytes <= 0 or not held_bytes:
                return
            is_greedy = left[who.party] > share_bytes or (
                len(self._shares) == 1 and held_bytes * requests[who.party] > share_bytes
            )
            if is_greedy and who is not oldest and who not in self._given_up:
                left[who.party] -= held_bytes
                wanted_bytes -= held_bytes
                self._give_up(who, f"a request held {held_bytes} bytes, more than its share")

    def _give_up(self, who: Holder, why: str) -> None:
        if who not in self._given_up:
            self._given_up.add(who)
            who.give_up(f"{why}, while others wait for memory")
