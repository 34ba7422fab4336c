"""DescribeProducers 0: the producer states of partitions, with the start of each open transaction."""

from __future__ import annotations

from splashdam.embedded_broker.execution.turns import Steps
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.embedded_broker.topics.partitions import leader_log
from splashdam.model.acls import Operation, ResourceType
from splashdam.model.broker_errors import BrokerResponseError, TopicAuthorizationFailedError
from splashdam.model.values import TopicPartition
from splashdam.storage.topic_names import check_topic_name
from splashdam.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

_PRODUCERS_IN_A_UNIT = 16


@handles(DescribeProducersRequest, versions=range(1))
def describe_producers(
    request: DescribeProducersRequest, context: RequestContext
) -> Steps[DescribeProducersResponse]:
    """Answer for each partition."""
    answer = DescribeProducersResponse()
    for topic in request.topics:
        described = TopicResponse(name=topic.name)
        answer.topics.append(described)
        refusal = _refusal(topic.name, context)  # once: a name may be long, and stand for many partitions
        for number in topic.partition_indexes:
            partition = _described(TopicPartition(topic.name, number), context, refusal)
            described.partitions.append(partition)
            yield 1 + len(partition.active_producers) // _PRODUCERS_IN_A_UNIT
        yield 1
    return answer


def _refusal(topic: str, context: RequestContext) -> BrokerResponseError | None:
    """Return why nothing is told about the topic's partitions; None if the client may know."""
    try:
        check_topic_name(topic)
    except BrokerResponseError as error:
        return error
    may_read = context.authorize(Operation.READ, ResourceType.TOPIC, topic)
    return None if may_read else TopicAuthorizationFailedError()


def _described(
    topic_partition: TopicPartition, context: RequestContext, refusal: BrokerResponseError | None
) -> PartitionResponse:
    answer = PartitionResponse(partition_index=topic_partition.partition)
    try:
        if refusal is not None:
            raise refusal
        log = leader_log(context.broker, topic_partition)
    except BrokerResponseError as error:
        answer.error_code, answer.error_message = error.code, error.message
        return answer
    answer.active_producers = [
        ProducerState(
            producer_id=each.producer_id,
            producer_epoch=each.epoch,
            last_sequence=each.last_sequence,
            last_timestamp=each.timestamp_ms,
            coordinator_epoch=each.coordinator_epoch,
            current_txn_start_offset=each.transaction_first_offset,
        )
        for each in log.producers
    ]
    return answer
