"""Whether the loop may stand still for the next request of one client, instead of looking at all clients."""

from __future__ import annotations

from splashdam.embedded_broker.topics.parking import FetchParking

UNDIVIDED_SECONDS = 0.1
"""So long nobody else must have been heard."""
STRAIGHT_READS = 16
"""After so many reads past the scheduler, about a millisecond, other clients and tasks have their turn."""


class Attention:
    """Knows which client was heard last, and since when nobody else was.

    Args:
        parking: fetches that wait; what wakes them needs the loop at once.
        own_loop: nothing but the broker runs in its trio loop.
    """

    def __init__(self, parking: FetchParking, own_loop: bool) -> None:
        self._parking = parking
        self._own_loop = own_loop
        self._client: object = None
        self._since = 0.0

    def straight_reads(self, client: object, now: float) -> int:
        """How many of this client's next requests the loop may stand still for.

        Args:
            client: whoever was heard just now, through the scheduler; a mark of it, since it is kept.
            now: in seconds, of any clock.
        """
        if client is not self._client:
            self._client = client
            self._since = now
            return 0
        if not self._own_loop or len(self._parking) or now - self._since < UNDIVIDED_SECONDS:
            return 0
        return STRAIGHT_READS
