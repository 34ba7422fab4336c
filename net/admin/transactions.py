"""Transactions of producers: end a prepared one, fence a producer, list and describe open transactions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import attrs

from splashdam.model.broker_errors import ErrorCode, InvalidTxnStateError, ProducerFencedError, error_for
from splashdam.model.errors import IllegalArgumentError
from splashdam.model.transactions import PreparedTransaction
from splashdam.model.values import TopicPartition
from splashdam.net.admin.producers import describe_producers
from splashdam.net.cluster.cluster_client import TRANSACTION, ClusterClient
from splashdam.net.connection.connection import Connection
from splashdam.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from splashdam.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from splashdam.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from splashdam.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from splashdam.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

ONGOING = "Ongoing"
"""Kafka's name of the state of an open transaction, prepared or not."""

UNENDED = (ONGOING, "PrepareCommit", "PrepareAbort")
"""The states in which partitions have records of a transaction without its marker."""

_LAST_WITHOUT_V2 = 4  # of EndTxn
_FIRST_WITH_PATTERN = 2  # of ListTransactions
_FENCING_TIMEOUT_MS = 60_000
_GONE = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.UNKNOWN_PRODUCER_ID,
)


@attrs.frozen
class DescribedTransaction:
    """A transactional id as its coordinator describes it.

    Attributes:
        transactional_id: the id.
        state: Kafka's name of the state; empty if the coordinator does not know the id.
        producer_id: of the present producer.
        producer_epoch: of the present producer.
        start_ms: start of the open transaction, or of the last one, in milliseconds since the epoch; -1 if
            the present producer has had none.
        timeout_ms: transaction timeout.
        partitions: those that the open transaction has written to.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    start_ms: int
    timeout_ms: int
    partitions: tuple[TopicPartition, ...] = ()

    def is_open(self, prepared: PreparedTransaction) -> bool:
        """Return whether this transaction is the open one."""
        identity = (self.producer_id, self.producer_epoch)
        return self.state == ONGOING and identity == (prepared.producer_id, prepared.producer_epoch)


async def end_transaction(client: ClusterClient, prepared: PreparedTransaction, *, committed: bool) -> None:
    """Commit or abort a transaction that ``prepare_transaction`` has prepared, in any process.

    A repeated call has no effect as long as the transactional id has no newer producer: a committed
    transaction stays committed. Aborting a transaction that is no longer open has no effect either.

    Args:
        client: of the cluster.
        prepared: the transaction.
        committed: True to commit, False to abort.

    Raises:
        ProducerFencedError: the transaction cannot be committed: it was aborted at its timeout or by a newer
            producer of its transactional id, or it ended long ago.
        InvalidTxnStateError: it has ended the other way.
        KafkaTimeoutError: the coordinator did not answer; call again.
        BrokerResponseError: the coordinator rejects the request for another reason, for example a missing
            permission.
    """
    if prepared.is_empty:
        return
    request = EndTxnRequest(
        transactional_id=prepared.transactional_id,
        producer_id=prepared.producer_id,
        producer_epoch=prepared.producer_epoch,
        committed=committed,
    )

    def check(answer: EndTxnResponse) -> None:
        code = answer.error_code
        if code in _GONE:
            if committed:
                raise ProducerFencedError(_lost(prepared))
        elif code == ErrorCode.INVALID_TXN_STATE:
            raise InvalidTxnStateError(_lost(prepared) if committed else _committed(prepared))
        elif code:
            raise error_for(code, f"the end of {_named(prepared)}")

    await client.coordinator(
        prepared.transactional_id, request, check, key_type=TRANSACTION, newest=_newest_end
    )


def _newest_end(connection: Connection) -> int | None:
    """Limit EndTxn: version 5 bumps the epoch, which needs ``transaction.version`` 2 (KIP-890)."""
    has_v2 = connection.finalized_features.get("transaction.version", 0) >= 2
    return None if has_v2 else _LAST_WITHOUT_V2


def _named(prepared: PreparedTransaction) -> str:
    return (
        f"the transaction of {prepared.transactional_id!r} (producer id {prepared.producer_id}, epoch"
        f" {prepared.producer_epoch})"
    )


def _lost(prepared: PreparedTransaction) -> str:
    return (
        f"{_named(prepared)} cannot be committed: it was aborted when its transaction.timeout.ms ran out,"
        " or a newer producer of this transactional_id has aborted it. Its records cannot be read: write them"
        " again"
    )


def _committed(prepared: PreparedTransaction) -> str:
    return f"{_named(prepared)} cannot be aborted: it is committed"


async def fence_transactional_id(client: ClusterClient, transactional_id: str) -> None:
    """Abort a producer's open transaction, and fence the producer if it is still alive.

    Raises:
        BrokerResponseError: the coordinator rejects the request.
        KafkaTimeoutError: the coordinator did not answer.
    """
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=_FENCING_TIMEOUT_MS
    )

    def check(answer: InitProducerIdResponse) -> None:
        if answer.error_code:
            raise error_for(answer.error_code, f"fencing {transactional_id!r}")

    await client.coordinator(transactional_id, request, check, key_type=TRANSACTION)


class ListedTransaction(NamedTuple):
    """A transactional id as its coordinator lists it.

    Attributes:
        transactional_id: the id.
        state: Kafka's name of the state.
        producer_id: of the present producer.
        coordinator_id: of the broker that coordinates it.
    """

    transactional_id: str
    state: str
    producer_id: int
    coordinator_id: int


async def list_transactions(client: ClusterClient, states: Sequence[str] = ()) -> list[ListedTransaction]:
    """Return the transactional ids of all coordinators, sorted.

    Args:
        client: of the cluster.
        states: Kafka's names of the states that are wanted; none means all.

    Raises:
        IllegalArgumentError: a state is unknown.
        BrokerResponseError: a coordinator rejects the request.
        UnsupportedVersionError: the cluster is older than Kafka 3.0.
        KafkaTimeoutError: the cluster did not answer.
    """
    found: list[ListedTransaction] = []
    for node in (await client.cluster()).nodes.values():

        def listed(answer: ListTransactionsResponse, node_id: int = node.node_id) -> list[ListedTransaction]:
            if answer.error_code:
                raise error_for(answer.error_code, "listing transactions")
            if answer.unknown_state_filters:
                raise IllegalArgumentError(f"no transaction is in state {answer.unknown_state_filters[0]!r}")
            return [
                ListedTransaction(each.transactional_id, each.transaction_state, each.producer_id, node_id)
                for each in answer.transaction_states
            ]

        found += await client.broker(node, ListTransactionsRequest(state_filters=list(states)), listed)
    return sorted(found)


async def abort_hanging_transaction(
    client: ClusterClient, topic_partition: TopicPartition, start_offset: int
) -> int:
    """Abort a transaction in one partition, whose coordinator has forgotten it.

    The marker is written by the partition leader. A transaction that its coordinator still knows ends by
    `fence_transactional_id` instead, in all of its partitions.

    Args:
        client: of the cluster.
        topic_partition: the partition.
        start_offset: of the transaction there, as `describe_producers` tells.

    Returns:
        the producer id whose transaction was aborted.

    Raises:
        IllegalArgumentError: no transaction that is open begins there.
        BrokerResponseError: the leader rejects the marker.
        KafkaTimeoutError: the cluster did not answer.
    """
    known = (await describe_producers(client, [topic_partition]))[topic_partition]
    hanging = next((each for each in known if each.txn_start_offset == start_offset >= 0), None)
    if hanging is None:
        raise IllegalArgumentError(
            f"no open transaction begins at offset {start_offset} of {topic_partition}"
        )
    marker = WritableTxnMarker(
        producer_id=hanging.producer_id,
        producer_epoch=hanging.producer_epoch,
        transaction_result=False,
        topics=[
            WritableTxnMarkerTopic(name=topic_partition.topic, partition_indexes=[topic_partition.partition])
        ],
        coordinator_epoch=max(hanging.coordinator_epoch, 0),
    )

    def check(answer: WriteTxnMarkersResponse) -> None:
        for each in answer.markers:
            for topic in each.topics:
                for partition in topic.partitions:
                    if partition.error_code:
                        raise error_for(partition.error_code, str(topic_partition))

    await client.leader(topic_partition, WriteTxnMarkersRequest(markers=[marker]), check)
    return hanging.producer_id


async def open_transactions(client: ClusterClient, prefix: str = "") -> list[str]:
    """Return the transactional ids that begin with ``prefix`` and have an open transaction, sorted.

    Raises:
        BrokerResponseError: a coordinator rejects the request.
        UnsupportedVersionError: the cluster is older than Kafka 3.0.
        KafkaTimeoutError: the cluster did not answer.
    """

    def request(connection: Connection) -> ListTransactionsRequest:
        has_pattern = connection.version_for(ListTransactionsRequest) >= _FIRST_WITH_PATTERN
        return ListTransactionsRequest(
            state_filters=[ONGOING],
            transactional_id_pattern=re.escape(prefix) + ".*" if has_pattern and prefix else None,
        )

    def ids(answer: ListTransactionsResponse) -> list[str]:
        if answer.error_code:
            raise error_for(answer.error_code, "listing transactions")
        return [each.transactional_id for each in answer.transaction_states]

    found: set[str] = set()
    for node in (await client.cluster()).nodes.values():
        # Before version 2 there is no pattern, and such a broker lists all ids.
        found.update(each for each in await client.broker(node, request, ids) if each.startswith(prefix))
    return sorted(found)


async def describe_transaction(client: ClusterClient, transactional_id: str) -> DescribedTransaction:
    """Describe a transactional id.

    Raises:
        BrokerResponseError: the coordinator rejects the request.
        UnsupportedVersionError: the cluster is older than Kafka 3.0.
        KafkaTimeoutError: the coordinator did not answer.
    """

    def read(answer: DescribeTransactionsResponse) -> DescribedTransaction:
        each = answer.transaction_states[0]
        if each.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return DescribedTransaction(transactional_id, "", -1, -1, -1, 0)
        if each.error_code:
            raise error_for(each.error_code, f"transactional id {transactional_id!r}")
        return DescribedTransaction(
            transactional_id,
            each.transaction_state,
            each.producer_id,
            each.producer_epoch,
            each.transaction_start_time_ms,
            each.transaction_timeout_ms,
            tuple(
                TopicPartition(topic.topic, number) for topic in each.topics for number in topic.partitions
            ),
        )

    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    return await client.coordinator(transactional_id, request, read, key_type=TRANSACTION)
