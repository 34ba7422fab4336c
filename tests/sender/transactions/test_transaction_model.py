"""A transaction manager against a coordinator and logs with a broker's rules: any order, many faults.

Whatever is called, lost or refused: what a commit has confirmed is committed, whole and in order; of what was
aborted nothing is; EndTxn never overtakes a record; and a calm network brings every producer that is not
finished back to where it can commit.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.running.examples import examples
from support.scripted.cluster import USUAL, ScriptedCluster, Trouble

from splashdam.accumulator.backoff import Backoff
from splashdam.accumulator.batch import BatchEvent, ProducerBatch
from splashdam.model.broker_errors import NetworkExceptionError, error_for
from splashdam.model.errors import KafkaError, KafkaTimeoutError, TransactionAbortedError
from splashdam.model.transactions import ConsumerGroupMetadata, OffsetAndMetadata
from splashdam.model.values import TopicPartition
from splashdam.net.memory import MemoryNetwork
from splashdam.record.compression import NO_COMPRESSION
from splashdam.record.kernel import BatchBuffer
from splashdam.sender.transactions.calls import Operation, PendingCall
from splashdam.sender.transactions.manager import TransactionManager, TransactionState
from splashdam.sender.transactions.rulings import RequestKind
from splashdam.wire.messages.init_producer_id import InitProducerIdRequest

PARTITIONS = [TopicPartition("t", number) for number in range(2)]
GROUP = ConsumerGroupMetadata("g")
SOURCE = TopicPartition("in", 0)

faults = st.sampled_from(["none", "none", "none", "lost", "answer lost", 14, 16, 51, 120, 29])
fates = st.sampled_from(["written", "written", "answer lost", "lost", "refused", "late"])
chaos = st.lists(st.tuples(faults, fates, fates), max_size=8)


class TransactionMachine(RuleBasedStateMachine):
    """Plays application, sender and network around a manager."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = ScriptedCluster(MemoryNetwork(), topics={"t": len(PARTITIONS)})
        self.manager = TransactionManager("x", 60_000, Backoff(0, 0, lambda: 0.5))
        self.gate = self.manager.partitions
        self.sequences = self.manager.sequences
        self.level = 1
        self.count = self.transaction = 0
        self.sent: dict[int, dict[TopicPartition, list[bytes]]] = {}
        self.offsets: dict[int, int] = {}
        self.confirmed: list[int] = []
        self.aborted: set[int] = set()
        self.queues: dict[TopicPartition, deque[ProducerBatch]] = {each: deque() for each in PARTITIONS}
        self.wire: dict[TopicPartition, deque[ProducerBatch]] = {each: deque() for each in PARTITIONS}

    # What the application does.

    def called(self, call: Any) -> PendingCall | None:
        """Makes a call; one that is out of turn changes nothing."""
        before = self.manager.state
        try:
            pending = call()
        except KafkaError:
            assert self.manager.state is before
            return None
        self.hear()
        return pending if isinstance(pending, PendingCall) else None

    def hear(self) -> None:
        """Every call that has ended is heard of at once."""
        while self.manager.ended:
            call = self.manager.ended.popleft()
            self.manager.acknowledge(call)
            if call.error is None and call.operation is Operation.COMMIT:
                self.confirmed.append(self.transaction)
            elif call.operation is Operation.ABORT:
                self.aborted.add(self.transaction)

    @initialize(level=st.sampled_from([1, 2]), chaos=chaos)
    def start(self, level: int, chaos: list[tuple[Any, str, str]]) -> None:
        self.level = level
        self.called(self.manager.init)
        self.weather(chaos)

    def begin(self) -> None:
        before = self.manager.state
        self.called(self.manager.begin)
        if self.manager.state is not before:
            self.transaction += 1
            self.sent[self.transaction] = {each: [] for each in PARTITIONS}

    @rule(which=st.integers(0, 5))
    def call_at_any_time(self, which: int) -> None:
        manager = self.manager
        calls = [manager.init, manager.commit, manager.abort, manager.commit, self.begin, manager.prepare]
        self.called(calls[which])

    @rule()
    def send_offsets(self) -> None:
        offset = self.count + 1
        call = self.called(lambda: self.manager.send_offsets({SOURCE: OffsetAndMetadata(offset)}, GROUP))
        if call is not None:
            self.offsets[self.transaction] = offset

    @precondition(
        lambda self: self.manager.state in (TransactionState.READY, TransactionState.IN_TRANSACTION)
    )
    @rule(where=st.sampled_from(PARTITIONS))
    def send(self, where: TopicPartition) -> None:
        if self.manager.state is TransactionState.READY:
            self.begin()
        self.count += 1
        value = b"%d" % self.count
        buffer = BatchBuffer(200)
        buffer.try_append(0, None, value, None)
        batch = ProducerBatch(where, buffer, 0, 0, self.count)
        batch.close()
        self.queues[where].append(batch)
        self.sent[self.transaction][where].append(value)

    # What the sender and the network do.

    @property
    def batches_left(self) -> bool:
        return any(self.queues.values()) or any(self.wire.values())

    def ask(self, fault: Any) -> None:
        """One turn of the coordination."""
        self.sequences.settle()
        self.doom()
        question = self.manager.next_request(batches_left=self.batches_left)
        self.hear()
        if question is None:
            return
        newest = question.request_cls.VERSIONS[-1]
        version = newest if question.newest is None else min(newest, question.newest)
        message = question.build(version)
        if question.kind is RequestKind.END:
            assert not self.batches_left
        self.manager.asking(question, version, self.level)
        lost = NetworkExceptionError("the connection broke")
        trouble = Trouble(code=fault) if isinstance(fault, int) and self.plausible(fault, question) else USUAL
        if fault == "lost":
            self.manager.unanswered(question, lost, 0)
        else:
            response = self.cluster.coordinator.respond(1, message, version, trouble)
            if fault == "answer lost" and not isinstance(message, InitProducerIdRequest):
                self.manager.unanswered(question, lost, 0)
            else:
                self.manager.answered(question, response, 0)
        self.hear()

    def plausible(self, code: int, question: Any) -> bool:
        if code == 29:
            return question.kind is RequestKind.ADD_PARTITIONS
        return code != 120 or question.kind in (RequestKind.ADD_PARTITIONS, RequestKind.COMMIT_OFFSETS)

    def doom(self) -> None:
        """What can no longer be sent fails."""
        if self.manager.unsent_error is None:
            return
        for queue in self.queues.values():
            for batch in list(queue):
                if not batch.sequenced or self.sequences.unsendable(batch):
                    queue.remove(batch)
                    self.fail(batch, TransactionAbortedError())

    @rule(chaos=chaos)
    def weather(self, chaos: list[tuple[Any, str, str]]) -> None:
        """Turns of the sender with both partitions."""
        for fault, *fates in chaos:
            self.ask(fault)
            for where, fate in zip(PARTITIONS, fates, strict=True):
                self.drain(where, fate)

    @rule(
        records=st.lists(st.sampled_from(PARTITIONS), min_size=1, max_size=3),
        committed=st.booleans(),
        chaos=chaos,
    )
    def transaction_in_bad_weather(
        self, records: list[TopicPartition], committed: bool, chaos: list[tuple[Any, str, str]]
    ) -> None:
        """What applications do all the time."""
        for where in records:
            if self.manager.state in (TransactionState.READY, TransactionState.IN_TRANSACTION):
                self.send(where)
        self.weather(chaos[::2])
        self.called(self.manager.commit if committed else self.manager.abort)
        self.weather(chaos[1::2])

    def drain(self, where: TopicPartition, fate: str) -> None:
        """All batches of a partition that may go are sent, and the first one has its answer, or none."""
        queue, wire = self.queues[where], self.wire[where]
        while queue and self.gate.holds(queue[0]) is None:
            batch = queue.popleft()
            batch.advance(BatchEvent.DRAIN)
            self.gate.drained(batch)
            batch.seal(NO_COMPRESSION)
            wire.append(batch)
        if wire:
            self.answer(wire.popleft(), fate)
        elif queue and queue[0].maybe_written and fate == "late":
            self.fail(queue.popleft(), KafkaTimeoutError("too late"))
        self.hear()

    def answer(self, batch: ProducerBatch, fate: str) -> None:
        """What becomes of a batch on the wire."""
        where, data = batch.topic_partition, bytes(batch.sealed or b"")
        log, code = self.cluster.logs[where], 0
        if fate == "refused":
            log.refuse(data, 87)
        if fate != "lost":
            code = self.cluster.coordinator.allows("x", where, data, v2=self.manager.v2)
            assert code == 0, f"the coordinator does not expect {batch}: {code}"
            code, _ = log.append(data)
        out_of_order = code == 45 and not self.sequences.is_lowest(batch)
        if out_of_order or fate in ("answer lost", "lost"):
            batch.maybe_written |= not out_of_order
            batch.advance(BatchEvent.RETRY)
            batch.attempts += 1
            self.queues[where].append(batch)
            self.queues[where] = deque(sorted(self.queues[where], key=lambda each: each.place))
        elif code:
            self.fail(batch, error_for(code))
        else:
            batch.advance(BatchEvent.SUCCEED)
            self.sequences.delivered(batch)

    def fail(self, batch: ProducerBatch, error: KafkaError) -> None:
        batch.advance(BatchEvent.FAIL)
        if batch.sequenced:
            (self.sequences.lost if batch.maybe_written else self.sequences.refused)(batch)
        self.manager.batch_failed(error)

    # What always holds.

    @invariant()
    def what_was_confirmed_is_committed(self) -> None:
        for where in PARTITIONS:
            found = self.cluster.coordinator.committed[where]
            mine = [value for number in self.confirmed for value in self.sent[number][where]]
            others = {
                value for number in self.sent if number in self.aborted for value in self.sent[number][where]
            }
            assert not others & set(found)
            assert [value for value in found if value in set(mine)] == mine
            assert len(set(found)) == len(found)

    @invariant()
    def offsets_go_with_their_transaction(self) -> None:
        committed = [self.offsets[number] for number in self.confirmed if number in self.offsets]
        if committed:
            assert self.cluster.coordinator.offsets["g", SOURCE] >= committed[-1]

    @invariant()
    def no_transaction_is_left_open(self) -> None:
        known = self.cluster.coordinator.transactions.get("x")
        if known is not None and self.manager.state is TransactionState.READY:
            assert not known.began
            assert not known.groups

    def calm(self) -> None:
        for _ in range(50):
            self.ask("none")
            for where in PARTITIONS:
                self.drain(where, "written")

    def teardown(self) -> None:
        """From any state, a calm network brings it to where it commits."""
        self.calm()
        if self.manager.can_abort or self.manager.state is TransactionState.PREPARED:
            self.called(self.manager.abort)
        self.called(self.manager.init)
        self.calm()
        if self.manager.state is TransactionState.FATAL_ERROR:
            raise AssertionError(f"none of these faults is fatal: {self.manager.cause}")
        assert self.manager.state is TransactionState.READY
        self.send(PARTITIONS[0])
        self.called(self.manager.commit)
        self.calm()
        assert self.confirmed[-1] == self.transaction
        self.what_was_confirmed_is_committed()


TestTransactions = TransactionMachine.TestCase
TestTransactions.settings = settings(max_examples=examples(150), stateful_step_count=15, deadline=None)
