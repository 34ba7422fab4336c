"""Exactly once per partition: producer id, epoch, sequence numbers, and whose turn it is. Pure.

`Idempotence` is the accumulator's gate: it numbers batches when they are drained and holds back those whose
turn has not come. The sender tells it what became of each. Its batches may be those of transactions; which
partitions are in one is said by ``transactions.enrolment``. The rules a broker checks are in Kafka's
``ProducerAppendInfo``; decisions and their reasons: ``docs/decisions/idempotence.md``.
"""

from __future__ import annotations

from collections.abc import Container
from enum import auto
from typing import NamedTuple

from splashdam.accumulator.batch import NO_SEQUENCE, BatchState, ProducerBatch, is_earlier, sequence_after
from splashdam.model.lifecycle import Stage, next_state
from splashdam.model.values import TopicPartition

MOST_IN_FLIGHT = 5
"""A broker remembers the last five batches of a producer: no more may be unanswered."""

_ON_THE_WIRE = (BatchState.IN_FLIGHT, BatchState.ABANDONED)


class Identity(NamedTuple):
    """What the broker knows a producer by."""

    producer_id: int
    epoch: int

    @property
    def is_one(self) -> bool:
        """Whether a broker can check numbers by it: to brokers a negative id is a producer that has none."""
        return self.producer_id >= 0 and self.epoch >= 0


