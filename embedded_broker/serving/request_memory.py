"""Memory for requests that are being received, of all clients (``queued.max.request.bytes``).

Buffers grow as bytes arrive: a claimed size holds no memory, and a client holds at most twice what it has
sent. If there is no room, the connection is not read. The smallest waiting request gets memory first, among
equals the one that has waited longest. To avoid a deadlock, the request that began first may exceed the
limit: its memory is not counted until it is answered.

A client may claim a large request and fall silent. That does no harm while no request waits for memory. While
one does:

* Each request that holds memory has to receive 16 KiB a second, with a credit of 5 s at most. A connection
  that is silent for longer is closed at once.
* Parties that hold memory or wait for it have equal shares. A party is a principal in one network, however
  many connections it has.
* A request that has waited for 5 s takes memory from larger requests of its own party, and within its share
  from parties that hold more than theirs. The largest are closed first, but never the one that began first.

A request that has arrived whole keeps its memory until it is answered, and is not checked: it waits for the
broker. Holders are checked while a request waits: at once, then every second, and every 0.1 s while a request
that has waited for 5 s needs its next piece.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Hashable
from ipaddress import IPv6Address, ip_address
from typing import Protocol

import attrs
import trio

LOOK_SECONDS = 1.0
LEAST_LOOK_SECONDS = 0.1
PATIENCE_SECONDS = 5.0
SLOWEST_BYTES_PER_SECOND = 16 * 1024
"""Minimum rate of a large request: clients that are slower do it on purpose."""

_IPV6_HOST_BITS = 64


def network_of(host: str) -> str:
    """Return the network of a client: its IPv4 address, or the /64 of its IPv6 address.

    Whoever has one address of a /64 can use all of them, so they count as one.
    """
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    first = IPv6Address(int(address) >> _IPV6_HOST_BITS << _IPV6_HOST_BITS)
    return f"{first}/{_IPV6_HOST_BITS}"


class Holder(Protocol):
    """A connection that receives a large request.

    Attributes:
        party: the unit of fairness; must not change before ``done``.
        request_bytes: claimed size of the present request.
        credit_until: the connection may be silent until then; see the rate above.
    """

    party: Hashable
    request_bytes: int
    credit_until: float

    def give_up(self, why: str) -> None:
        """Close the connection soon; ``done`` follows."""


@attrs.define(eq=False)
class _Turn:
    """A connection that waits for memory."""

    holder: Holder
    size_bytes: int
    since: float
    number: int
    came: trio.Event = attrs.field(factory=trio.Event)

    @property
    def place(self) -> tuple[int, int]:
        return self.holder.request_bytes, self.number


class RequestMemory:
    """The bytes held in receive buffers beyond the small one that each connection has.

    Args:
        limit_bytes: the most.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._held: dict[Holder, int] = {}
        self._growing: dict[Holder, None] = {}  # in the order in which requests began
        self._beyond: Holder | None = None  # may exceed the limit; no other one may until it is done
        self._line: list[_Turn] = []  # the smallest request first
        self._turns: dict[Holder, _Turn] = {}  # the same, by their holders
        self._turn_count = 0
        self._since: dict[Holder, float] = {}  # when the present request first waited
        # Bytes that each party holds; waiting parties are in it, too, so that they count for the shares.
        self._shares: Counter[Hashable] = Counter()
        self._waiting: Counter[Hashable] = Counter()  # waiting connections of each party
        self._given_up: set[Holder] = set()
        self._look_at = 0.0
        self._looked_at = float("-inf")
        self._total_bytes = 0

    @property
    def held_bytes(self) -> int:
        """Bytes held by all connections."""
        return self._total_bytes

    @property
    def is_scarce(self) -> bool:
        """Whether connections should return buffers at once: more than half of the limit is held."""
        return 2 * self._total_bytes > self._limit_bytes

    def begin(self, holder: Holder) -> None:
        """Note that the holder receives another request into the memory that it has."""
        self._growing.setdefault(holder)

    async def grow(self, holder: Holder, size_bytes: int) -> None:
        """Wait until the holder may have so many bytes for its present request."""
        self._growing.setdefault(holder)
        if self._line or not self._may_hold(holder, size_bytes):
            await self._wait(holder, size_bytes)
        else:
            self._grant(holder, size_bytes)

    def whole(self, holder: Holder) -> None:
        """Note that a request has arrived whole; its memory is held until it is answered."""
        self._given_up.discard(holder)
        self._since.pop(holder, None)
        if holder in self._growing:
            del self._growing[holder]
            self._serve()  # another request may be the first now

    def done(self, holder: Holder, kept_bytes: int) -> None:
        """Note that a request was answered or has ended, and how much memory its holder keeps."""
        self._given_up.discard(holder)
        self._since.pop(holder, None)
        self._growing.pop(holder, None)
        if holder is self._beyond:
            self._beyond = None
        self._hold(holder, kept_bytes)
        self._serve()

    async def _wait(self, holder: Holder, size_bytes: int) -> None:
        now = trio.current_time()
        since = self._since.setdefault(holder, now)
        if not self._line:
            self._look_at = now
        elif now - since >= PATIENCE_SECONDS:
            self._look_at = min(self._look_at, max(now, self._looked_at + LEAST_LOOK_SECONDS))
        self._turn_count += 1
        turn = _Turn(holder, size_bytes, since, self._turn_count)
        insort(self._line, turn, key=lambda each: each.place)
        self._turns[holder] = turn
        self._waiting[holder.party] += 1
        self._shares[holder.party] += 0
        try:
            self._serve()
            while not turn.came.is_set():
                with trio.move_on_at(self._look_at):
                    await turn.came.wait()
                now = trio.current_time()
                if not turn.came.is_set() and now >= self._look_at:
                    self._looked_at, self._look_at = now, now + LOOK_SECONDS
                    self._look(now)
        finally:
            if not turn.came.is_set():
                self._line.remove(turn)
                self._leave(turn)
                self._serve()

    def _serve(self) -> None:
        """Give memory to waiting connections, the smallest request first, while it lasts."""
        if not self._line:
            return
        first = self._turns.get(next(iter(self._growing)))
        if first is not None and self._may_hold(first.holder, first.size_bytes):
            self._line.remove(first)
            self._let_in(first)
        held_up: list[_Turn] = []  # by the shares of their parties
        for index, turn in enumerate(self._line):
            if self._may_hold(turn.holder, turn.size_bytes):
                self._let_in(turn)
            elif self._fits(turn.size_bytes - self._held.get(turn.holder, 0)):
                held_up.append(turn)
            else:
                held_up.extend(self._line[index:])
                break
        self._line = held_up

    def _let_in(self, turn: _Turn) -> None:
        self._grant(turn.holder, turn.size_bytes)
        self._leave(turn)
        turn.came.set()

    def _leave(self, turn: _Turn) -> None:
        del self._turns[turn.holder]
        self._waiting[turn.holder.party] -= 1
        self._forget(turn.holder.party)

    @property
    def _counted_bytes(self) -> int:
        beyond = self._beyond
        return self._total_bytes - (self._held.get(beyond, 0) if beyond is not None else 0)

    def _fits(self, more: int) -> bool:
        return self._counted_bytes + more <= self._limit_bytes

    def _may_hold(self, holder: Holder, size_bytes: int) -> bool:
        more = size_bytes - self._held.get(holder, 0)
        if holder is self._beyond:
            return True
        is_first = holder is next(iter(self._growing))
        if not self._fits(more):
            return is_first and self._beyond is None
        if is_first or not self._line or len(self._shares) == 1:
            return True
        return self._shares[holder.party] + more <= self._share_bytes

    def _grant(self, holder: Holder, size_bytes: int) -> None:
        if holder is not self._beyond and not self._fits(size_bytes - self._held.get(holder, 0)):
            self._beyond = holder
        self._hold(holder, size_bytes)

    @property
    def _share_bytes(self) -> int:
        return self._limit_bytes // max(len(self._shares), 1)

    def _hold(self, holder: Holder, size_bytes: int) -> None:
        more = size_bytes - self._held.pop(holder, 0)
        self._total_bytes += more
        self._shares[holder.party] += more
        if size_bytes:
            self._held[holder] = size_bytes
        self._forget(holder.party)

    def _forget(self, party: Hashable) -> None:
        if not self._shares[party] and not self._waiting[party]:
            del self._shares[party], self._waiting[party]

    def _look(self, now: float) -> None:
        """Close connections that are too slow, or hold more than their share."""
        for holder in self._growing:
            # A connection that waits for memory is not read, so it is not slow.
            if holder in self._held and holder not in self._turns and now >= holder.credit_until:
                self._give_up(
                    holder, f"a request arrived more slowly than {SLOWEST_BYTES_PER_SECOND} bytes/s"
                )
        self._make_room(now)

    def _make_room(self, now: float) -> None:
        """Make room for connections that have waited for long; each holder is checked twice at most."""
        free_bytes = self._limit_bytes - self._counted_bytes
        left = Counter(self._shares)
        for holder in self._given_up:
            left[holder.party] -= self._held.get(holder, 0)
            free_bytes += self._held.get(holder, 0) if holder is not self._beyond else 0
        first = next(iter(self._growing))  # it may be larger than any share, and has to end some time
        may_end = [
            holder
            for holder in sorted(self._growing, key=lambda each: each.request_bytes)
            if holder in self._held and holder is not first and holder is not self._beyond
        ]
        of_party: dict[Hashable, list[Holder]] = defaultdict(list)
        for holder in may_end:
            of_party[holder.party].append(holder)

        def end(holder: Holder) -> None:
            nonlocal free_bytes
            if holder not in self._given_up:
                left[holder.party] -= self._held[holder]
                free_bytes += self._held[holder]
                self._give_up(holder, f"a request held {self._held[holder]} bytes, more than its share")

        share_bytes = self._share_bytes
        for turn in self._line:
            party, more = turn.holder.party, turn.size_bytes - self._held.get(turn.holder, 0)
            if turn.holder in self._given_up or now - turn.since < PATIENCE_SECONDS:
                continue
            own = of_party[party]
            while own and own[-1].request_bytes > turn.holder.request_bytes:
                if more <= free_bytes and (len(self._shares) == 1 or left[party] + more <= share_bytes):
                    break
                end(own.pop())
            if left[party] + more > share_bytes:
                continue
            while may_end and more > free_bytes:
                holder = may_end.pop()
                if left[holder.party] > share_bytes:
                    end(holder)
            free_bytes -= more
            left[party] += more

    def _give_up(self, holder: Holder, why: str) -> None:
        if holder not in self._given_up:
            self._given_up.add(holder)
            holder.give_up(f"{why}, while others wait for memory")
