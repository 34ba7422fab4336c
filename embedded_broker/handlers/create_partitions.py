"""CreatePartitions 0–3: extend topics to ``count`` partitions."""

from __future__ import annotations

from collections import Counter

from splashdam.embedded_broker.execution.turns import CHANGE_UNITS, PARTITION_UNITS, Steps
from splashdam.embedded_broker.handlers.create_topics import MAX_PARTITIONS, PARTITIONS_TOGETHER
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.model.broker_errors import (
    BrokerResponseError,
    ErrorCode,
    InvalidRequestError,
    UnknownTopicOrPartitionError,
    error_for,
)
from splashdam.model.log_text import quoted
from splashdam.storage.manager.topic_registry import NewTopic
from splashdam.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

_FIRST_STRICT_VERSION = 3
"""First version that the controller mutation quota refuses (KIP-599); earlier ones are throttled."""


@handles(CreatePartitionsRequest, versions=range(4))
def create_partitions(
    request: CreatePartitionsRequest, context: RequestContext
) -> Steps[CreatePartitionsResponse]:
    """Answer with a result for each topic; the others are extended even if one fails."""
    times = Counter(topic.name for topic in request.topics)
    results = []
    for topic in {topic.name: topic for topic in request.topics}.values():
        yield CHANGE_UNITS
        result = CreatePartitionsTopicResult(name=topic.name)
        try:
            if times[topic.name] > 1:
                raise InvalidRequestError("the request names the topic more than once")
            # Changes of one topic are made one after the other, as in Kafka's controller.
            yield from context.broker.topics.wait_for(topic.name)
            yield from _extend(topic, request.validate_only, context)
        except BrokerResponseError as error:
            context.broker.disk_failures.change_failed(f"extend topic {quoted(topic.name)}", error)
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return CreatePartitionsResponse(results=results)


def _extend(asked: CreatePartitionsTopic, validate_only: bool, context: RequestContext) -> Steps[None]:
    """Prepare many partitions in steps first: clients must see all of them or none."""
    topic = context.broker.topics.get(asked.name)
    if topic is None:
        raise UnknownTopicOrPartitionError(f"there is no topic {quoted(asked.name)}")
    new = asked.count - len(topic.partitions)
    if new > MAX_PARTITIONS:
        raise error_for(
            ErrorCode.POLICY_VIOLATION,
            f"the request asks for {new} partitions more; {MAX_PARTITIONS} is the most at once",
        )
    assignments = [each.broker_ids for each in asked.assignments or ()]
    if asked.assignments == [] and new > 0:
        raise error_for(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{new} partitions are new, none is assigned")
    controller = context.broker.controller
    controller.create_partitions(asked.name, asked.count, assignments, validate_only=True)
    if validate_only:
        return
    context.record_mutations(new, strict_from=_FIRST_STRICT_VERSION)
    wanted = NewTopic(asked.name, asked.count, topic.configs)
    wanted = yield from context.broker.topics.prepare(wanted)
    try:
        controller.create_partitions(asked.name, asked.count, assignments)
    finally:
        context.broker.topics.give_up(wanted)
    yield PARTITION_UNITS * min(new, PARTITIONS_TOGETHER)
