"""Guards of requests about topics."""

from __future__ import annotations

from typing import Any, NamedTuple

from splashdam.embedded_broker.authorization.refusals import (
    REASONS,
    add_refused,
    may,
    split,
    then,
    topic_name,
)
from splashdam.embedded_broker.execution.answers import Answer, CloseConnectionError, Parked
from splashdam.embedded_broker.execution.turns import PARTITIONS_IN_A_UNIT, Steps, in_steps, parted
from splashdam.embedded_broker.fetching.reading import close_slice
from splashdam.embedded_broker.serving.registry import PlainHandler, RequestContext, guards
from splashdam.model.acls import Operation, ResourceType
from splashdam.model.broker_errors import ErrorCode
from splashdam.model.log_text import quoted
from splashdam.wire.fields import NO_UUID
from splashdam.wire.message import Request
from splashdam.wire.messages.create_partitions import CreatePartitionsRequest
from splashdam.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from splashdam.wire.messages.delete_records import DeleteRecordsRequest
from splashdam.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from splashdam.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from splashdam.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from splashdam.wire.messages.list_offsets import ListOffsetsRequest
from splashdam.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from splashdam.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from splashdam.wire.messages.produce import (
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class _ByTopic(NamedTuple):
    """A request whose topics are authorized one by one."""

    operation: Operation
    asked: str
    answered: str


_BY_TOPIC: dict[type[Request[Any]], _ByTopic] = {
    ListOffsetsRequest: _ByTopic(Operation.DESCRIBE, "topics", "topics"),
    OffsetForLeaderEpochRequest: _ByTopic(Operation.DESCRIBE, "topics", "topics"),
    DeleteRecordsRequest: _ByTopic(Operation.DELETE, "topics", "topics"),
    CreatePartitionsRequest: _ByTopic(Operation.ALTER, "topics", "results"),
}


@guards(*_BY_TOPIC)
def by_topic(request: Any, context: RequestContext, handler: PlainHandler) -> Steps[Answer]:
    """Refused topics get TOPIC_AUTHORIZATION_FAILED (29); brokers may ask for all ends of epochs."""
    rule = _BY_TOPIC[type(request)]
    if isinstance(request, OffsetForLeaderEpochRequest) and context.authorize(
        Operation.CLUSTER_ACTION, ResourceType.CLUSTER
    ):
        return handler(request, context)
    allowed, others = split(getattr(request, rule.asked), may(rule.operation, context))
    setattr(request, rule.asked, allowed)
    return (yield from then(handler(request, context), add_refused(others, _REFUSED, rule.answered), context))


@guards(ProduceRequest)
def produce(request: ProduceRequest, context: RequestContext, handler: PlainHandler) -> Steps[Answer]:
    """WRITE on the transactional id, then on each topic. With ``acks=0`` a refusal closes the connection."""
    transactional_id, code = request.transactional_id, _REFUSED
    if transactional_id is not None and not context.authorize(
        Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
    ):
        allowed: list[TopicProduceData] = []
        others = request.topic_data
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    else:
        allowed, others = split(request.topic_data, may(Operation.WRITE, context))
    if not others:
        return handler(request, context)
    request.topic_data = allowed
    answer = handler(request, context) if allowed else ProduceResponse()
    if request.acks == 0:
        return _closing(
            answer, f"acks=0: the client may not write to {quoted(topic_name(others[0], context))}"
        )
    return (yield from then(answer, add_refused(others, code, "responses"), context))


def _closing(answer: Answer, reason: str) -> Answer:
    """Close the connection once the allowed part is written."""
    error = CloseConnectionError(reason)
    if not isinstance(answer, Parked):
        raise error
    wait = answer.wait

    async def wait_and_close() -> None:
        await wait()
        raise error

    return Parked(wait_and_close)


@guards(FetchRequest)
def fetch(request: FetchRequest, context: RequestContext, handler: PlainHandler) -> Steps[Answer]:
    """READ on each topic, whether this request names it or an earlier one of the session.

    Data that were read for refused topics are released.
    """
    # Before the handler: a replica's fetch moves the high watermark.
    if max(request.replica_id, request.replica_state.replica_id) >= 0:
        if context.authorize(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
            return handler(request, context)
        return (yield from _all_unread(request))
    may_read = may(Operation.READ, context)
    if not all(may_read(topic) for topic in request.topics):
        # A refusal is answered at once, as every error of a partition.
        request.max_wait_ms = 0

    def change(answer: FetchResponse) -> Steps[None]:
        try:
            for topic in answer.responses:
                if not may_read(topic):
                    topic.partitions = yield from in_steps(topic.partitions, _unread)
                yield 1
        except BaseException:  # the client is gone, so file slices must be closed here
            for topic in answer.responses:
                for partition in topic.partitions:
                    close_slice(partition.records)
            raise

    return (yield from then(handler(request, context), change, context))


def _all_unread(request: FetchRequest) -> Steps[FetchResponse]:
    answer = FetchResponse()
    for topic in request.topics:
        partitions = yield from in_steps(topic.partitions, lambda asked: _refusal(asked.partition))
        answer.responses.append(
            FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=partitions)
        )
        yield 1
    return answer


def _unread(partition: PartitionData) -> PartitionData:
    close_slice(partition.records)
    return _refusal(partition.partition_index)


def _refusal(index: int) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=_REFUSED,
        high_watermark=-1,
        aborted_transactions=[],
        records=b"",
    )


