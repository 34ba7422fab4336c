"""AddPartitionsToTxn 0–5: add partitions to a producer's transaction, or verify that they were added.

Clients send one transaction (0–3). Brokers send several (4–5), each to be added to or, with ``verify_only``,
to be asked about. All partitions of a transaction join or none: where a topic is missing, it is named with 3
and the others with 55.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from functools import partial

from splashdam.embedded_broker.execution.answers import Answer
from splashdam.embedded_broker.execution.turns import Steps, in_steps, units_of_names
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.embedded_broker.topics.internal_topics import Appended
from splashdam.embedded_broker.transactions.error_mapping import client_code
from splashdam.embedded_broker.transactions.metadata import EPOCH_BUMPS
from splashdam.model.broker_errors import BrokerResponseError, ErrorCode
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

_FIRST_FENCED_VERSION, _FIRST_BATCHED_VERSION, _FIRST_ABORTABLE_VERSION = 2, 4, 5
"""From which 90 is understood, several transactions are sent, 120 is understood."""


@handles(AddPartitionsToTxnRequest, versions=range(6))
def add_partitions_to_txn(request: AddPartitionsToTxnRequest, context: RequestContext) -> Steps[Answer]:
    """Answer with an error code for each partition."""
    if context.version >= _FIRST_BATCHED_VERSION:
        return (yield from _batched(request, context))
    asked = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    appended = Appended()
    results = yield from _results(asked, context, appended)

    def refuse(error: BrokerResponseError) -> AddPartitionsToTxnResponse:
        code = client_code(error, knows_fenced=True)
        for topic in results:
            for each in topic.results_by_partition:
                each.partition_error_code = code
        return answer

    answer = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
    return appended.answer(answer, refuse)


def _batched(request: AddPartitionsToTxnRequest, context: RequestContext) -> Steps[Answer]:
    appended, answer = Appended(), AddPartitionsToTxnResponse()
    for asked in request.transactions:
        results = yield from _results(asked, context, appended)
        answer.results_by_transaction.append(
            AddPartitionsToTxnResult(transactional_id=asked.transactional_id, topic_results=results)
        )
    return appended.answer(
        answer, lambda error: AddPartitionsToTxnResponse(error_code=client_code(error, knows_fenced=True))
    )


def _results(
    asked: AddPartitionsToTxnTransaction, context: RequestContext, appended: Appended
) -> Steps[list[AddPartitionsToTxnTopicResult]]:
    yield units_of_names(asked.transactional_id)
    partitions, missing, synced = set[TopicPartition](), set[TopicPartition](), set[TopicPartition]()
    leader_of, logs = context.broker.leadership.leader_of, context.broker.logs.logs

    def look_at(where: TopicPartition) -> None:
        partitions.add(where)
        if leader_of(where) is None:
            missing.add(where)
        log = logs.get(where)
        if log is not None and log.settings.flush_messages == 1:
            synced.add(where)

    for topic in asked.topics:
        yield 1
        yield from in_steps(map(partial(TopicPartition, topic.name), topic.partitions), look_at)
    if asked.verify_only:
        codes = _verified(asked, partitions, context)
    elif missing:
        codes = dict.fromkeys(partitions, int(ErrorCode.OPERATION_NOT_ATTEMPTED))
        codes.update(dict.fromkeys(missing, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
    else:
        codes = dict.fromkeys(
            partitions, _added(asked, partitions, context, appended, is_promised=bool(synced))
        )
    return (yield from _by_topic(asked.topics, codes))


def _added(
    asked: AddPartitionsToTxnTransaction,
    partitions: Set[TopicPartition],
    context: RequestContext,
    appended: Appended,
    *,
    is_promised: bool,
) -> int:
    """Sync the transaction's state where a partition that it adds is synced (``flush.messages=1``)."""
    coordinator = context.broker.transactions
    try:
        coordinator.add_partitions(
            asked.transactional_id,
            asked.producer_id,
            asked.producer_epoch,
            partitions,
            client_version=EPOCH_BUMPS if context.version >= _FIRST_BATCHED_VERSION else 0,
        )
        appended.add(coordinator.log_of(asked.transactional_id), is_promised=is_promised)
    except BrokerResponseError as error:
        return client_code(error, knows_fenced=context.version >= _FIRST_FENCED_VERSION)
    return 0


def _verified(
    asked: AddPartitionsToTxnTransaction, partitions: Set[TopicPartition], context: RequestContext
) -> dict[TopicPartition, int]:
    """Return the error code of each partition; the transaction is looked up only once."""
    try:
        joined = context.broker.transactions.partitions_of(
            asked.transactional_id, asked.producer_id, asked.producer_epoch
        )
    except BrokerResponseError as error:
        return dict.fromkeys(partitions, error.code)
    is_known = context.version >= _FIRST_ABORTABLE_VERSION
    absent = int(ErrorCode.TRANSACTION_ABORTABLE if is_known else ErrorCode.INVALID_TXN_STATE)
    return {each: 0 if each in joined else absent for each in partitions}


def _by_topic(
    topics: Iterable[AddPartitionsToTxnTopic], codes: Mapping[TopicPartition, int]
) -> Steps[list[AddPartitionsToTxnTopicResult]]:
    results = []
    for topic in topics:
        yield 1
        of_topic = partial(_result, topic.name, codes)
        results.append(
            AddPartitionsToTxnTopicResult(
                name=topic.name, results_by_partition=(yield from in_steps(topic.partitions, of_topic))
            )
        )
    return results


def _result(
    topic: str, codes: Mapping[TopicPartition, int], number: int
) -> AddPartitionsToTxnPartitionResult:
    code = codes[TopicPartition(topic, number)]
    return AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=code)
