"""Which partitions are in a producer's transaction: the accumulator's gate before its sequence numbers."""

from __future__ import annotations

from splashdam.accumulator.batch import ProducerBatch
from splashdam.model.values import TopicPartition
from splashdam.sender.idempotence import Idempotence


class Enrolment:
    """Admits what may go into the transaction and ``sequences`` admits, too. Pure.

    Args:
        sequences: numbers what is admitted.

    Attributes:
        open: batches may leave their queues: a transaction is open, or being committed.
        implicit: leaders add their partitions to the transaction themselves (KIP-890).
        added: partitions that are in the transaction.
        adding: partitions that the coordinator is asked to add.
        wanted: partitions that are to be added.
    """

    def __init__(self, sequences: Idempotence) -> None:
        self._sequences = sequences
        self.open = False
        self.implicit = False
        self.added: set[TopicPartition] = set()
        self.adding: set[TopicPartition] = set()
        self.wanted: set[TopicPartition] = set()

    def begin(self, *, implicit: bool) -> None:
        """Nothing is in the transaction yet."""
        self.implicit = implicit
        for partitions in (self.added, self.adding, self.wanted):
            partitions.clear()

    def admits(self, batch: ProducerBatch) -> bool:
        """See ``Idempotence.admits``; a partition that is not in the transaction is wanted there."""
        if not self._sequences.admits(batch):
            return False
        if batch.sequenced:
            return True
        if not self.open:
            return False
        topic_partition = batch.topic_partition
        if self.implicit or topic_partition in self.added:
            return True
        if topic_partition not in self.adding:
            self.wanted.add(topic_partition)
        return False

    def drained(self, batch: ProducerBatch) -> None:
        """See ``Idempotence.drained``."""
        batch.transactional = True
        self.added.add(batch.topic_partition)
        self._sequences.drained(batch)

    def ask_for_wanted(self) -> frozenset[TopicPartition]:
        """What the coordinator is to be asked to add."""
        self.adding, self.wanted = self.wanted, set()
        return frozenset(self.adding)

    def add_decided(self, *, added: bool) -> None:
        """The coordinator's answer to that."""
        if added:
            self.added |= self.adding
        self.adding.clear()