@guards(MetadataRequest)
def metadata(request: MetadataRequest, context: RequestContext, handler: PlainHandler) -> Steps[Answer]:
    """DESCRIBE on each topic, CREATE on missing ones; a refusal does not reveal whether a topic exists."""
    others: list[MetadataRequestTopic] = []
    if request.topics is not None:
        is_described, may_create = may(Operation.DESCRIBE, context), _may_create(request, context)
        is_all = context.version == 0 and not request.topics
        allowed, others = split(request.topics, lambda topic: is_described(topic) and may_create(topic))
        # In version 0 an empty list means all topics; an empty name stands for "no topic" instead.
        request.topics = allowed or (
            [MetadataRequestTopic(name="")] if context.version == 0 and not is_all else []
        )

    def change(answer: MetadataResponse) -> Steps[None]:
        may_describe = may(Operation.DESCRIBE, context)
        shown, _ = yield from parted(answer.topics, lambda topic: topic.name != "" and may_describe(topic))
        answer.topics = shown + (yield from in_steps(others, _hidden))
        if request.include_topic_authorized_operations:
            yield from _add_operations(answer.topics, context)
        if request.include_cluster_authorized_operations:
            answer.cluster_authorized_operations = _cluster_operations(context)

    return (yield from then(handler(request, context), change, context))


def _hidden(topic: MetadataRequestTopic) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=_REFUSED, name=topic.name, topic_id=topic.topic_id)


def _add_operations(topics: list[Any], context: RequestContext) -> Steps[None]:
    """Add the authorized operations of each topic."""
    for topic in topics:
        if not topic.error_code and topic.name is not None:
            topic.topic_authorized_operations = context.authorized_operations(ResourceType.TOPIC, topic.name)
            yield 1


def _may_create(request: MetadataRequest, context: RequestContext) -> Any:
    """Return a predicate: the topic exists, or may be created, or is not to be created."""
    is_asked = context.version < 4 or request.allow_auto_topic_creation
    if not (is_asked and context.broker.settings.auto_create_topics_enable):
        return lambda _: True
    if context.authorize(Operation.CREATE, ResourceType.CLUSTER):
        return lambda _: True

    def is_allowed(topic: Any) -> bool:
        name = topic.name
        return (
            name is None
            or context.broker.topics.get(name) is not None
            or context.authorize(Operation.CREATE, ResourceType.TOPIC, name)
        )

    return is_allowed


def _cluster_operations(context: RequestContext) -> int:
    may_describe = context.authorize(Operation.DESCRIBE, ResourceType.CLUSTER)
    return context.authorized_operations(ResourceType.CLUSTER) if may_describe else 0


@guards(DescribeTopicPartitionsRequest)
def describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, context: RequestContext, handler: PlainHandler
) -> Steps[Answer]:
    """DESCRIBE on each topic; of all topics, those that are allowed."""
    is_all = not request.topics
    allowed, others = split(request.topics, may(Operation.DESCRIBE, context))
    if not is_all and not allowed:
        answer: Answer = DescribeTopicPartitionsResponse(next_cursor=None)
    else:
        request.topics = allowed
        answer = handler(request, context)

    def change(response: DescribeTopicPartitionsResponse) -> Steps[None]:
        response.topics, _ = yield from parted(response.topics, may(Operation.DESCRIBE, context))
        yield from _add_operations(response.topics, context)
        yield from add_refused(others, _REFUSED, "topics")(response)

    return (yield from then(answer, change, context))


@guards(CreateTopicsRequest)
def create_topics(
    request: CreateTopicsRequest, context: RequestContext, handler: PlainHandler
) -> Steps[Answer]:
    """CREATE on the cluster or on each topic; DESCRIBE_CONFIGS to get its configuration."""
    others: list[Any] = []
    if not context.authorize(Operation.CREATE, ResourceType.CLUSTER):
        request.topics, others = split(request.topics, may(Operation.CREATE, context))

    def change(answer: CreateTopicsResponse) -> Steps[None]:
        may_see = may(Operation.DESCRIBE_CONFIGS, context)
        for number, topic in enumerate(answer.topics, 1):
            if number % PARTITIONS_IN_A_UNIT == 0:
                yield 1
            if not topic.error_code and not may_see(topic):
                topic.topic_config_error_code = _REFUSED
                topic.num_partitions = topic.replication_factor = -1
                topic.configs = []
        yield from add_refused(others, _REFUSED, "topics")(answer)

    return (yield from then(handler(request, context), change, context))


@guards(DeleteTopicsRequest)
def delete_topics(
    request: DeleteTopicsRequest, context: RequestContext, handler: PlainHandler
) -> Steps[Answer]:
    """DELETE on each topic; a topic id is resolved to its name only with DESCRIBE."""
    others: list[tuple[str | None, bytes]] = []

    def is_allowed(name: str | None, topic_id: bytes) -> bool:
        if name is not None and topic_id != NO_UUID:
            return True  # naming both is illegal, and refused by the handler
        found = context.broker.topics.by_id(topic_id) if name is None else None
        known = name or (found.name if found is not None else None)
        if known is None or context.authorize(Operation.DELETE, ResourceType.TOPIC, known):
            return True
        may_see_name = name is not None or context.authorize(Operation.DESCRIBE, ResourceType.TOPIC, known)
        others.append((known if may_see_name else None, topic_id))
        return False

    request.topics = [each for each in request.topics if is_allowed(each.name, each.topic_id)]
    request.topic_names = [name for name in request.topic_names if is_allowed(name, NO_UUID)]

    def change(answer: DeleteTopicsResponse) -> Steps[None]:
        answer.responses += yield from in_steps(
            others,
            lambda each: DeletableTopicResult(
                name=each[0], topic_id=each[1], error_code=_REFUSED, error_message=REASONS[_REFUSED]
            ),
        )

    return (yield from then(handler(request, context), change, context))
