"""The coordinator of a ``ScriptedCluster``: transactions and a group's offsets, with scripted errors.

It keeps to what a client can see of Kafka's: who is fenced (90), which partitions may be written (48), which
epoch comes next, and what is committed in the end.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any

import attrs

from splashdam.model.broker_errors import ErrorCode
from splashdam.model.values import TopicPartition
from splashdam.record.batch import parse_header
from splashdam.wire.message import Request, Response
from splashdam.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from splashdam.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from splashdam.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from splashdam.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from splashdam.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from splashdam.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from support.scripted.cluster import ScriptedCluster, Trouble

COORDINATED: dict[type[Request[Any]], tuple[int, int]] = {
    FindCoordinatorRequest: (0, 6),
    AddPartitionsToTxnRequest: (0, 5),
    AddOffsetsToTxnRequest: (0, 4),
    TxnOffsetCommitRequest: (0, 5),
    EndTxnRequest: (0, 5),
}
"""What it answers beside InitProducerId, and in which versions unless a test says otherwise."""

_FIND_MANY_FROM = 4
_V2_FROM = 5


@attrs.define
class ScriptedTransaction:
    """What is known of one transactional id.

    Attributes:
        producer_id, epoch: of its newest producer.
        began: partitions of the open transaction, and how many records stood there before.
        groups: groups of the open transaction.
        offsets: what is to be committed for them.
        ended: whether each transaction that has ended was committed.
        last_end: epoch and decision of the last EndTxn, which may be repeated.
    """

    producer_id: int
    epoch: int
    began: dict[TopicPartition, int] = attrs.field(factory=dict)
    groups: set[str] = attrs.field(factory=set)
    offsets: dict[tuple[str, TopicPartition], int] = attrs.field(factory=dict)
    ended: list[bool] = attrs.field(factory=list)
    last_end: tuple[int, bool] | None = None


class ScriptedCoordinator:
    """Part of a ``ScriptedCluster``.

    Attributes:
        script: what happens to the next requests of a kind; then the usual.
        transactions: by transactional id.
        committed: records of committed transactions, by partition.
        offsets: committed offsets by group and partition.
        homes: node id by key of those that another broker than the first coordinates.
    """

    def __init__(self, cluster: ScriptedCluster) -> None:
        self.script: dict[type[Request[Any]], deque[Trouble]] = defaultdict(deque)
        self.transactions: dict[str, ScriptedTransaction] = {}
        self.committed: dict[TopicPartition, list[bytes | None]] = defaultdict(list)
        self.offsets: dict[tuple[str, TopicPartition], int] = {}
        self.homes: dict[str, int] = {}
        self._cluster = cluster
        self._producer_ids = 7000

    def respond(self, node_id: int, message: Any, version: int, trouble: Trouble) -> Response:
        """The answer to one of its requests; with a ``code`` nothing is done, unless ``write`` is set."""
        code = trouble.code if not trouble.write else 0
        if not code and not isinstance(message, FindCoordinatorRequest):
            code = self._misdirected(node_id, message)
        match message:
            case FindCoordinatorRequest():
                return self._find(message, version, trouble.code)
            case InitProducerIdRequest():
                response: Response = self._init(message, code)
            case AddPartitionsToTxnRequest():
                response = self._add_partitions(message, code)
            case AddOffsetsToTxnRequest():
                response = self._add_offsets(message, code)
            case TxnOffsetCommitRequest():
                response = self._commit_offsets(message, version, code)
            case _:
                response = self._end(message, version, code)
        return response

    def allows(
        self, transactional_id: str | None, topic_partition: TopicPartition, batch: bytes, *, v2: bool
    ) -> int:
        """The error code for a transactional batch, 0 where it may be written."""
        header = parse_header(batch)
        if not header.is_transactional:
            return 0
        transaction = self.transactions.get(transactional_id or "")
        if transaction is None or transaction.producer_id != header.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if transaction.epoch != header.producer_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if v2:
            self._begin(transaction, topic_partition)
        return 0 if topic_partition in transaction.began else ErrorCode.INVALID_TXN_STATE

    def _misdirected(self, node_id: int, message: Any) -> int:
        key = message.group_id if isinstance(message, TxnOffsetCommitRequest) else _transactional_id(message)
        return 0 if self.homes.get(key, 1) == node_id else ErrorCode.NOT_COORDINATOR

    def _find(self, message: FindCoordinatorRequest, version: int, code: int) -> FindCoordinatorResponse:
        keys = message.coordinator_keys if version >= _FIND_MANY_FROM else [message.key]
        found = []
        for key in keys:
            broker = self._cluster.brokers[self.homes.get(key, 1)]
            node_id = -1 if code else broker.node_id
            found.append(
                Coordinator(key=key, node_id=node_id, host=broker.host, port=broker.port, error_code=code)
            )
        if version >= _FIND_MANY_FROM:
            return FindCoordinatorResponse(coordinators=found)
        (one,) = found
        return FindCoordinatorResponse(error_code=code, node_id=one.node_id, host=one.host, port=one.port)

    def _init(self, message: InitProducerIdRequest, code: int) -> InitProducerIdResponse:
        name = message.transactional_id or ""
        transaction = self.transactions.get(name)
        if not code and transaction is not None and message.producer_id >= 0:
            code = self._check(name, message)
        if code:
            return InitProducerIdResponse(error_code=code)
        if transaction is None:
            self._producer_ids += 1
            transaction = self.transactions[name] = ScriptedTransaction(self._producer_ids, -1)
        if transaction.began or transaction.groups:
            self._finish(transaction, committed=False)
        transaction.epoch += 1
        return InitProducerIdResponse(producer_id=transaction.producer_id, producer_epoch=transaction.epoch)

    def _add_partitions(self, message: AddPartitionsToTxnRequest, code: int) -> AddPartitionsToTxnResponse:
        name = message.v3_and_below_transactional_id
        code = code or self._check(name, message, "v3_and_below_")
        response = AddPartitionsToTxnResponse()
        for topic in message.v3_and_below_topics:
            results = []
            for number in topic.partitions:
                if not code:
                    self._begin(self.transactions[name], TopicPartition(topic.name, number))
                results.append(
                    AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=code)
                )
            response.results_by_topic_v3_and_below.append(
                AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=results)
            )
        return response

    def _add_offsets(self, message: AddOffsetsToTxnRequest, code: int) -> AddOffsetsToTxnResponse:
        code = code or self._check(message.transactional_id, message)
        if not code:
            self.transactions[message.transactional_id].groups.add(message.group_id)
        return AddOffsetsToTxnResponse(error_code=code)

    def _commit_offsets(
        self, message: TxnOffsetCommitRequest, version: int, code: int
    ) -> TxnOffsetCommitResponse:
        code = code or self._check(message.transactional_id, message)
        transaction = self.transactions[message.transactional_id]
        if not code and version >= _V2_FROM:
            transaction.groups.add(message.group_id)
        if not code and message.group_id not in transaction.groups:
            code = ErrorCode.INVALID_TXN_STATE
        response = TxnOffsetCommitResponse()
        for topic in message.topics:
            partitions = []
            for each in topic.partitions:
                if not code:
                    where = TopicPartition(topic.name, each.partition_index)
                    transaction.offsets[message.group_id, where] = each.committed_offset
                partitions.append(
                    TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                )
            response.topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions))
        return response

    def _end(self, message: EndTxnRequest, version: int, code: int) -> EndTxnResponse:
        transaction = self.transactions[message.transactional_id]
        v2 = version >= _V2_FROM
        idle = not (transaction.began or transaction.groups)
        repeated = idle and transaction.last_end == (message.producer_epoch, message.committed)
        if not repeated:
            code = code or self._check(message.transactional_id, message)
        if not code and not repeated and idle and (message.committed or not v2):
            code = ErrorCode.INVALID_TXN_STATE
        if code:
            return EndTxnResponse(error_code=code)
        if not repeated:
            transaction.last_end = (transaction.epoch, message.committed)
            self._finish(transaction, committed=message.committed)
            transaction.epoch += v2
        if not v2:
            return EndTxnResponse()
        return EndTxnResponse(producer_id=transaction.producer_id, producer_epoch=transaction.epoch)

    def _check(self, name: str, message: Any, prefix: str = "") -> int:
        transaction = self.transactions.get(name)
        if transaction is None or getattr(message, prefix + "producer_id") != transaction.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if getattr(message, prefix + "producer_epoch") != transaction.epoch:
            return ErrorCode.PRODUCER_FENCED
        return 0

    def _begin(self, transaction: ScriptedTransaction, topic_partition: TopicPartition) -> None:
        transaction.began.setdefault(topic_partition, len(self._cluster.logs[topic_partition].records))

    def _finish(self, transaction: ScriptedTransaction, *, committed: bool) -> None:
        if committed:
            for topic_partition, start in transaction.began.items():
                self.committed[topic_partition] += self._cluster.logs[topic_partition].values[start:]
            self.offsets.update(transaction.offsets)
        transaction.began.clear()
        transaction.groups.clear()
        transaction.offsets.clear()
        transaction.ended.append(committed)


def _transactional_id(message: Any) -> str:
    if isinstance(message, AddPartitionsToTxnRequest):
        return message.v3_and_below_transactional_id
    return message.transactional_id or ""
