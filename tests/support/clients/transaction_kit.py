"""A transaction manager without a network: what it asks is answered by hand."""

from __future__ import annotations

from typing import Any

from splashdam.accumulator.backoff import Backoff
from splashdam.accumulator.batch import BatchEvent, ProducerBatch
from splashdam.model.values import TopicPartition
from splashdam.record.kernel import BatchBuffer
from splashdam.sender.transactions.manager import TransactionManager
from splashdam.sender.transactions.questions import Asked, Question
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


def answer(asked: Asked, code: int = 0, *, epoch: int = 0) -> Any:
    """An answer to a question about ``t-0`` or ``in-0``; ``epoch`` is what it grants."""
    match asked:
        case Asked.FIND_COORDINATOR:
            return FindCoordinatorResponse(
                coordinators=[Coordinator(key="x", node_id=1, host="h", port=1, error_code=code)]
            )
        case Asked.INIT_PRODUCER_ID:
            return InitProducerIdResponse(error_code=code, producer_id=7, producer_epoch=epoch)
        case Asked.ADD_PARTITIONS:
            result = AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=code)
            topic = AddPartitionsToTxnTopicResult(name="t", results_by_partition=[result])
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic])
        case Asked.ADD_OFFSETS:
            return AddOffsetsToTxnResponse(error_code=code)
        case Asked.COMMIT_OFFSETS:
            partition = TxnOffsetCommitResponsePartition(partition_index=0, error_code=code)
            return TxnOffsetCommitResponse(
                topics=[TxnOffsetCommitResponseTopic(name="in", partitions=[partition])]
            )
        case Asked.END:
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
        self.seen: list[Asked] = []

    def next(self, *, batches_left: bool = False) -> Question | None:
        """What is asked now; the question is under way then."""
        if self.manager.due_in_ms(self.now_ms) > 0:
            return None
        question = self.manager.next_question(batches_left=batches_left)
        if question is not None:
            self.seen.append(question.asked)
            self.manager.asking(question, self.version, self.level)
        return question

    def reply(self, question: Question, code: int = 0, *, epoch: int = 0) -> None:
        """Answers it."""
        self.manager.answered(question, answer(question.asked, code, epoch=epoch), self.now_ms)

    def calm(self, *, batches_left: bool = False) -> list[Asked]:
        """Answers without an error until nothing is asked any more; what that was."""
        before = len(self.seen)
        while (question := self.next(batches_left=batches_left)) is not None:
            self.reply(question)
        return self.seen[before:]

    def until(self, asked: Asked) -> Question:
        """Answers well until ``asked`` is asked."""
        while True:
            question = self.next()
            assert question is not None, f"{asked} was not asked"
            if question.asked is asked:
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
        gate = self.manager.enrolment
        while not gate.admits(batch):
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

    def asks_for(self, asked: Asked) -> Question:
        """Brings the manager to where it asks this."""
        manager = self.manager
        if asked in (Asked.FIND_COORDINATOR, Asked.INIT_PRODUCER_ID):
            manager.init()
            return self.until(asked)
        if asked is Asked.ADD_PARTITIONS:
            self.ready().manager.begin()
            assert not manager.enrolment.admits(new_batch())
            return self.until(asked)
        self.begun()
        if asked is Asked.END:
            manager.commit()
        else:
            from splashdam.client.transactions.transactions import group_of, offsets_of

            manager.send_offsets(offsets_of(GROUP_OFFSETS), group_of("g"))
        return self.until(asked)
