"""How much of a broker's memory the requests that are being received may take, all clients together.

Buffers grow as bytes arrive. Where there is no room the client waits, unread; but the one whose request began
first may always grow, so that not all wait for each other. More than the limit is then held by one request.
"""

from __future__ import annotations

import trio


class RequestMemory:
    """The bytes held in receive buffers beyond the small one that each connection has.

    Args:
        limit_bytes: the most.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._held: dict[object, int] = {}
        self._growing: dict[object, None] = {}  # in the order in which their requests began
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

    async def grow(self, who: object, size_bytes: int) -> None:
        """Returns once somebody may hold so many bytes."""
        self._growing.setdefault(who)
        while not self._may_hold(who, size_bytes):
            await self._room.wait()
        self._hold(who, size_bytes)

    def done(self, who: object, kept_bytes: int) -> None:
        """Somebody's request is complete; so much of the memory is kept for the next one."""
        self._growing.pop(who, None)
        self._hold(who, kept_bytes)
        room, self._room = self._room, trio.Event()
        room.set()

    def _may_hold(self, who: object, size_bytes: int) -> bool:
        others = self._total_bytes - self._held.get(who, 0)
        return others + size_bytes <= self._limit_bytes or who is next(iter(self._growing))

    def _hold(self, who: object, size_bytes: int) -> None:
        self._total_bytes += size_bytes - self._held.pop(who, 0)
        if size_bytes:
            self._held[who] = size_bytes
