"""Any mix of what applications, the sender and time do to an accumulator, against a simple model."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.running.examples import examples

from splashdam.accumulator.accumulator import Exhausted, RecordAccumulator
from splashdam.accumulator.batch import BatchState, ProducerBatch
from splashdam.accumulator.memory import MemoryTicket, TicketState
from splashdam.accumulator.open_batches import Appended
from splashdam.model.cluster import ClusterMetadata, Node, PartitionInfo, TopicInfo
from splashdam.model.values import TopicPartition
from splashdam.record.batch import HEADER_BYTES
from splashdam.record.compression import NO_COMPRESSION
from splashdam.record.kernel import FutureCell
from splashdam.record.reader import read_records

PARTITIONS = 3
CLUSTER = ClusterMetadata(
    nodes={1: Node(1, "a", 1), 2: Node(2, "b", 2)},
    topics={"t": TopicInfo("t", tuple(PartitionInfo("t", n, 1 + n % 2) for n in range(PARTITIONS)))},
)
TOTAL_BYTES = 12_000


class Numbers:
    """Numbers batches as idempotence does, so that both kinds of queues are under test."""

    def __init__(self, *, numbering: bool) -> None:
        self.numbering = numbering
        self.next = dict.fromkeys(range(PARTITIONS), 0)

    def holds(self, _batch: ProducerBatch) -> None:
        return None

    def drained(self, batch: ProducerBatch) -> None:
        if self.numbering and not batch.sequenced:
            partition = batch.topic_partition.partition
            batch.base_sequence = self.next[partition]
            self.next[partition] += batch.record_count


class AccumulatorMachine(RuleBasedStateMachine):
    """Every record that was appended ends once; memory adds up at every moment."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0.0
        self.accumulator = RecordAccumulator(
            batch_bytes=1500,
            linger_ms=5,
            buffer_memory=TOTAL_BYTES,
            compression=NO_COMPRESSION,
            delivery_timeout_ms=500,
            retry_backoff_ms=20,
            retry_backoff_max_ms=100,
            random=lambda: 0.5,
        )
        self.gate = Numbers(numbering=False)
        self.batches: dict[ProducerBatch, None] = {}
        self.tickets: dict[MemoryTicket, None] = {}
        self.count = 0
        self.futures: dict[bytes, FutureCell] = {}
        self.waiting: dict[MemoryTicket, tuple[int, bytes]] = {}
        self.flying: list[ProducerBatch] = []
        self.parts: list[ProducerBatch] = []
        self.delivered: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}

    def append(self, partition: int, value: bytes, ticket: MemoryTicket | None = None) -> None:
        answer = self.accumulator.append(
            TopicPartition("t", partition), self.now_ms, 0, None, value, None, ticket=ticket
        )
        if isinstance(answer, Appended):
            self.futures[value] = answer.future
        else:
            assert isinstance(answer, Exhausted)
            self.waiting[answer.ticket] = (partition, value)
            self.tickets[answer.ticket] = None

    @initialize(numbering=st.booleans())
    def choose_kind(self, numbering: bool) -> None:
        self.gate.numbering = numbering

    @rule(partition=st.integers(0, PARTITIONS - 1), size=st.integers(0, 2500))
    def send(self, partition: int, size: int) -> None:
        self.count += 1
        self.append(partition, b"%d:" % self.count + b"x" * size)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data(), cancel=st.booleans())
    def go_on_with_ticket(self, data: st.DataObject, cancel: bool) -> None:
        ticket = data.draw(st.sampled_from(list(self.waiting)))
        partition, value = self.waiting.pop(ticket)
        if cancel:
            self.accumulator.cancel(ticket)
        else:
            self.append(partition, value, ticket)

    @rule(ms=st.sampled_from([1, 5, 20, 100, 300]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        for batch in self.accumulator.expire(self.now_ms):
            self.accumulator.fail(batch, TimeoutError())
        for batch in self.flying:
            if batch.state is BatchState.IN_FLIGHT and self.now_ms >= batch.created_ms + 500:
                self.accumulator.abandon(batch, TimeoutError())

    @rule(max_request_size=st.sampled_from([500, 2000, 100_000]))
    def drain(self, max_request_size: int) -> None:
        check = self.accumulator.ready(CLUSTER, self.now_ms, self.gate)
        drained = self.accumulator.drain(CLUSTER, check.nodes, max_request_size, self.now_ms, self.gate)
        assert set(drained) == check.nodes  # what is called ready is drained
        for node, batches in drained.items():
            total = 0
            for batch in batches:
                assert CLUSTER.leader_for(batch.topic_partition) == node
                total += len(batch.seal(NO_COMPRESSION))
                self.flying.append(batch)
            assert total <= max_request_size or len(batches) == 1

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), what=st.sampled_from(["complete", "complete", "fail", "retry", "split"]))
    def answer(self, data: st.DataObject, what: str) -> None:
        batch = self.flying.pop(data.draw(st.integers(0, len(self.flying) - 1)))
        live = batch.state is BatchState.IN_FLIGHT
        if what == "retry" and live:
            self.accumulator.reenqueue(batch, self.now_ms)
        elif what == "split" and live and batch.record_count > 1:
            self.parts += self.accumulator.split_and_reenqueue(batch, self.now_ms)
        elif what == "fail":
            self.accumulator.fail(batch, ValueError())
        else:
            if live:
                values = [record.value or b"" for record in read_records(batch.sealed or b"")]
                self.delivered[batch.topic_partition.partition] += values
            self.accumulator.complete(batch, 0, -1)

    @precondition(lambda self: self.accumulator.has_incomplete)
    @rule(unnumbered=st.booleans())
    def abort(self, unnumbered: bool) -> None:
        if unnumbered:
            self.accumulator.abort_unsent(RuntimeError())
            assert all(batch.sequenced for batch in self.accumulator._queues)
        else:
            self.accumulator.abort_batches(RuntimeError())
            assert not self.accumulator.has_incomplete

    @rule()
    def flush_and_end(self) -> None:
        outcomes = self.accumulator.begin_flush()
        undone = [future for future in self.futures.values() if not future.done()]
        assert set(outcomes) == {future.outcome.leaf_of(future.index)[0] for future in undone}
        self.accumulator.end_flush()

    @invariant()
    def memory_is_within_its_limit(self) -> None:
        """The parts of a split batch have a header each, and wait for no memory."""
        headers = HEADER_BYTES * sum(part.charged_bytes > 0 for part in self.parts)
        assert -headers <= self.accumulator.free_bytes <= TOTAL_BYTES

    @invariant()
    def every_byte_is_accounted_for(self) -> None:
        """Free bytes, charges of batches and grants of tickets are the whole budget, always."""
        self.batches.update(self.accumulator._incomplete)
        charged = sum(batch.charged_bytes for batch in self.batches)
        granted = sum(ticket.granted_bytes for ticket in self.tickets)
        assert self.accumulator.free_bytes + charged + granted == TOTAL_BYTES

    @invariant()
    def queues_are_in_the_order_of_records(self) -> None:
        """Whatever failed and came back: places, creation times and sequences ascend, new ones last."""
        for partition in range(PARTITIONS):
            queue = [
                batch for batch in self.accumulator._queues if batch.topic_partition.partition == partition
            ]
            places = [batch.place for batch in queue]
            assert places == sorted(set(places))
            assert [batch.created_ms for batch in queue] == sorted(batch.created_ms for batch in queue)
            numbered = [batch.base_sequence for batch in queue if batch.sequenced]
            assert numbered == sorted(set(numbered))
            assert [batch.sequenced for batch in queue] == [True] * len(numbered) + [False] * (
                len(queue) - len(numbered)
            )

    @invariant()
    def futures_are_done_with_their_batch(self) -> None:
        """Exactly the incomplete batches have undone futures; each queued or open one is incomplete."""
        open_outcomes = {batch.outcome for batch in self.accumulator._incomplete}
        undone = {
            future.outcome.leaf_of(future.index)[0] for future in self.futures.values() if not future.done()
        }
        assert undone == open_outcomes
        assert all(batch.outcome in open_outcomes for batch in self.accumulator._queues)

    def teardown(self) -> None:
        """Ends everything; then all memory is free, and every record is delivered or failed exactly once."""
        for ticket in self.waiting:
            self.accumulator.cancel(ticket)
            assert ticket.state is TicketState.CANCELLED
        self.accumulator.close()
        self.accumulator.abort_batches(RuntimeError())
        for batch in self.flying:
            self.accumulator.complete(batch, 0, -1)
        assert self.accumulator.free_bytes == TOTAL_BYTES
        assert not self.accumulator.has_incomplete
        succeeded = [
            value for value, future in self.futures.items() if future.outcome.error_of(future.index) is None
        ]
        assert all(future.done() for future in self.futures.values())
        arrived = [value for values in self.delivered.values() for value in values]
        assert sorted(arrived) == sorted(succeeded)


TestAccumulatorModel = AccumulatorMachine.TestCase
TestAccumulatorModel.settings = settings(max_examples=examples(80), stateful_step_count=50, deadline=None)
