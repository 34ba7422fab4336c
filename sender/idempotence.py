"""Exactly once per partition: producer id, epoch, sequence numbers, and which batch may be sent. Pure.

`Idempotence` is the accumulator's drain gate: it numbers batches when they are drained and holds back those
that must not be sent yet. The sender reports the outcome of each batch. With transactions,
``transactions.manager.TransactionPartitions`` tracks which partitions are in the open one. The rules that
brokers check are in Kafka's ``ProducerAppendInfo``; decisions and their reasons:
``docs/decisions/idempotence.md``.
"""

from __future__ import annotations

from collections.abc import Container
from enum import auto
from typing import NamedTuple

from splashdam.accumulator.batch import NO_SEQUENCE, BatchState, ProducerBatch, is_earlier, sequence_after
from splashdam.model.lifecycle import Stage, next_state
from splashdam.model.values import TopicPartition
from splashdam.model.views.standing import Standing

MOST_IN_FLIGHT = 5
"""Brokers keep the last five batches of a producer to detect duplicates, so no more may be in flight."""

_GAP, _NO_PRODUCER_ID, _EARLIER_RETRIES = Standing.GAP, Standing.NO_PRODUCER_ID, Standing.EARLIER_RETRIES
_FIRST_IN_FLIGHT, _ALL_IN_FLIGHT = Standing.FIRST_IN_FLIGHT, Standing.ALL_IN_FLIGHT

_ON_THE_WIRE = (BatchState.IN_FLIGHT, BatchState.ABANDONED)


class Identity(NamedTuple):
    """Producer id and epoch."""

    producer_id: int
    epoch: int

    @property
    def is_one(self) -> bool:
        """Whether it is valid: brokers take a negative producer id for a producer without idempotence."""
        return self.producer_id >= 0 and self.epoch >= 0


