"""The gate of a transactional producer: sequence numbers, and which partitions are in its transaction."""

from __future__ import annotations

from splashdam.accumulator.batch import ProducerBatch
from splashdam.model.values import TopicPartition
from splashdam.sender.idempotence.idempotence import Idempotence, IdState
from splashdam.sender.idempotence.partition_sequences import Identity, PartitionSequences


class TransactionalSequences(Idempotence):
    """As ``Idempotence``, but the coordinator alone gives identities, and batches go in transactions only.

    Attributes:
        open: batches may leave their queues: a transaction is open, or being committed.
        implicit: leaders add their partitions to the transaction themselves (KIP-890).
        added: partitions that are in the transaction.
        adding: partitions that the coordinator is asked to add.
        wanted: partitions that are to be added.
    """

    def __init__(self) -> None:
        super().__init__()
        self.open = False
        self.implicit = False
        self.added: set[TopicPartition] = set()
        self.adding: set[TopicPartition] = set()
        self.wanted: set[TopicPartition] = set()

    @property
    def wants_id(self) -> bool:
        """Never: the transaction's coordinator is asked, not anybody."""
        return False

    @property
    def identified(self) -> bool:
        """Whether the coordinator has ever given an identity."""
        return self.state is IdState.READY

    @property
    def in_trouble(self) -> bool:
        """Whether a partition has numbers that cannot be continued under the present identity."""
        return any(partition.troubled() for partition in self._troubled.values())

    def take_identity(self, producer_id: int, epoch: int) -> None:
        """The coordinator's answer."""
        if self.state is IdState.UNINITIALIZED:
            self.requested()
            self.granted(producer_id, epoch)
            return
        self.bumps += self.identity != (producer_id, epoch)
        self.identity = Identity(producer_id, epoch)

    def begin(self, *, implicit: bool) -> None:
        """Nothing is in the transaction yet."""
        self.implicit = implicit
        for partitions in (self.added, self.adding, self.wanted):
            partitions.clear()

    def admits(self, batch: ProducerBatch) -> bool:
        """See ``Idempotence.admits``; a partition that is not in the transaction is wanted there."""
        if not super().admits(batch):
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
        super().drained(batch)

    def ask_for_wanted(self) -> frozenset[TopicPartition]:
        """What the coordinator is to be asked to add."""
        self.adding, self.wanted = self.wanted, set()
        return frozenset(self.adding)

    def add_decided(self, *, added: bool) -> None:
        """The coordinator's answer to that."""
        if added:
            self.added |= self.adding
        self.adding.clear()

    def forgotten(self, batch: ProducerBatch) -> None:
        """The broker has deleted all it had of this producer in the partition: it accepts 0 once more."""
        partition = self._in_trouble(batch)
        partition.refuse(batch, keep=True)
        partition.forgotten = True

    def hopeless(self, batch: ProducerBatch) -> bool:
        """Whether a batch that waits for its retry cannot be written any more: one before it was refused."""
        partition = self._partitions.get(batch.topic_partition)
        return batch.sequenced and partition is not None and not partition.may_follow(batch)

    def step_back(self) -> bool:
        """Where no new epoch is to be had: takes numbers back that were certainly not used.

        Returns:
            False if there are others.
        """
        for topic_partition, partition in list(self._troubled.items()):
            if not partition.step_back():
                return False
            del self._troubled[topic_partition]
        return True

    def _renewed(self, due: list[PartitionSequences]) -> list[PartitionSequences]:
        return [each for each in due if each.forgotten or each.identity != self.identity]

    def _forget(self, idle: list[TopicPartition]) -> None:
        """Only those of older identities: no epoch is given for the asking here."""
        for each in idle:
            if self._partitions[each].identity != self.identity:
                del self._partitions[each]
