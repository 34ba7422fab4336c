"""One partition's sequence numbers against a broker's rules: sent, lost, refused and given up in any order.

The broker is a ``ScriptedLog``, which accepts any number from a producer it does not know, remembers five
batches, and can forget. Requests of one connection reach it in order; a broken connection loses those behind.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from support.running.examples import examples
from support.scripted.log import ScriptedLog

from splashdam.accumulator.batch import BatchEvent, ProducerBatch
from splashdam.model.values import TopicPartition
from splashdam.record.compression import NO_COMPRESSION
from splashdam.record.kernel import BatchBuffer
from splashdam.record.reader import read_records
from splashdam.sender.idempotence import MOST_IN_FLIGHT, Idempotence

TP = TopicPartition("t", 0)
NOT_WRITTEN, OUT_OF_ORDER = 19, 45


class IdempotenceMachine(RuleBasedStateMachine):
    """Plays sender and network around an ``Idempotence``."""

    def __init__(self) -> None:
        super().__init__()
        self.idempotence = Idempotence()
        self.idempotence.requested()
        self.idempotence.granted(7, 0)
        self.log = ScriptedLog()
        self.queue: list[ProducerBatch] = []  # waiting for a retry, in order
        self.wire: list[ProducerBatch] = []
        self.acked: list[bytes] = []
        self.count = 0

    def new_batch(self, records: int) -> ProducerBatch:
        buffer = BatchBuffer(10_000)
        for _ in range(records):
            self.count += 1
            buffer.try_append(0, None, b"%d" % self.count, None)
        batch = ProducerBatch(TP, buffer, 0, 0)
        batch.close()
        return batch

    def ship(self, batch: ProducerBatch) -> None:
        batch.advance(BatchEvent.DRAIN)
        self.idempotence.drained(batch)
        batch.seal(NO_COMPRESSION)
        self.wire.append(batch)

    def comes_back(self, batch: ProducerBatch, *, maybe_written: bool) -> None:
        batch.maybe_written |= maybe_written
        batch.advance(BatchEvent.RETRY)
        batch.attempts += 1
        self.queue = sorted([*self.queue, batch], key=self.idempotence._partitions[TP].in_flight.index)

    def gives_up(self, batch: ProducerBatch, *, certain: bool) -> None:
        batch.advance(BatchEvent.FAIL)
        if certain and not batch.maybe_written:
            self.idempotence.refused(batch)
        else:
            self.idempotence.lost(batch)

    @rule(records=st.integers(1, 3))
    def send(self, records: int) -> None:
        batch = self.queue[0] if self.queue else self.new_batch(records)
        if self.idempotence.holds(batch) is None:
            if self.queue:
                self.queue.pop(0)
            self.ship(batch)

    @precondition(lambda self: self.wire)
    @rule(answered=st.booleans())
    def broker_works(self, answered: bool) -> None:
        """The usual: written, recognised, or refused for its number; the answer may be lost."""
        batch = self.wire.pop(0)
        code, _ = self.log.append(bytes(batch.sealed or b""))
        if not answered:
            self.comes_back(batch, maybe_written=True)
        elif code == OUT_OF_ORDER:
            self.idempotence.out_of_sequence(batch)
            self.comes_back(batch, maybe_written=False)
        elif code:
            self.gives_up(batch, certain=True)
        else:
            self.acked += [record.value or b"" for record in read_records(batch.sealed or b"")]
            batch.advance(BatchEvent.SUCCEED)
            self.idempotence.delivered(batch)

    @precondition(lambda self: self.wire)
    @rule()
    def broker_cannot_now(self) -> None:
        """Too few replicas: certainly not written."""
        self.comes_back(self.wire.pop(0), maybe_written=False)

    @precondition(lambda self: self.wire)
    @rule()
    def broker_refuses(self) -> None:
        """An invalid record: now and in every later copy."""
        batch = self.wire.pop(0)
        self.log.refuse(bytes(batch.sealed or b""), 87)
        if not self.log.has(bytes(batch.sealed or b"")):
            self.gives_up(batch, certain=True)
        else:
            self.comes_back(batch, maybe_written=True)

    @precondition(lambda self: self.wire)
    @rule()
    def not_authorised_now(self) -> None:
        """A refusal that says nothing about earlier attempts."""
        self.gives_up(self.wire.pop(0), certain=True)

    @precondition(lambda self: self.wire)
    @rule()
    def connection_breaks(self) -> None:
        """Everything on the wire is lost, unwritten, and nobody knows."""
        wire, self.wire = self.wire, []
        for batch in wire:
            self.comes_back(batch, maybe_written=True)

    @precondition(lambda self: self.queue)
    @rule()
    def oldest_expires(self) -> None:
        self.gives_up(self.queue.pop(0), certain=False)

    @rule()
    def turn(self) -> None:
        self.idempotence.settle()

    @invariant()
    def no_record_is_written_twice(self) -> None:
        assert len(set(self.log.values)) == len(self.log.values)

    @invariant()
    def acknowledged_records_are_there_in_order(self) -> None:
        places = [self.log.values.index(value) for value in sorted(self.acked, key=int)]
        assert places == sorted(places)

    @invariant()
    def no_more_than_five_are_unanswered(self) -> None:
        assert len(self.wire) <= MOST_IN_FLIGHT

    def teardown(self) -> None:
        """From any state, a calm network delivers everything that is left."""
        for _ in range(200):
            self.idempotence.settle()
            if self.wire:
                self.broker_works(answered=True)
            elif self.queue:
                self.send(1)
        assert not self.wire
        assert not self.queue
        self.idempotence.settle()
        batch = self.new_batch(1)
        assert self.idempotence.holds(batch) is None
        self.ship(batch)
        self.broker_works(answered=True)
        assert self.acked[-1] == b"%d" % self.count
        self.acknowledged_records_are_there_in_order()
        self.no_record_is_written_twice()


TestIdempotence = IdempotenceMachine.TestCase
TestIdempotence.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)
