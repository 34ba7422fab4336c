"""Exactly once per partition without transactions: producer id, epoch, and whose turn it is. Pure.

`Idempotence` is the accumulator's gate: it numbers batches when they are drained and holds back those whose
turn has not come. The sender tells it what became of each. Decisions and their reasons:
``docs/decisions/idempotence.md``.
"""

from __future__ import annotations

from collections.abc import Container
from enum import auto

from splashdam.accumulator.batch import ProducerBatch
from splashdam.accumulator.sequences import NO_SEQUENCE
from splashdam.model.lifecycle import Stage, next_state
from splashdam.model.values import TopicPartition
from splashdam.sender.idempotence.partition_sequences import Identity, PartitionSequences

LAST_EPOCH = 32_767

MOST_IDLE = 1_000
"""So many partitions that are out of use are remembered; beyond that they are forgotten together."""


class IdState(Stage):
    """Whether the producer has an identity."""

    UNINITIALIZED = auto()
    INITIALIZING = auto()
    READY = auto()


class IdEvent(Stage):
    """What can happen to the producer's identity."""

    REQUEST = auto()
    """InitProducerId was sent."""
    GRANT = auto()
    """The broker gave a producer id and epoch."""
    REFUSE = auto()
    """It did not, or no answer came."""
    BUMP = auto()
    """The epoch was raised, here, without asking anybody."""
    EXHAUST = auto()
    """There is no higher epoch: a new producer id is needed."""


TRANSITIONS: dict[tuple[IdState, IdEvent], IdState] = {
    (IdState.UNINITIALIZED, IdEvent.REQUEST): IdState.INITIALIZING,
    (IdState.INITIALIZING, IdEvent.GRANT): IdState.READY,
    (IdState.INITIALIZING, IdEvent.REFUSE): IdState.UNINITIALIZED,
    (IdState.READY, IdEvent.BUMP): IdState.READY,
    (IdState.READY, IdEvent.EXHAUST): IdState.UNINITIALIZED,
}


