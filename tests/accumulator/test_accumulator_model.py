"""Any mix of what applications, the sender and time do to an accumulator, against a simple model."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from splashdam.accumulator.accumulator import RecordAccumulator
from splashdam.accumulator.batch import BatchState, ProducerBatch
from splashdam.accumulator.memory import MemoryTicket, TicketState
from splashdam.accumulator.results import Appended, Exhausted
from splashdam.model.cluster import ClusterMetadata, Node, PartitionInfo, TopicInfo
from splashdam.model.values import TopicPartition
from splashdam.record.compression import NO_COMPRESSION
from splashdam.record.kernel import FutureCell
from splashdam.record.reader import read_records

PARTITIONS = 3
CLUSTER = ClusterMetadata(
    nodes={1: Node(1, "a", 1), 2: Node(2, "b", 2)},
    topics={"t": TopicInfo("t", tuple(PartitionInfo("t", n, 1 + n % 2) for n in range(PARTITIONS)))},
)
TOTAL_BYTES = 6000


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
        self.count = 0
        self.futures: dict[bytes, FutureCell] = {}
        self.waiting: dict[MemoryTicket, tuple[int, bytes]] = {}
        self.flying: list[ProducerBatch] = []
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
        check = self.accumulator.ready(CLUSTER, self.now_ms)
        drained = self.accumulator.drain(CLUSTER, check.nodes, max_request_size, self.now_ms)
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
            self.accumulator.split_and_reenqueue(batch, self.now_ms)
        elif what == "fail":
            self.accumulator.fail(batch, ValueError())
        else:
            if live:
                values = [record.value or b"" for record in read_records(batch.sealed or b"")]
                self.delivered[batch.topic_partition.partition] += values
            self.accumulator.complete(batch, 0, -1)

    @rule()
    def flush_and_end(self) -> None:
        outcomes = self.accumulator.begin_flush()
        undone = [future for future in self.futures.values() if not future.done()]
        assert set(outcomes) == {future.outcome.leaf_of(future.index)[0] for future in undone}
        self.accumulator.end_flush()

    @invariant()
    def memory_is_within_its_limit(self) -> None:
        assert 0 <= self.accumulator.free_bytes <= TOTAL_BYTES

    def teardown(self) -> None:
        """Ends everything; then all memory is free, and every record is delivered or failed exactly once."""
        for ticket in self.waiting:
            self.accumulator.cancel(ticket)
            assert ticket.state is TicketState.CANCELLED
        self.accumulator.close()
        self.accumulator.abort_incomplete(RuntimeError())
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
TestAccumulatorModel.settings = settings(max_examples=80, stateful_step_count=50, deadline=None)
