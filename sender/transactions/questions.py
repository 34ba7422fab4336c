"""What is asked of a transaction's coordinators, and what follows from each answer. Pure.

First the table: what becomes of request and producer, by request and error code; source: the response
handlers of Kafka's ``TransactionManager``. Then the requests, and where their answers carry codes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import auto
from typing import Any, NamedTuple

from splashdam.model.broker_errors import ErrorCode, UnsupportedVersionError, error_class
from splashdam.model.cluster import Node
from splashdam.model.lifecycle import Stage
from splashdam.model.transactions import ConsumerGroupMetadata, OffsetAndMetadata
from splashdam.model.values import TopicPartition
from splashdam.sender.idempotence import Identity
from splashdam.wire.message import Request
from splashdam.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from splashdam.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from splashdam.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from splashdam.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from splashdam.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from splashdam.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)


class Asked(Stage):
    """The requests, in the order in which they go."""

    FIND_COORDINATOR = auto()
    INIT_PRODUCER_ID = auto()
    ADD_PARTITIONS = auto()
    ADD_OFFSETS = auto()
    COMMIT_OFFSETS = auto()
    END = auto()


class Ruling(Stage):
    """What becomes of a request, and of the producer."""

    DONE = auto()
    RETRY = auto()
    FIND_AGAIN = auto()
    """The coordinator is another one: find it, then retry."""
    DENY = auto()
    """The call fails; it may be repeated once the rights are granted."""
    ABORT = auto()
    """The transaction can only be aborted."""
    RENEW = auto()
    """As ABORT, and the producer needs a new epoch, which some brokers cannot give: then DIE."""
    FENCE = auto()
    """A newer producer has taken over: fatal."""
    DIE = auto()


class Row(NamedTuple):
    """One row of the table: a ruling for each request, in the order of `Asked`."""

    find_coordinator: Ruling
    init_producer_id: Ruling
    add_partitions: Ruling
    add_offsets: Ruling
    commit_offsets: Ruling
    end: Ruling


_DONE, _RETRY, _FIND, _DENY = Ruling.DONE, Ruling.RETRY, Ruling.FIND_AGAIN, Ruling.DENY
_ABORT, _RENEW, _FENCE, _DIE = Ruling.ABORT, Ruling.RENEW, Ruling.FENCE, Ruling.DIE

_ELSE = Row(_DIE, _DIE, _ABORT, _DIE, _DIE, _DIE)
_ELSE_RETRIABLE = Row(_RETRY, _RETRY, _RETRY, _RETRY, _RETRY, _RETRY)
_MOVED = Row(_RETRY, _FIND, _FIND, _FIND, _FIND, _FIND)
_FENCED = Row(_DIE, _FENCE, _FENCE, _FENCE, _FENCE, _FENCE)
_ABORTABLE = Row(_DIE, _DIE, _ABORT, _ABORT, _ABORT, _ABORT)

ROWS: dict[int, Row] = {
    ErrorCode.NONE: Row(_DONE, _DONE, _DONE, _DONE, _DONE, _DONE),
    ErrorCode.REQUEST_TIMED_OUT: Row(_RETRY, _RETRY, _RETRY, _RETRY, _FIND, _RETRY),
    ErrorCode.COORDINATOR_NOT_AVAILABLE: _MOVED,
    ErrorCode.NOT_COORDINATOR: _MOVED,
    ErrorCode.INVALID_PRODUCER_EPOCH: _FENCED,
    ErrorCode.PRODUCER_FENCED: _FENCED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: Row(_DIE, _DENY, _ABORT, _DIE, _DIE, _DIE),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Row(_DIE, _DENY, _DIE, _DIE, _DIE, _DIE),
    ErrorCode.INVALID_TXN_STATE: Row(_DIE, _DIE, _DIE, _DIE, _DIE, _DIE),
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: Row(_DIE, _DIE, _RENEW, _RENEW, _DIE, _RENEW),
    ErrorCode.UNKNOWN_PRODUCER_ID: Row(_DIE, _DIE, _RENEW, _RENEW, _DIE, _RENEW),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: _ABORTABLE,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: Row(_ABORT, _DIE, _ABORT, _ABORT, _ABORT, _ABORT),
    ErrorCode.OPERATION_NOT_ATTEMPTED: _ABORTABLE,
    ErrorCode.ILLEGAL_GENERATION: _ABORTABLE,
    ErrorCode.UNKNOWN_MEMBER_ID: _ABORTABLE,
    ErrorCode.FENCED_INSTANCE_ID: _ABORTABLE,
    ErrorCode.TRANSACTION_ABORTABLE: Row(_ABORT, _ABORT, _ABORT, _ABORT, _ABORT, _ABORT),
}
"""Other codes are retried where Kafka calls them retriable, and else `_ELSE`."""

_COLUMNS = {asked: Row._fields.index(asked.name.lower()) for asked in Asked}


def ruling_on(asked: Asked, error_code: int) -> Ruling:
    """The ruling on a request that was answered with ``error_code``."""
    row = ROWS.get(error_code)
    if row is None:
        row = _ELSE_RETRIABLE if error_class(error_code).retriable else _ELSE
    return row[_COLUMNS[asked]]


_GRAVEST_FIRST = (_FENCE, _DIE, _FIND, _RETRY, _DENY, _RENEW, _ABORT, _DONE)


def gravest(asked: Asked, error_codes: list[int]) -> int:
    """The code that decides where each partition has one: that of the gravest ruling.

    29 goes before other reasons to abort, and 55 (not tried because of another one) comes last.
    """
    codes = sorted(error_codes, key=lambda code: (code != ErrorCode.TOPIC_AUTHORIZATION_FAILED, code == 55))
    return min(codes, key=lambda code: _GRAVEST_FIRST.index(ruling_on(asked, code)), default=0)


_FIND_MANY_FROM = 4
_CLIENTS_ADD_UP_TO = 3  # AddPartitionsToTxn above it is for brokers
_MEMBERS_FROM = 3  # of TxnOffsetCommit
_LAST_WITHOUT_V2 = 4  # of EndTxn and TxnOffsetCommit
_LAST_BY_NAME = 5  # of TxnOffsetCommit: offsets are told by topic name


class CoordinatorKey(NamedTuple):
    """Whose coordinator: ``key_type`` 0 for a group, 1 for a transactional id."""

    key_type: int
    key: str

    def __str__(self) -> str:
        return f"{'group' if self.key_type == 0 else 'transactional_id'} {self.key!r}"


class Question(NamedTuple):
    """A request to a coordinator.

    Attributes:
        asked: what kind.
        request_cls: its class.
        build: makes it for a version.
        refusal: error code and text of an answer; 0 where it is none.
        coordinator: who is to answer, None: any broker.
        newest: the newest version to be used, None: whatever both sides speak.
        finds: whose coordinator is asked for, if that is the question.
    """

    asked: Asked
    request_cls: type[Request[Any]]
    build: Callable[[int], Request[Any]]
    refusal: Callable[[Any], tuple[int, str]]
    coordinator: CoordinatorKey | None = None
    newest: int | None = None
    finds: CoordinatorKey | None = None


class Writer(NamedTuple):
    """Who writes a transaction."""

    key: CoordinatorKey
    identity: Identity

    def fields(self) -> dict[str, Any]:
        """What most requests carry."""
        return {
            "transactional_id": self.key.key,
            "producer_id": self.identity.producer_id,
            "producer_epoch": self.identity.epoch,
        }


def find_coordinator(wanted: CoordinatorKey) -> Question:
    """Who coordinates ``wanted``."""

    def build(version: int) -> FindCoordinatorRequest:
        if version >= _FIND_MANY_FROM:
            return FindCoordinatorRequest(key_type=wanted.key_type, coordinator_keys=[wanted.key])
        return FindCoordinatorRequest(key_type=wanted.key_type, key=wanted.key)

    def refusal(response: FindCoordinatorResponse) -> tuple[int, str]:
        for each in response.coordinators:
            return each.error_code or _nowhere(each.node_id, each.host), each.error_message or ""
        return response.error_code or _nowhere(response.node_id, response.host), response.error_message or ""

    return Question(Asked.FIND_COORDINATOR, FindCoordinatorRequest, build, refusal, finds=wanted)


def _nowhere(node_id: int, host: str) -> int:
    """No error, but no broker either: negative ids are ours, for the addresses to begin with."""
    return ErrorCode.NONE if node_id >= 0 and host else ErrorCode.COORDINATOR_NOT_AVAILABLE


def coordinator_in(response: FindCoordinatorResponse) -> Node:
    """The broker that an answer without error names."""
    for each in response.coordinators:
        return Node(each.node_id, each.host, each.port)
    return Node(response.node_id, response.host, response.port)


def init_producer_id(key: CoordinatorKey, timeout_ms: int, present: Identity) -> Question:
    """A producer id; or, where ``present`` is one, a higher epoch of it."""

    def build(_version: int) -> InitProducerIdRequest:
        return InitProducerIdRequest(
            transactional_id=key.key,
            transaction_timeout_ms=timeout_ms,
            producer_id=present.producer_id,
            producer_epoch=present.epoch,
        )

    def refusal(response: InitProducerIdResponse) -> tuple[int, str]:
        given = Identity(response.producer_id, response.producer_epoch)
        code = response.error_code or (0 if given.is_one else ErrorCode.UNKNOWN_SERVER_ERROR)
        return code, f"no producer id for {key}"

    return Question(Asked.INIT_PRODUCER_ID, InitProducerIdRequest, build, refusal, key)


def add_partitions(writer: Writer, partitions: Iterable[TopicPartition]) -> Question:
    """These partitions belong to the transaction."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)

    def build(_version: int) -> AddPartitionsToTxnRequest:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=writer.key.key,
            v3_and_below_producer_id=writer.identity.producer_id,
            v3_and_below_producer_epoch=writer.identity.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=numbers) for topic, numbers in by_topic.items()
            ],
        )

    def refusal(response: AddPartitionsToTxnResponse) -> tuple[int, str]:
        codes = [
            (each.partition_error_code, topic.name, each.partition_index)
            for topic in response.results_by_topic_v3_and_below
            for each in topic.results_by_partition
        ]
        code = gravest(Asked.ADD_PARTITIONS, [code for code, _, _ in codes])
        names = {
            topic if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED else f"{topic}-{number}"
            for each, topic, number in codes
            if each == code
        }
        return code, f"not added to the transaction: {', '.join(sorted(names))}"

    return Question(
        Asked.ADD_PARTITIONS, AddPartitionsToTxnRequest, build, refusal, writer.key, _CLIENTS_ADD_UP_TO
    )


