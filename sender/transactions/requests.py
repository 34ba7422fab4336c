"""Builds the requests to the coordinators of a transaction, and reads their responses. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from splashdam.model.broker_errors import ErrorCode, UnsupportedVersionError
from splashdam.model.cluster import Node
from splashdam.model.transactions import ConsumerGroupMetadata, OffsetAndMetadata
from splashdam.model.values import TopicPartition
from splashdam.sender.idempotence import Identity
from splashdam.sender.transactions.rulings import RequestKind, gravest
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

_FIND_MANY_FROM = 4
_CLIENTS_ADD_UP_TO = 3  # AddPartitionsToTxn above it is for brokers
_MEMBERS_FROM = 3  # of TxnOffsetCommit
_LAST_WITHOUT_V2 = 4  # of EndTxn and TxnOffsetCommit
_LAST_BY_NAME = 5  # of TxnOffsetCommit: newer versions name topics by id


class CoordinatorKey(NamedTuple):
    """The key of a coordinator: ``key_type`` 0 for a group, 1 for a transactional id."""

    key_type: int
    key: str

    def __str__(self) -> str:
        return f"{'group' if self.key_type == 0 else 'transactional_id'} {self.key!r}"


class CoordinatorRequest(NamedTuple):
    """A request to a coordinator.

    Attributes:
        kind: see ``RequestKind``.
        request_cls: the message class.
        build: builds it for a version.
        refusal: returns error code and text of a response; code 0 if there is no error.
        coordinator: where it goes; None: any broker.
        newest: upper limit of the version; None: whatever both sides support.
        finds: the coordinator that a FindCoordinator request looks for.
    """

    kind: RequestKind
    request_cls: type[Request[Any]]
    build: Callable[[int], Request[Any]]
    refusal: Callable[[Any], tuple[int, str]]
    coordinator: CoordinatorKey | None = None
    newest: int | None = None
    finds: CoordinatorKey | None = None


class TransactionalIdentity(NamedTuple):
    """Transactional id, producer id and epoch: what a coordinator checks in each request."""

    key: CoordinatorKey
    identity: Identity

    def fields(self) -> dict[str, Any]:
        """Return the fields that most requests have in common."""
        return {
            "transactional_id": self.key.key,
            "producer_id": self.identity.producer_id,
            "producer_epoch": self.identity.epoch,
        }


def find_coordinator(wanted: CoordinatorKey) -> CoordinatorRequest:
    """Return the FindCoordinator request for ``wanted``."""

    def build(version: int) -> FindCoordinatorRequest:
        if version >= _FIND_MANY_FROM:
            return FindCoordinatorRequest(key_type=wanted.key_type, coordinator_keys=[wanted.key])
        return FindCoordinatorRequest(key_type=wanted.key_type, key=wanted.key)

    def refusal(response: FindCoordinatorResponse) -> tuple[int, str]:
        for each in response.coordinators:
            return each.error_code or _nowhere(each.node_id, each.host), each.error_message or ""
        return response.error_code or _nowhere(response.node_id, response.host), response.error_message or ""

    return CoordinatorRequest(
        RequestKind.FIND_COORDINATOR, FindCoordinatorRequest, build, refusal, finds=wanted
    )


def _nowhere(node_id: int, host: str) -> int:
    """Return COORDINATOR_NOT_AVAILABLE for a response that has neither an error nor a broker.

    A negative node id would be taken for a bootstrap address of ours.
    """
    return ErrorCode.NONE if node_id >= 0 and host else ErrorCode.COORDINATOR_NOT_AVAILABLE


def coordinator_in(response: FindCoordinatorResponse) -> Node:
    """Return the coordinator that a response without error names."""
    for each in response.coordinators:
        return Node(each.node_id, each.host, each.port)
    return Node(response.node_id, response.host, response.port)


def init_producer_id(key: CoordinatorKey, timeout_ms: int, present: Identity) -> CoordinatorRequest:
    """Return the request for a new producer id, or for the next epoch of ``present`` if that is valid."""

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

    return CoordinatorRequest(RequestKind.INIT_PRODUCER_ID, InitProducerIdRequest, build, refusal, key)


def add_partitions(
    producer: TransactionalIdentity, partitions: Iterable[TopicPartition]
) -> CoordinatorRequest:
    """Return the AddPartitionsToTxn request for these partitions."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)

    def build(_version: int) -> AddPartitionsToTxnRequest:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=producer.key.key,
            v3_and_below_producer_id=producer.identity.producer_id,
            v3_and_below_producer_epoch=producer.identity.epoch,
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
        code = gravest(RequestKind.ADD_PARTITIONS, [code for code, _, _ in codes])
        names = {
            topic if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED else f"{topic}-{number}"
            for each, topic, number in codes
            if each == code
        }
        return code, f"partitions not added to the transaction: {', '.join(sorted(names))}"

    return CoordinatorRequest(
        RequestKind.ADD_PARTITIONS,
        AddPartitionsToTxnRequest,
        build,
        refusal,
        producer.key,
        _CLIENTS_ADD_UP_TO,
    )


def add_offsets(producer: TransactionalIdentity, group_id: str) -> CoordinatorRequest:
    """Return the AddOffsetsToTxn request for this group."""

    def build(_version: int) -> AddOffsetsToTxnRequest:
        return AddOffsetsToTxnRequest(**producer.fields(), group_id=group_id)

    def refusal(response: AddOffsetsToTxnResponse) -> tuple[int, str]:
        return response.error_code, f"group {group_id!r} was not added to the transaction"

    return CoordinatorRequest(RequestKind.ADD_OFFSETS, AddOffsetsToTxnRequest, build, refusal, producer.key)


def commit_offsets(
    producer: TransactionalIdentity,
    group: ConsumerGroupMetadata,
    offsets: dict[TopicPartition, OffsetAndMetadata],
    *,
    v2: bool,
) -> CoordinatorRequest:
    """Return the TxnOffsetCommit request: the group's offsets, valid once the transaction is committed."""
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
            **producer.fields(),
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
        code = gravest(RequestKind.COMMIT_OFFSETS, codes)
        return code, f"the offsets of group {group.group_id!r} were not committed"

    return CoordinatorRequest(
        RequestKind.COMMIT_OFFSETS,
        TxnOffsetCommitRequest,
        build,
        refusal,
        CoordinatorKey(0, group.group_id),
        _LAST_BY_NAME if v2 else _LAST_WITHOUT_V2,
    )


def end(producer: TransactionalIdentity, *, committed: bool, v2: bool) -> CoordinatorRequest:
    """Return the EndTxn request, which commits or aborts."""

    def build(_version: int) -> EndTxnRequest:
        return EndTxnRequest(**producer.fields(), committed=committed)

    def refusal(response: EndTxnResponse) -> tuple[int, str]:
        return response.error_code, f"the transaction was not {'committed' if committed else 'aborted'}"

    return CoordinatorRequest(
        RequestKind.END, EndTxnRequest, build, refusal, producer.key, None if v2 else _LAST_WITHOUT_V2
    )