class PartitionSequences:
    """Sequence numbers of one partition under one identity.

    Attributes:
        identity: whose numbers they are.
        next_sequence: for the next new batch.
        acked_to: the number after the last one that the broker confirmed.
        confirmed: the broker has accepted a batch of this producer id here, so it checks the order from now
            on. Before that it accepts any number, and a second batch could overtake the first.
        unresolved: a batch that may have been written was given up without an answer.
        refused_from: the lowest number that was certainly refused; that batch and those behind it cannot be
            written under this identity.
        forgotten: the broker knows nothing of this producer here any more, and accepts any number again.
        acked_offset: the last offset that the broker confirmed, -1 where none is known.
        trouble: why the last batch was given up whose numbers are missing now; None where none are.
        in_flight: numbered batches without a final answer, ascending; on the wire or waiting for their retry.
    """

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self.next_sequence = 0
        self.acked_to = 0
        self.confirmed = False
        self.unresolved = False
        self.refused_from: int | None = None
        self.forgotten = False
        self.acked_offset = -1
        self.trouble: BaseException | None = None
        self.in_flight: list[ProducerBatch] = []

    def admits_new(self) -> bool:
        """Whether a batch without a number may be sent now.

        Not while one is repeated: it may be in the log since long, with others behind it, and the broker
        knows a repeat only as long as it is among the last five.
        """
        if self.unresolved or self.refused_from is not None:
            return False
        if len(self.in_flight) >= (MOST_IN_FLIGHT if self.confirmed else 1):
            return False
        for batch in self.in_flight:  # noqa: SIM110 (any() would run a generator; this is asked at every turn)
            if batch.attempts:
                return False
        return True

    def admits_retry(self, batch: ProducerBatch) -> bool:
        """Whether a numbered batch may be sent again now: the lowest goes alone, until it is resolved."""
        return self.is_lowest(batch) and self.may_follow(batch)

    def may_follow(self, batch: ProducerBatch) -> bool:
        """Whether no batch before it was refused, so that it can be written under this identity."""
        return self.refused_from is None or is_earlier(batch.base_sequence, self.refused_from)

    def number(self, batch: ProducerBatch) -> None:
        """Gives a new batch the next numbers."""
        batch.producer_id, batch.producer_epoch = self.identity
        batch.base_sequence = self.next_sequence
        batch.maybe_written = batch.part_in_doubt = False
        self.next_sequence = sequence_after(self.next_sequence, batch.record_count)
        self.in_flight.append(batch)

    def is_lowest(self, batch: ProducerBatch) -> bool:
        """Whether everything before the batch has its final answer."""
        return bool(self.in_flight) and self.in_flight[0] is batch

    def confirm(self, batch: ProducerBatch, last_offset: int = -1) -> None:
        """The broker has the batch, up to ``last_offset`` where that is known."""
        self.in_flight.remove(batch)
        self.confirmed = True
        self.trouble = None
        self.acked_offset = max(self.acked_offset, last_offset)
        end = sequence_after(batch.base_sequence, batch.record_count)
        if is_earlier(self.acked_to, end):
            self.acked_to = end

    def refuse(self, batch: ProducerBatch, *, keep: bool) -> None:
        """The broker certainly did not write the batch; ``keep`` it for a new identity, or drop it."""
        if self.refused_from is None or is_earlier(batch.base_sequence, self.refused_from):
            self.refused_from = batch.base_sequence
        if not keep:
            self.in_flight.remove(batch)
            self.trouble = self.trouble or batch.outcome.error

    def lose(self, batch: ProducerBatch) -> None:
        """The batch is given up, and nobody knows whether the broker wrote it."""
        self.in_flight.remove(batch)
        self.unresolved = True
        self.trouble = self.trouble or batch.outcome.error

    def reason_of_gap(self, batch: ProducerBatch) -> BaseException | None:
        """Why the broker misses what came before the batch, where that is known."""
        for earlier in self.in_flight:
            if earlier is batch:
                break
            if earlier.last_error is not None:
                return earlier.last_error
        return self.trouble

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """The batch was divided; its parts share its numbers."""
        at = self.in_flight.index(batch)
        self.in_flight[at : at + 1] = parts

    def settle(self) -> bool:
        """Clears what can be cleared without a new identity; True if a new identity is needed, now.

        It waits until nothing is on the wire and until everything before a refused batch is resolved: only
        then is it certain that no batch that would get new numbers has been written under its old ones.
        """
        if self.refused_from is None and not self.unresolved:
            return False
        if self.refused_from is None:
            if self.in_flight:
                return False
            self.unresolved = self.acked_to != self.next_sequence
            return self.unresolved
        return not any(
            batch.state in _ON_THE_WIRE or is_earlier(batch.base_sequence, self.refused_from)
            for batch in self.in_flight
        )

    def step_back(self) -> bool:
        """Goes on with the refused batch's number; False where one that may be in use would be given anew."""
        if self.unresolved or self.in_flight or self.refused_from is None:
            return False
        self.next_sequence = self.refused_from
        self.refused_from = None
        return True

    def troubled(self) -> bool:
        """Whether `settle` has something to decide, now or later."""
        return self.unresolved or self.refused_from is not None

    def start_over(self, identity: Identity) -> None:
        """Begins at 0 under another identity; batches that wait for their retry are renumbered in order."""
        if identity.producer_id != self.identity.producer_id:
            self.confirmed = False
        waiting = self.in_flight
        self.identity = identity
        self.next_sequence = self.acked_to = 0
        self.unresolved = self.forgotten = False
        self.refused_from = self.trouble = None
        self.in_flight = []
        for batch in waiting:
            self.number(batch)


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

    Args:
        own_epochs: raises the epoch by itself, and asks any broker for a producer id; else a transaction's
            coordinator alone gives identities.

    Attributes:
        state: whether there is an identity.
        identity: the present one; partitions take it over when nothing of them is in flight.
        bumps: how often the epoch was raised.
    """

    def __init__(self, *, own_epochs: bool = True) -> None:
        self._own_epochs = own_epochs
        self.state = IdState.UNINITIALIZED
        self.identity = Identity(-1, -1)
        self.bumps = 0
        self._partitions: dict[TopicPartition, PartitionSequences] = {}
        self._troubled: dict[TopicPartition, PartitionSequences] = {}

    @property
    def wants_id(self) -> bool:
        """Whether somebody should ask any broker for a producer id."""
        return self._own_epochs and self.state is IdState.UNINITIALIZED

    @property
    def identified(self) -> bool:
        """Whether an identity was ever given."""
        return self.state is IdState.READY

    @property
    def in_trouble(self) -> bool:
        """Whether a partition has numbers that cannot be continued under the present identity."""
        return any(partition.troubled() for partition in self._troubled.values())

    def requested(self) -> None:
        """InitProducerId is on its way."""
        self._advance(IdEvent.REQUEST)

    def granted(self, producer_id: int, epoch: int) -> None:
        """The broker answered InitProducerId."""
        self._advance(IdEvent.GRANT)
        self.identity = Identity(producer_id, epoch)

    def take_identity(self, producer_id: int, epoch: int) -> None:
        """A coordinator's answer: the first identity, or another one."""
        if self.state is IdState.UNINITIALIZED:
            self.requested()
            self.granted(producer_id, epoch)
            return
        self.bumps += self.identity != (producer_id, epoch)
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

    def forgotten(self, batch: ProducerBatch) -> None:
        """The broker has deleted all it had of this producer in the partition: it accepts 0 once more."""
        partition = self._in_trouble(batch)
        partition.refuse(batch, keep=True)
        partition.forgotten = True

    def hopeless(self, batch: ProducerBatch) -> bool:
        """Whether a batch that waits for its retry cannot be written any more: one before it was refused."""
        partition = self._partitions.get(batch.topic_partition)
        return batch.sequenced and partition is not None and not partition.may_follow(batch)

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
        with the number 0 for a repeat of the old one; where no epoch is given for the asking, only those of
        older identities are dropped."""
        if not self._own_epochs:
            idle = [each for each in idle if self._partitions[each].identity != self.identity]
        elif self.state is IdState.READY and not self._raise_epoch([self._partitions[each] for each in idle]):
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
        """Those of ``due`` that can begin anew under the present identity, which may be raised for it."""
        if not self._own_epochs:
            return [each for each in due if each.forgotten or each.identity != self.identity]
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