def add_offsets(writer: Writer, group_id: str) -> Question:
    """Offsets of this group belong to the transaction."""

    def build(_version: int) -> AddOffsetsToTxnRequest:
        return AddOffsetsToTxnRequest(**writer.fields(), group_id=group_id)

    def refusal(response: AddOffsetsToTxnResponse) -> tuple[int, str]:
        return response.error_code, f"group {group_id!r} was not added to the transaction"

    return Question(Asked.ADD_OFFSETS, AddOffsetsToTxnRequest, build, refusal, writer.key)


def commit_offsets(
    writer: Writer,
    group: ConsumerGroupMetadata,
    offsets: dict[TopicPartition, OffsetAndMetadata],
    *,
    v2: bool,
) -> Question:
    """The group has read so far, once the transaction is committed."""
    by_topic: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for (topic, number), offset in sorted(offsets.items()):
        by_topic.setdefault(topic, []).append(
            TxnOffsetCommitRequestPartition(
                partition_index=number,
                committed_offset=offset.offset,
                committed_leader_epoch=offset.leader_epoch,
                committed_metadata=offset.metadata,
            )
        )

    def build(version: int) -> TxnOffsetCommitRequest:
        if version < _MEMBERS_FROM and group != ConsumerGroupMetadata(group.group_id):
            raise UnsupportedVersionError(
                f"the broker speaks TxnOffsetCommit v{version} at most, which has no room for the member of"
                f" group {group.group_id!r}: give the group's name alone"
            )
        return TxnOffsetCommitRequest(
            **writer.fields(),
            group_id=group.group_id,
            generation_id_or_member_epoch=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=[
                TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)
                for topic, partitions in by_topic.items()
            ],
        )

    def refusal(response: TxnOffsetCommitResponse) -> tuple[int, str]:
        codes = [each.error_code for topic in response.topics for each in topic.partitions]
        return gravest(Asked.COMMIT_OFFSETS, codes), f"offsets of group {group.group_id!r} were not taken"

    return Question(
        Asked.COMMIT_OFFSETS,
        TxnOffsetCommitRequest,
        build,
        refusal,
        CoordinatorKey(0, group.group_id),
        _LAST_BY_NAME if v2 else _LAST_WITHOUT_V2,
    )


def end(writer: Writer, *, committed: bool, v2: bool) -> Question:
    """Commits or aborts."""

    def build(_version: int) -> EndTxnRequest:
        return EndTxnRequest(**writer.fields(), committed=committed)

    def refusal(response: EndTxnResponse) -> tuple[int, str]:
        return response.error_code, f"the transaction was not {'committed' if committed else 'aborted'}"

    return Question(Asked.END, EndTxnRequest, build, refusal, writer.key, None if v2 else _LAST_WITHOUT_V2)
