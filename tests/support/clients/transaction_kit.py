"""A transaction manager without a network: what it asks is answered by hand."""

from __future__ import annotations

from typing import Any

from splashdam.accumulator.backoff import Backoff
from splashdam.accumulator.batch import BatchEvent, ProducerBatch
from splashdam.model.values import TopicPartition
from splashdam.record.kernel import BatchBuffer
from splashdam.sender.transactions.manager import TransactionManager
from splashdam.sender.transactions.requests import CoordinatorRequest
from splashdam.sender.transactions.rulings import RequestKind
from splashdam.wire.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from splashdam.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from splashdam.wire.messages.end_txn import EndTxnResponse
from splashdam.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from splashdam.wire.messages.init_producer_id import InitProducerIdResponse
from splashdam.wire.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

TP = TopicPartition("t", 0)
GROUP_OFFSETS = {TopicPartition("in", 0): (5, "", -1)}


def answer(asked: RequestKind, code: int = 0, *, epoch: int = 0) -> Any:
    """An answer to a question about ``t-0`` or ``in-0``; ``epoch`` is what it grants."""
    match asked:
        case RequestKind.FIND_COORDINATOR:
            return FindCoordinatorResponse(
                coordinators=[Coordinator(key="x", node_id=1, host="h", port=1, error_code=code)]
            )
        case RequestKind.INIT_PRODUCER_ID:
            return InitProducerIdResponse(error_code=code, producer_id=7, producer_epoch=epoch)
        case RequestKind.ADD_PARTITIONS:
            result = AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=code)
            topic = AddPartitionsToTxnTopicResult(name="t", results_by_partition=[result])
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic])
        case RequestKind.ADD_OFFSETS:
            return AddOffsetsToTxnResponse(error_code=code)
        case RequestKind.COMMIT_OFFSETS:
            partition = TxnOffsetCommitResponsePartition(partition_index=0, error_code=code)
            return TxnOffsetCommitResponse(
                topics=[TxnOffsetCommitResponseTopic(name="in", partitions=[partition])]
            )
        case RequestKind.END:
            return EndTxnResponse(error_code=code)


def new_batch() -> ProducerBatch:
    """One record for ``t-0``, as it leaves its queue for the first time."""
    buffer = BatchBuffer(200)
    buffer.try_append(0, None, b"v", None)
    batch = ProducerBatch(TP, buffer, 0, 100)
    batch.close()
    return batch


class Talk:
    """A manager, and who answers it.

    Attributes:
        manager: the manager.
        version: of InitProducerId; below 3 no epoch can be raised.
        level: of ``transaction.version``.
        now_ms: the time.
        seen: what was asked.
    """

    def __init__(self, *, version: int = 5, level: int = 1) -> None:
        self.manager = TransactionManager("x", 60_000, Backoff(100, 1000, lambda: 0.5))
        self.version = version
        self.level = level
        self.now_ms = 0.0
        self.seen: list[RequestKind] = []

    def next(self, *, batches_left: bool = False) -> CoordinatorRequest | None:
        """What is asked now; the question is under way then."""
        if self.manager.due_in_ms(self.now_ms) > 0:
            return None
        question = self.manager.next_request(batches_left=batches_left)
        if question is not None:
            self.seen.append(question.kind)
            self.manager.asking(question, self.version, self.level)
        return question

    def reply(self, question: CoordinatorRequest, code: int = 0, *, epoch: int = 0) -> None:
        """Answers it."""
        self.manager.answered(question, answer(question.kind, code, epoch=epoch), self.now_ms)

    def calm(self, *, batches_left: bool = False) -> list[RequestKind]:
        """Answers without an error until nothing is asked any more; what that was."""
        before = len(self.seen)
        while (question := self.next(batches_left=batches_left)) is not None:
            self.reply(question)
        return self.seen[before:]

    def until(self, asked: RequestKind) -> CoordinatorRequest:
        """Answers well until ``asked`` is asked."""
        while True:
            question = self.next()
            assert question is not None, f"{asked} was not asked"
            if question.kind is asked:
                return question
            self.reply(question)

    def ready(self) -> Talk:
        """With an identity."""
        call = self.manager.init()
        self.calm()
        self.manager.run_ended()
        self.manager.acknowledge(call)
        return self

    def send(self, batch: ProducerBatch | None = None) -> ProducerBatch:
        """A record of the open transaction, on the wire; its partition is added first."""
        batch = batch or new_batch()
        gate = self.manager.partitions
        while gate.holds(batch):
            question = self.next(batches_left=True)
            assert question is not None
            self.reply(question)
        batch.advance(BatchEvent.DRAIN)
        gate.drained(batch)
        return batch

    def deliver(self, batch: ProducerBatch) -> None:
        """The broker has it."""
        batch.advance(BatchEvent.SUCCEED)
        self.manager.sequences.delivered(batch)

    def begun(self) -> Talk:
        """With an open transaction that has a record."""
        self.ready().manager.begin()
        self.deliver(self.send())
        return self

    def asks_for(self, asked: RequestKind) -> CoordinatorRequest:
        """Brings the manager to where it asks this."""
        manager = self.manager
        if asked in (RequestKind.FIND_COORDINATOR, RequestKind.INIT_PRODUCER_ID):
            manager.init()
            return self.until(asked)
        if asked is RequestKind.ADD_PARTITIONS:
            self.ready().manager.begin()
            assert manager.partitions.holds(new_batch())
            return self.until(asked)
        self.begun()
        if asked is RequestKind.END:
            manager.commit()
        else:
            from splashdam.client.transactions.transactions import group_of, offsets_of

            manager.send_offsets(offsets_of(GROUP_OFFSETS), group_of("g"))
        return self.until(asked)