class PartitionSequences:
    """Sequence numbers of one partition under one identity.

    Attributes:
        identity: producer id and epoch of these numbers.
        next_sequence: for the next new batch.
        acked_to: the sequence after the last one that the broker acknowledged.
        confirmed: the broker has accepted a batch of this producer id and checks the order from now on.
            Before that it accepts any sequence, and a second batch could overtake the first.
        unresolved: a batch that may have been written was failed without an answer.
        refused_from: the lowest sequence that was not written; neither this batch nor later ones can be
            written under this identity.
        forgotten: the broker has lost its state of this producer and accepts any sequence again.
        acked_offset: the last offset that the broker confirmed, -1 where none is known.
        gap_cause: why the batch failed whose numbers the broker misses; None if there is no gap.
        in_flight: numbered batches without a final answer, by sequence; on the wire or awaiting a retry.
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
        self.gap_cause: BaseException | None = None
        self.in_flight: list[ProducerBatch] = []

    def holds_new(self) -> Standing | None:
        """Return what a batch without sequence numbers waits for; None if it may be sent now."""
        if self.unresolved or self.refused_from is not None:
            return _GAP
        # Until one batch is confirmed, the broker accepts any number from this producer id: if it refused the
        # first batch for the moment and took the second, the first could never be written in its place.
        if len(self.in_flight) >= (MOST_IN_FLIGHT if self.confirmed else 1):
            return _ALL_IN_FLIGHT if self.confirmed else _FIRST_IN_FLIGHT
        # A batch that is retried may be in the log already. Behind new ones it could drop out of the
        # last five, among which the broker detects a duplicate: the next retry would look like a gap.
        # Java sends them (docs/decisions/idempotence.md).
        for batch in self.in_flight:
            if batch.attempts:
                return _EARLIER_RETRIES
        return None

    def holds_retry(self, batch: ProducerBatch) -> Standing | None:
        """Return what a retry waits for: only the lowest sequence goes, until it is resolved."""
        if not self.is_lowest(batch):
            return _EARLIER_RETRIES
        return None if self.may_follow(batch) else _GAP

    def may_follow(self, batch: ProducerBatch) -> bool:
        """Whether no earlier batch was refused, so that it can be written under this identity."""
        return self.refused_from is None or is_earlier(batch.base_sequence, self.refused_from)

    def number(self, batch: ProducerBatch) -> None:
        """Assign the next sequence numbers to a batch."""
        batch.producer_id, batch.producer_epoch = self.identity
        batch.base_sequence = self.next_sequence
        # A batch that is numbered again was not written under its old numbers: `settle` has waited for that.
        batch.maybe_written = batch.part_in_doubt = False
        self.next_sequence = sequence_after(self.next_sequence, batch.record_count)
        self.in_flight.append(batch)

    def is_lowest(self, batch: ProducerBatch) -> bool:
        """Whether all earlier batches have their final answer."""
        return bool(self.in_flight) and self.in_flight[0] is batch

    def confirm(self, batch: ProducerBatch, last_offset: int = -1) -> None:
        """Record an acknowledged batch; ``last_offset`` is -1 if unknown."""
        self.in_flight.remove(batch)
        self.confirmed = True
        self.gap_cause = None
        self.acked_offset = max(self.acked_offset, last_offset)
        end = sequence_after(batch.base_sequence, batch.record_count)
        # Only forward: a retry may be acknowledged after a later batch was.
        if is_earlier(self.acked_to, end):
            self.acked_to = end

    def refuse(self, batch: ProducerBatch, *, keep: bool) -> None:
        """Record a batch that was not written; ``keep`` it for a new identity, or drop it."""
        if self.refused_from is None or is_earlier(batch.base_sequence, self.refused_from):
            self.refused_from = batch.base_sequence
        if not keep:
            self.in_flight.remove(batch)
            self.gap_cause = self.gap_cause or batch.outcome.error

    def lose(self, batch: ProducerBatch) -> None:
        """Drop a failed batch of which it is unknown whether the broker wrote it."""
        # Its numbers are not reused: if the log has them, a batch with the same numbers would be taken for a
        # duplicate and acknowledged without being written.
        self.in_flight.remove(batch)
        self.unresolved = True
        self.gap_cause = self.gap_cause or batch.outcome.error

    def reason_of_gap(self, batch: ProducerBatch) -> BaseException | None:
        """Why the broker misses an earlier batch, None if unknown."""
        for earlier in self.in_flight:
            if earlier is batch:
                break
            if earlier.last_error is not None:
                return earlier.last_error
        return self.gap_cause

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Replace a split batch by its parts, which share its sequence numbers."""
        at = self.in_flight.index(batch)
        self.in_flight[at : at + 1] = parts

    def settle(self) -> bool:
        """Resolve what needs no new identity; return True if a new identity is needed now.

        The batches that await a retry get new numbers then; see ``start_over``.
        """
        if self.refused_from is None and not self.unresolved:
            return False
        if self.refused_from is None:
            if self.in_flight:
                return False
            # A later batch was acknowledged up to the last number: the doubtful one is in the log after all.
            self.unresolved = self.acked_to != self.next_sequence
            return self.unresolved
        # Nothing on the wire, and all batches before the refused one resolved: only then is it certain that
        # no batch that gets new numbers has been written under its old ones.
        return not any(
            batch.state in _ON_THE_WIRE or is_earlier(batch.base_sequence, self.refused_from)
            for batch in self.in_flight
        )

    def reuse_sequences(self) -> bool:
        """Continue with the refused batch's sequence; False if a batch with that number may be in the log."""
        if self.unresolved or self.in_flight or self.refused_from is None:
            return False
        self.next_sequence = self.refused_from
        self.refused_from = None
        return True

    def unsettled(self) -> bool:
        """Whether `settle` has something to resolve, now or later."""
        return self.unresolved or self.refused_from is not None

    def start_over(self, identity: Identity) -> None:
        """Restart at sequence 0 under another identity; renumber the batches that await a retry."""
        if identity.producer_id != self.identity.producer_id:
            self.confirmed = False  # the broker does not know the new id; a new epoch it does
        waiting = self.in_flight
        self.identity = identity
        self.next_sequence = self.acked_to = 0
        self.unresolved = self.forgotten = False
        self.refused_from = self.gap_cause = None
        self.in_flight = []
        for batch in waiting:
            self.number(batch)


# The largest number of 16 bits with a sign, as on the wire.
LAST_EPOCH = 32_767

MOST_IDLE = 1_000
"""Number of unused partitions whose sequences are kept; above it, all of them are dropped together."""


class IdState(Stage):
    """Whether the producer has a producer id."""

    UNINITIALIZED = auto()
    INITIALIZING = auto()
    READY = auto()


class IdEvent(Stage):
    """Events of the producer id."""

    REQUEST = auto()
    """InitProducerId was sent."""
    GRANT = auto()
    """The broker gave a producer id and epoch."""
    REFUSE = auto()
    """The broker refused, or no answer came."""
    BUMP = auto()
    """The epoch was raised locally."""
    EXHAUST = auto()
    """The last epoch is used up: a new producer id is needed."""


TRANSITIONS: dict[tuple[IdState, IdEvent], IdState] = {
    (IdState.UNINITIALIZED, IdEvent.REQUEST): IdState.INITIALIZING,
    (IdState.INITIALIZING, IdEvent.GRANT): IdState.READY,
    (IdState.INITIALIZING, IdEvent.REFUSE): IdState.UNINITIALIZED,
    (IdState.READY, IdEvent.BUMP): IdState.READY,
    (IdState.READY, IdEvent.EXHAUST): IdState.UNINITIALIZED,
}


