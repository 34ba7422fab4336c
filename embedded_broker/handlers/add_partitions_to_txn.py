"""AddPartitionsToTxn 0–5: partitions join a producer's transaction, or are looked up in it.

Clients send one transaction (0–3). Brokers send several (4–5), each to be added to or, with ``verify_only``,
to be asked about. All partitions of a transaction join or none: where a topic is missing, it is named with 3
and the others with 55.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import TYPE_CHECKING

from splashdam.embedded_broker.internal_topics import answer_when_all_safe
from splashdam.embedded_broker.registry import Answer, RequestContext, handles
from splashdam.embedded_broker.transactions.answers import client_code
from splashdam.embedded_broker.transactions.metadata import EPOCH_BUMPS
from splashdam.model.error_codes import ErrorCode
from splashdam.model.errors import BrokerResponseError
from splashdam.model.values import TopicPartition
from splashdam.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from splashdam.embedded_broker.storage.log import Log

_FIRST_FENCED_VERSION, _FIRST_BATCHED_VERSION, _FIRST_ABORTABLE_VERSION = 2, 4, 5
"""From which 90 is understood, several transactions are sent, 120 is understood."""


@handles(AddPartitionsToTxnRequest, versions=range(6))
def add_partitions_to_txn(request: AddPartitionsToTxnRequest, context: RequestContext) -> Answer:
    """A code for each partition."""
    if context.version >= _FIRST_BATCHED_VERSION:
        return _batched(request, context)
    asked = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    logs: list[Log] = []
    results = _results(asked, context, logs)

    def refuse(error: BrokerResponseError) -> AddPartitionsToTxnResponse:
        code = client_code(error, knows_fenced=True)
        refused = _by_topic(asked.topics, dict.fromkeys(_partitions(asked), code))
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=refused)

    answer = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
    return answer_when_all_safe(logs, answer, refuse, is_promised=_any_synced([asked], context))


def _batched(request: AddPartitionsToTxnRequest, context: RequestContext) -> Answer:
    logs: list[Log] = []
    answer = AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=asked.transactional_id, topic_results=_results(asked, context, logs)
            )
            for asked in request.transactions
        ]
    )
    return answer_when_all_safe(
        logs,
        answer,
        lambda error: AddPartitionsToTxnResponse(error_code=client_code(error, knows_fenced=True)),
        is_promised=_any_synced(request.transactions, context),
    )


def _any_synced(asked: Iterable[AddPartitionsToTxnTransaction], context: RequestContext) -> bool:
    """Whether a partition promises to survive a power cut; then so does the transaction it joins."""
    logs = (context.broker.logs.logs.get(each) for transaction in asked for each in _partitions(transaction))
    return any(log is not None and log.settings.flush_messages == 1 for log in logs)


def _results(
    asked: AddPartitionsToTxnTransaction, context: RequestContext, logs: list[Log]
) -> list[AddPartitionsToTxnTopicResult]:
    partitions = _partitions(asked)
    leader_of = context.broker.leadership.leader_of
    missing = {each for each in partitions if leader_of(each) is None}
    if asked.verify_only:
        codes = _verified(asked, partitions, context)
    elif missing:
        codes = dict.fromkeys(partitions, int(ErrorCode.OPERATION_NOT_ATTEMPTED))
        codes.update(dict.fromkeys(missing, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
    else:
        codes = dict.fromkeys(partitions, _added(asked, partitions, context, logs))
    return _by_topic(asked.topics, codes)


def _added(
    asked: AddPartitionsToTxnTransaction,
    partitions: Set[TopicPartition],
    context: RequestContext,
    logs: list[Log],
) -> int:
    coordinator = context.broker.transactions
    try:
        coordinator.add_partitions(
            asked.transactional_id,
            asked.producer_id,
            asked.producer_epoch,
            partitions,
            client_version=EPOCH_BUMPS if context.version >= _FIRST_BATCHED_VERSION else 0,
        )
        logs.append(coordinator.log_of(asked.transactional_id))
    except BrokerResponseError as error:
        return client_code(error, knows_fenced=context.version >= _FIRST_FENCED_VERSION)
    return 0


def _verified(
    asked: AddPartitionsToTxnTransaction, partitions: Set[TopicPartition], context: RequestContext
) -> dict[TopicPartition, int]:
    """By partition; the transaction is looked up once, whatever the length of its id and of the list."""
    try:
        joined = context.broker.transactions.partitions_of(
            asked.transactional_id, asked.producer_id, asked.producer_epoch
        )
    except BrokerResponseError as error:
        return dict.fromkeys(partitions, error.code)
    is_known = context.version >= _FIRST_ABORTABLE_VERSION
    absent = int(ErrorCode.TRANSACTION_ABORTABLE if is_known else ErrorCode.INVALID_TXN_STATE)
    return {each: 0 if each in joined else absent for each in partitions}


def _partitions(asked: AddPartitionsToTxnTransaction) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(topic.name, number) for topic in asked.topics for number in topic.partitions
    )


def _by_topic(
    topics: Iterable[AddPartitionsToTxnTopic], codes: Mapping[TopicPartition, int]
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=number, partition_error_code=codes[TopicPartition(topic.name, number)]
                )
                for number in topic.partitions
            ],
        )
        for topic in topics
    ]
