"""What a log that has other replicas knows of them."""

from __future__ import annotations

from typing import Protocol


class Replication(Protocol):
    """What a log that has other replicas knows of them; see ``embedded_broker/replication``."""

    @property
    def leader_epoch(self) -> int:
        """In which the partition is led, here or elsewhere."""
        ...

    def check_leading(self) -> None:
        """Raises NotLeaderOrFollowerError where another broker leads, or nobody does."""
        ...

    def check_enough_in_sync(self) -> None:
        """Before an append that all replicas in sync are to have; raises NotEnoughReplicasError."""
        ...

    def advance(self) -> None:
        """The log has grown: the high watermark moves as far as it may."""
        ...

    @property
    def term(self) -> int:
        """Another one after each time that somebody else led: what was appended before may be gone."""
        ...

    def log_failed(self) -> None:
        """The log takes nothing any more: another replica is to lead."""
        ...

    async def wait_replicated(self, offset: int, term: int) -> None:
        """Returns when everything below ``offset``, appended in this term, is on all replicas in sync.

        Raises:
            NotLeaderOrFollowerError: somebody else leads, or has led; it may or may not have it.
            NotEnoughReplicasAfterAppendError: it is, but they have become too few.
        """
        ...

    async def wait_deleted(self, offset: int) -> None:
        """Returns when nobody who may lead next has anything below ``offset`` any more.

        Raises:
            NotLeaderOrFollowerError: somebody else leads.
        """
        ...
