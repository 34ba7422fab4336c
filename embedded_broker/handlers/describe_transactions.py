"""DescribeTransactions 0: the state of transactional ids, and the partitions of their open transactions."""

from __future__ import annotations

from itertools import groupby

from splashdam.embedded_broker.execution.turns import PARTITIONS_IN_A_UNIT, Steps, units_of_names
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.embedded_broker.transactions.metadata import TransactionMetadata
from splashdam.model.acls import Operation, ResourceType
from splashdam.model.broker_errors import (
    BrokerResponseError,
    ErrorCode,
    TransactionalIdAuthorizationFailedError,
    error_for,
)
from splashdam.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


@handles(DescribeTransactionsRequest, versions=range(1))
def describe_transactions(
    request: DescribeTransactionsRequest, context: RequestContext
) -> Steps[DescribeTransactionsResponse]:
    """Answer for each id; 105 if it is not known."""
    answer = DescribeTransactionsResponse()
    for transactional_id in request.transactional_ids:
        state = _answer(transactional_id, context)
        answer.transaction_states.append(state)
        partitions = sum(len(each.partitions) for each in state.topics)
        yield units_of_names(transactional_id) + partitions // PARTITIONS_IN_A_UNIT
    return answer


def _answer(transactional_id: str, context: RequestContext) -> TransactionState:
    try:
        return _described(_find(transactional_id, context), context)
    except BrokerResponseError as error:
        return TransactionState(transactional_id=transactional_id, error_code=error.code)


def _find(transactional_id: str, context: RequestContext) -> TransactionMetadata:
    if not context.authorize(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        raise TransactionalIdAuthorizationFailedError
    coordinator = context.broker.transactions
    coordinator.check_id(transactional_id)
    metadata = coordinator.get(transactional_id)
    if metadata is None:
        raise error_for(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    return metadata


def _described(metadata: TransactionMetadata, context: RequestContext) -> TransactionState:
    by_topic = groupby(sorted(metadata.partitions), key=lambda partition: partition.topic)
    return TransactionState(
        transactional_id=metadata.transactional_id,
        transaction_state=metadata.state.kafka_name,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_start_time_ms=metadata.start_ms,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        topics=[
            TopicData(topic=topic, partitions=[each.partition for each in partitions])
            for topic, partitions in by_topic
            if context.authorize(Operation.DESCRIBE, ResourceType.TOPIC, topic)
        ],
    )