class Idempotence:
    """Identity and sequence numbers of one producer.

    Attributes:
        state: whether there is an identity.
        identity: the present one; partitions take it over when nothing of them is in flight.
        bumps: how often the epoch was raised.
    """

    def __init__(self) -> None:
        self.state = IdState.UNINITIALIZED
        self.identity = Identity(-1, -1)
        self.bumps = 0
        self._partitions: dict[TopicPartition, PartitionSequences] = {}
        self._troubled: dict[TopicPartition, PartitionSequences] = {}

    @property
    def wants_id(self) -> bool:
        """Whether somebody should ask for a producer id."""
        return self.state is IdState.UNINITIALIZED

    def requested(self) -> None:
        """InitProducerId is on its way."""
        self._advance(IdEvent.REQUEST)

    def granted(self, producer_id: int, epoch: int) -> None:
        """The broker answered InitProducerId."""
        self._advance(IdEvent.GRANT)
        self.identity = Identity(producer_id, epoch)

    def refused_id(self) -> None:
        """The broker did not give an id; it may be asked again."""
        self._advance(IdEvent.REFUSE)

    def admits(self, batch: ProducerBatch) -> bool:
        """Whether the head of a queue may be sent now."""
        partition = self._partitions.get(batch.topic_partition)
        if batch.base_sequence != NO_SEQUENCE:
            return partition is not None and partition.admits_retry(batch)
        if partition is None:
            return self.state is IdState.READY
        if not partition.in_flight and self.state is not IdState.READY:
            return False
        return partition.admits_new()

    def drained(self, batch: ProducerBatch) -> None:
        """Numbers a new batch; one that was sent before keeps its numbers."""
        if batch.base_sequence != NO_SEQUENCE:
            return
        partition = self._partitions.get(batch.topic_partition)
        if partition is None:
            partition = self._partitions[batch.topic_partition] = PartitionSequences(self.identity)
        elif not partition.in_flight and partition.identity != self.identity:
            partition.start_over(self.identity)
        partition.number(batch)

    def delivered(self, batch: ProducerBatch, last_offset: int = -1) -> None:
        """The broker has the batch, up to ``last_offset`` where that is known."""
        self._partitions[batch.topic_partition].confirm(batch, last_offset)

    def is_lowest(self, batch: ProducerBatch) -> bool:
        """Whether everything before the batch in its partition has its final answer."""
        return self._partitions[batch.topic_partition].is_lowest(batch)

    def reason_of_gap(self, batch: ProducerBatch) -> BaseException | None:
        """Why the broker misses what came before the batch in its partition, where that is known."""
        return self._partitions[batch.topic_partition].reason_of_gap(batch)

    def acked_offset(self, batch: ProducerBatch) -> int:
        """The last offset that was confirmed in the batch's partition, -1 where none is known."""
        return self._partitions[batch.topic_partition].acked_offset

    def refused(self, batch: ProducerBatch) -> None:
        """The broker certainly did not write the batch, and it is given up."""
        self._in_trouble(batch).refuse(batch, keep=False)

    def lost(self, batch: ProducerBatch) -> None:
        """The batch is given up, and it may have been written."""
        self._in_trouble(batch).lose(batch)

    def abandoned(self, batch: ProducerBatch) -> None:
        """The application was told that it failed; until its answer comes nothing new is sent."""
        self._in_trouble(batch).unresolved = True

    def out_of_sequence(self, batch: ProducerBatch) -> bool:
        """The broker expected another number, or does not know the producer; the batch will be sent again.

        Returns:
            True if there is a gap, so that it needs a new identity; False if something before it failed and
            goes first.
        """
        if not self.is_lowest(batch):
            return False
        self._in_trouble(batch).refuse(batch, keep=True)
        return True

    def divided(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """The batch was split into ``parts``, which share its numbers."""
        self._partitions[batch.topic_partition].replace(batch, parts)

    def doubt(self, topics_in_use: Container[str]) -> None:
        """Brokers forget a producer that is idle for long: other topics begin with one batch alone again."""
        idle = []
        for topic_partition, partition in self._partitions.items():
            if topic_partition.topic not in topics_in_use:
                partition.confirmed = False
                if not partition.in_flight and topic_partition not in self._troubled:
                    idle.append(topic_partition)
        if len(idle) > MOST_IDLE:
            self._forget(idle)

    def _forget(self, idle: list[TopicPartition]) -> None:
        """Drops their numbers. The epoch goes up, since a broker that remembers them would take a new batch
        with the number 0 for a repeat of the old one."""
        if self.state is IdState.READY and not self._raise_epoch([self._partitions[each] for each in idle]):
            return  # no epoch is left; forgotten the next time, under the new producer id
        for each in idle:
            del self._partitions[each]

    def settle(self) -> None:
        """Gives a new identity to the partitions that need one and can take it: raises the epoch once for
        all.

        Called once per turn of the sender, since nobody may be numbered anew while it is on the wire.
        """
        if not self._troubled:
            return
        due = []
        for topic_partition, partition in list(self._troubled.items()):
            if partition.settle():
                due.append(partition)
            elif not partition.troubled():
                del self._troubled[topic_partition]
        renewed = self._renewed(due) if due else ()
        for partition in renewed:
            partition.start_over(self.identity)
        if renewed:
            self._troubled = {key: value for key, value in self._troubled.items() if value.troubled()}

    def _renewed(self, due: list[PartitionSequences]) -> list[PartitionSequences]:
        """Those of ``due`` that can begin anew under the present identity, which may be raised for it."""
        return due if self._raise_epoch(due) else []

    def _raise_epoch(self, due: list[PartitionSequences]) -> bool:
        if self.state is not IdState.READY:
            return False
        if all(partition.identity != self.identity for partition in due):
            return True  # the present identity is new to all of them
        if self.identity.epoch >= LAST_EPOCH:
            self._advance(IdEvent.EXHAUST)
            return False
        self._advance(IdEvent.BUMP)
        self.identity = self.identity._replace(epoch=self.identity.epoch + 1)
        self.bumps += 1
        return True

    def _in_trouble(self, batch: ProducerBatch) -> PartitionSequences:
        partition = self._troubled[batch.topic_partition] = self._partitions[batch.topic_partition]
        return partition

    def _advance(self, event: IdEvent) -> None:
        self.state = next_state(TRANSITIONS, self.state, event, "a producer identity")
