"""The sequence numbers of one partition: which batches carry some, and whose turn it is.

Pure decisions. The rules a broker checks are in Kafka's ``ProducerAppendInfo``; why recovery works as it does
is in ``docs/decisions/idempotence.md``.
"""

from __future__ import annotations

from typing import NamedTuple

from splashdam.accumulator.batch import BatchState, ProducerBatch
from splashdam.accumulator.sequences import is_earlier, sequence_after

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
