"""Metadata 0–13: the brokers, and the topics asked for; missing ones are created where that is allowed.

Versions 0–3 imply auto-creation, later ones say so. Version 0 asks for all topics with an empty list, later
ones with null. From version 12 on topics may be asked for by id. A partition without a leader is answered
with 5, and with its replicas.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from splashdam.embedded_broker.controller.state import NOBODY, PartitionState
from splashdam.embedded_broker.execution.turns import (
    CHANGE_UNITS,
    PARTITION_UNITS,
    PARTITIONS_IN_A_UNIT,
    Steps,
)
from splashdam.embedded_broker.handlers.create_topics import (
    PARTITIONS_TOGETHER,
    TOPICS_TOGETHER,
)
from splashdam.embedded_broker.serving.registry import AskedBroker, RequestContext, handles
from splashdam.model.acls import Operation, ResourceType
from splashdam.model.broker_errors import (
    BrokerResponseError,
    ErrorCode,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    error_for,
)
from splashdam.model.values import TopicPartition
from splashdam.storage.manager.topic_registry import Topic
from splashdam.storage.topic_names import INTERNAL_TOPICS, check_topic_name, folded, is_topic_name
from splashdam.wire.fields import NO_UUID
from splashdam.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

TOPIC_OPERATIONS = 0b1101_1111_1000
CLUSTER_OPERATIONS = 0b1_1111_1010_0000
"""Kafka's answer without an authorizer: every operation on the resource, one bit for each."""

_FIRST_ID_VERSION = 12


@handles(MetadataRequest, versions=range(14))
def metadata(request: MetadataRequest, context: RequestContext) -> Steps[MetadataResponse]:
    """Answer with brokers and topics; each topic has its error code."""
    broker, rack_of = context.broker, context.broker.controller.state.rack_of
    if context.version < _FIRST_ID_VERSION and any(map(_is_by_id, request.topics or ())):
        return _refusal(request.topics or ())
    answer = MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=node_id, host=address.host, port=address.port, rack=rack_of(node_id)
            )
            for node_id, address in broker.leadership.brokers(context.address).items()
        ],
        cluster_id=broker.cluster_id,
        controller_id=broker.leadership.controller_id,
    )
    if request.topics is None or (context.version == 0 and not request.topics):
        for topic in broker.topics.all():
            yield 1 + len(topic.partitions) // PARTITIONS_IN_A_UNIT
            answer.topics.append(_described(topic, request, context))
    else:
        asked_once = {(asked.name, asked.topic_id): asked for asked in request.topics}.values()
        yield from _create_missing(asked_once, request, context)
        may_create = _may_create(request, context)
        for asked in asked_once:
            name = asked.name
            if may_create and name and broker.topics.get(name) is None and is_topic_name(name):
                yield CHANGE_UNITS
            answer.topics.append(_answer(asked, request, context))
            yield 1 + len(answer.topics[-1].partitions) // PARTITIONS_IN_A_UNIT
    if request.include_cluster_authorized_operations:
        answer.cluster_authorized_operations = CLUSTER_OPERATIONS
    return answer


def _is_by_id(asked: MetadataRequestTopic) -> bool:
    return asked.name is None or asked.topic_id != NO_UUID


def _refusal(topics: Iterable[MetadataRequestTopic]) -> MetadataResponse:
    """Refuse topics named by id: versions 10 and 11 have the field, but Kafka does not accept it there."""
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(
                error_code=ErrorCode.INVALID_REQUEST, name=asked.name or "", topic_id=asked.topic_id
            )
            for asked in topics
        ]
    )


def _create_missing(
    topics: Iterable[MetadataRequestTopic], request: MetadataRequest, context: RequestContext
) -> Steps[None]:
    """Create missing topics, many at once; if that is refused, one by one, each with its error."""
    names = dict.fromkeys(asked.name for asked in topics if asked.name is not None)
    missing = [name for name in names if context.broker.topics.get(name) is None]
    if not missing or not _may_create(request, context):
        return
    taken: set[str] = set()
    legal = []
    for name in missing:
        if is_topic_name(name) and folded(name) not in taken and not context.broker.topics.collides(name):
            taken.add(folded(name))
            legal.append(name)
    partitions = context.broker.settings.num_partitions
    at_once = max(1, min(TOPICS_TOGETHER, PARTITIONS_TOGETHER // partitions))
    for start in range(0, len(legal) if len(legal) > 1 else 0, at_once):
        if start:
            yield CHANGE_UNITS + at_once * partitions * PARTITION_UNITS
        still = [
            name
            for name in legal[start : start + at_once]
            if context.broker.topics.get(name) is None  # another request may have created it
            and _may_create_this(name, context)
            and not context.broker.topics.is_busy(name)
        ]
        # The caller tries what is missing one by one, and answers each with its own error.
        with suppress(BrokerResponseError):
            context.broker.topics.create_all(still)


def _may_create(request: MetadataRequest, context: RequestContext) -> bool:
    is_asked = context.version < 4 or request.allow_auto_topic_creation
    return is_asked and context.broker.settings.auto_create_topics_enable


def _may_create_this(name: str, context: RequestContext) -> bool:
    """Authorize the creation again: the topic may have been deleted since the guard saw it."""
    return context.authorize(Operation.CREATE, ResourceType.CLUSTER) or context.authorize(
        Operation.CREATE, ResourceType.TOPIC, name
    )


def _answer(
    asked: MetadataRequestTopic, request: MetadataRequest, context: RequestContext
) -> MetadataResponseTopic:
    try:
        return _described(_find(asked, request, context), request, context)
    except BrokerResponseError as error:
        name = None if _is_by_id(asked) else asked.name
        answer = MetadataResponseTopic(error_code=error.code, name=name, topic_id=asked.topic_id)
        if request.include_topic_authorized_operations and name is not None:
            answer.topic_authorized_operations = TOPIC_OPERATIONS
        return answer


def _find(asked: MetadataRequestTopic, request: MetadataRequest, context: RequestContext) -> Topic:
    topics = context.broker.topics
    if asked.name is None or _is_by_id(asked):
        topic = topics.by_id(asked.topic_id)
        if topic is None:
            raise UnknownTopicIdError
        return topic
    topic = topics.get(asked.name)
    if topic is not None:
        return topic
    if topics.is_busy(asked.name):
        raise UnknownTopicOrPartitionError
    check_topic_name(asked.name)
    if not _may_create(request, context):
        raise UnknownTopicOrPartitionError
    if not _may_create_this(asked.name, context):
        raise error_for(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return topics.create(asked.name)


def _described(topic: Topic, request: MetadataRequest, context: RequestContext) -> MetadataResponseTopic:
    broker = context.broker
    answer = MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            described_partition(TopicPartition(topic.name, partition), broker)
            for partition in topic.partitions
        ],
    )
    if request.include_topic_authorized_operations:
        answer.topic_authorized_operations = TOPIC_OPERATIONS
    return answer


def described_partition(topic_partition: TopicPartition, broker: AskedBroker) -> MetadataResponsePartition:
    """Describe a partition; error 5 if it has no leader."""
    state = broker.leadership.partition(topic_partition) or PartitionState((), (), NOBODY, -1)
    return MetadataResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if state.leader == NOBODY else 0,
        partition_index=topic_partition.partition,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        offline_replicas=[node for node in state.replicas if _is_down(node, broker)],
    )


def _is_down(node_id: int, broker: AskedBroker) -> bool:
    known = broker.controller.state.brokers.get(node_id)
    return known is not None and known.is_fenced