class Idempotence:
    """Producer id, epoch and sequence numbers of one producer.

    Args:
        own_epochs: raise the epoch locally and ask any broker for a producer id. False: with transactions,
            the coordinator alone assigns both.

    Attributes:
        state: whether there is an identity.
        identity: the current one; a partition adopts it once none of its batches is in flight.
        bumps: how often the epoch was raised.
    """

    def __init__(self, *, own_epochs: bool = True) -> None:
        self._own_epochs = own_epochs
        self.state = IdState.UNINITIALIZED
        self.identity = Identity(-1, -1)
        self.bumps = 0
        self._partitions: dict[TopicPartition, PartitionSequences] = {}
        self._unsettled: dict[TopicPartition, PartitionSequences] = {}

    @property
    def wants_id(self) -> bool:
        """Whether an InitProducerId request to any broker is due."""
        return self._own_epochs and self.state is IdState.UNINITIALIZED

    @property
    def at_rest(self) -> bool:
        """Whether a turn has nothing to do for it: there is a producer id, and no partition needs another."""
        return self.state is IdState.READY and not self._unsettled

    @property
    def identified(self) -> bool:
        """Whether there is a producer id."""
        return self.state is IdState.READY

    @property
    def unsettled(self) -> bool:
        """Whether a partition has a gap that needs a new identity."""
        return any(partition.unsettled() for partition in self._unsettled.values())

    def requested(self) -> None:
        """Note that InitProducerId was sent."""
        self._advance(IdEvent.REQUEST)

    def granted(self, producer_id: int, epoch: int) -> None:
        """Take the producer id and epoch of an InitProducerId response."""
        self._advance(IdEvent.GRANT)
        self.identity = Identity(producer_id, epoch)

    def take_identity(self, producer_id: int, epoch: int) -> None:
        """Adopt the identity that the transaction coordinator assigned."""
        if self.state is IdState.UNINITIALIZED:
            self.requested()
            self.granted(producer_id, epoch)
            return
        # The partitions take it over one by one, each when none of its batches is in flight.
        self.bumps += self.identity != (producer_id, epoch)
        self.identity = Identity(producer_id, epoch)

    def refused_id(self) -> None:
        """Note that InitProducerId failed, so that it is sent again."""
        self._advance(IdEvent.REFUSE)

    def holds(self, batch: ProducerBatch) -> Standing | None:
        """Return what the head of a queue waits for; None if it may be sent now."""
        partition = self._partitions.get(batch.topic_partition)
        if batch.base_sequence != NO_SEQUENCE:
            return _GAP if partition is None else partition.holds_retry(batch)
        # A partition with batches in flight keeps its identity, so it does not wait for a new one.
        if self.state is not IdState.READY and (partition is None or not partition.in_flight):
            return _NO_PRODUCER_ID
        return None if partition is None else partition.holds_new()

    def drained(self, batch: ProducerBatch) -> None:
        """Number a new batch; a retried one keeps its numbers."""
        if batch.base_sequence != NO_SEQUENCE:
            return
        partition = self._partitions.get(batch.topic_partition)
        if partition is None:
            partition = self._partitions[batch.topic_partition] = PartitionSequences(self.identity)
        elif not partition.in_flight and partition.identity != self.identity:
            # Brokers keep their state per partition, so each one changes to the new epoch when it is free to.
            partition.start_over(self.identity)
        partition.number(batch)

    def delivered(self, batch: ProducerBatch, last_offset: int = -1) -> None:
        """Record an acknowledged batch; ``last_offset`` is -1 if unknown."""
        self._partitions[batch.topic_partition].confirm(batch, last_offset)

    def is_lowest(self, batch: ProducerBatch) -> bool:
        """Whether all earlier batches of its partition have their final answer."""
        return self._partitions[batch.topic_partition].is_lowest(batch)

    def reason_of_gap(self, batch: ProducerBatch) -> BaseException | None:
        """Why the broker misses an earlier batch of the partition, None if unknown."""
        return self._partitions[batch.topic_partition].reason_of_gap(batch)

    def acked_offset(self, batch: ProducerBatch) -> int:
        """The last acknowledged offset in the batch's partition, -1 if unknown."""
        return self._partitions[batch.topic_partition].acked_offset

    def refused(self, batch: ProducerBatch) -> None:
        """Record a failed batch that was not written."""
        self._unsettle(batch).refuse(batch, keep=False)

    def lost(self, batch: ProducerBatch) -> None:
        """Record a failed batch that may have been written."""
        self._unsettle(batch).lose(batch)

    def abandoned(self, batch: ProducerBatch) -> None:
        """Record a batch that failed in flight. Nothing new is sent until its answer arrives."""
        self._unsettle(batch).unresolved = True

    def out_of_sequence(self, batch: ProducerBatch) -> bool:
        """Handle a batch whose sequence the broker did not expect; it will be retried.

        Returns:
            True if there is a gap, so that it needs a new identity; False if an earlier batch goes first.
        """
        if not self.is_lowest(batch):
            return False
        self._unsettle(batch).refuse(batch, keep=True)
        return True

    def forgotten(self, batch: ProducerBatch) -> None:
        """Record that the broker deleted all records of this producer and accepts sequence 0 again."""
        partition = self._unsettle(batch)
        partition.refuse(batch, keep=True)
        partition.forgotten = True

    def unsendable(self, batch: ProducerBatch) -> bool:
        """Whether a batch cannot be retried any more because an earlier one was refused."""
        partition = self._partitions.get(batch.topic_partition)
        return batch.sequenced and partition is not None and not partition.may_follow(batch)

    def split(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Let the parts of a split batch take its place and its sequence numbers."""
        self._partitions[batch.topic_partition].replace(batch, parts)

    def expect_expiry(self, topics_in_use: Container[str]) -> None:
        """Send the next batch of every unused topic alone, since brokers may have expired the producer there.

        Brokers drop the state of an idle producer after ``producer.id.expiration.ms``, and then accept any
        sequence number.
        """
        idle = []
        for topic_partition, partition in self._partitions.items():
            if topic_partition.topic not in topics_in_use:
                partition.confirmed = False
                if not partition.in_flight and topic_partition not in self._unsettled:
                    idle.append(topic_partition)
        if len(idle) > MOST_IDLE:
            self._forget(idle)

    def _forget(self, idle: list[TopicPartition]) -> None:
        """Drop the sequences of these partitions.

        The epoch is raised, since a broker that still has them would take a new batch with sequence 0 for a
        duplicate. Without own epochs, only sequences of older identities are dropped.
        """
        if not self._own_epochs:
            idle = [each for each in idle if self._partitions[each].identity != self.identity]
        elif self.state is IdState.READY and not self._raise_epoch([self._partitions[each] for each in idle]):
            return  # no epoch is left; drop them next time, under the new producer id
        for each in idle:
            del self._partitions[each]

    def settle(self) -> None:
        """Give a new identity to the partitions that need one and can take it; raise the epoch once for all.

        Called once per sender turn, since a batch on the wire must not be renumbered.
        """
        if not self._unsettled:
            return
        due = []
        for topic_partition, partition in list(self._unsettled.items()):
            if partition.settle():
                due.append(partition)
            elif not partition.unsettled():
                del self._unsettled[topic_partition]
        renewed = self._renewed(due) if due else ()
        for partition in renewed:
            partition.start_over(self.identity)
        if renewed:
            self._unsettled = {key: value for key, value in self._unsettled.items() if value.unsettled()}

    def reuse_sequences(self) -> bool:
        """Reuse sequence numbers that were not written, for brokers that cannot give a new epoch.

        Returns:
            False if some may have been written.
        """
        for topic_partition, partition in list(self._unsettled.items()):
            if not partition.reuse_sequences():
                return False
            del self._unsettled[topic_partition]
        return True

    def _renewed(self, due: list[PartitionSequences]) -> list[PartitionSequences]:
        """Return the partitions of ``due`` that can restart now; raise the epoch if that is needed."""
        if not self._own_epochs:
            return [each for each in due if each.forgotten or each.identity != self.identity]
        return due if self._raise_epoch(due) else []

    def _raise_epoch(self, due: list[PartitionSequences]) -> bool:
        if self.state is not IdState.READY:
            return False
        if all(partition.identity != self.identity for partition in due):
            return True  # the current identity is new to all of them
        if self.identity.epoch >= LAST_EPOCH:
            self._advance(IdEvent.EXHAUST)
            return False
        self._advance(IdEvent.BUMP)
        self.identity = self.identity._replace(epoch=self.identity.epoch + 1)
        self.bumps += 1
        return True

    def _unsettle(self, batch: ProducerBatch) -> PartitionSequences:
        partition = self._unsettled[batch.topic_partition] = self._partitions[batch.topic_partition]
        return partition

    def _advance(self, event: IdEvent) -> None:
        self.state = next_state(TRANSITIONS, self.state, event, "a producer identity")
