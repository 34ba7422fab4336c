"""CreateTopics 2–7: creates topics, or with ``validate_only`` says whether it would (facts B11, B12).

From version 5 on the answer carries the topic's whole configuration; the list is never null, which would
crash Java's kafka-topics. Where partitions are kept is for the controller to say.
"""

from __future__ import annotations

from collections import Counter

from splashdam.embedded_broker.described_configs import ConfigEntry, topic_entries
from splashdam.embedded_broker.registry import RequestContext, handles
from splashdam.embedded_broker.storage.topic_registry import NewTopic
from splashdam.embedded_broker.turns import CHANGE_UNITS, Steps
from splashdam.model.broker_errors import InvalidRequestError, error_for
from splashdam.model.error_codes import ErrorCode
from splashdam.model.errors import BrokerResponseError
from splashdam.model.quoting import quoted
from splashdam.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

MAX_PARTITIONS = 10_000
"""Partitions that one request may create: Kafka's ``ReplicationControlManager.MAX_PARTITIONS_PER_BATCH``."""

_FIRST_STRICT_VERSION = 6
"""From here on the quota of mutations refuses what exceeds it (KIP-599); before, it slows clients down."""


@handles(CreateTopicsRequest, versions=range(2, 8))
def create_topics(request: CreateTopicsRequest, context: RequestContext) -> Steps[CreateTopicsResponse]:
    """One result for each topic; one that fails does not keep the others from being created."""
    times = Counter(topic.name for topic in request.topics)
    partitions = sum(_partitions_asked(topic, context) for topic in request.topics)
    results = []
    for topic in {topic.name: topic for topic in request.topics}.values():
        yield CHANGE_UNITS
        try:
            if partitions > MAX_PARTITIONS:
                raise error_for(
                    ErrorCode.POLICY_VIOLATION,
                    f"the request asks for {partitions} partitions; {MAX_PARTITIONS} is the most at once",
                )
            if times[topic.name] > 1:
                raise InvalidRequestError("the request names the topic more than once")
            results.append(_create(topic, request.validate_only, context))
        except BrokerResponseError as error:
            context.broker.disk_troubles.kept_from(f"create topic {quoted(topic.name)}", error)
            results.append(
                CreatableTopicResult(
                    name=topic.name, error_code=error.code, error_message=error.message, configs=[]
                )
            )
    return CreateTopicsResponse(topics=results)


def _create(asked: CreatableTopic, validate_only: bool, context: RequestContext) -> CreatableTopicResult:
    broker = context.broker
    partitions = _partition_count(asked, context)
    configs = {}
    for config in asked.configs:
        if config.value is None:
            raise error_for(ErrorCode.INVALID_CONFIG, f"{config.name} has no value")
        configs[config.name] = config.value
    assignments = [
        each.broker_ids for each in sorted(asked.assignments, key=lambda each: each.partition_index)
    ]
    new = NewTopic(
        asked.name,
        partitions,
        configs,
        replication_factor=asked.replication_factor,
        assignments=assignments,
    )
    topic = broker.topics.create_new(new, validate_only=True)
    if not validate_only:
        context.record_mutations(partitions, strict_from=_FIRST_STRICT_VERSION)
        topic = broker.topics.create_new(new, validate_only=False)
    return CreatableTopicResult(
        name=asked.name,
        error_message=None,
        topic_id=topic.topic_id,
        num_partitions=partitions,
        replication_factor=_replication_factor(new, broker.settings.default_replication_factor),
        configs=[_described(entry) for entry in topic_entries(broker.configs.layers, configs)],
    )


def _replication_factor(new: NewTopic, default: int) -> int:
    if new.assignments:
        return len(new.assignments[0])
    return default if new.replication_factor == -1 else new.replication_factor


def _partitions_asked(asked: CreatableTopic, context: RequestContext) -> int:
    """How many partitions the topic would have, whether or not that is legal."""
    if asked.assignments:
        return len(asked.assignments)
    if asked.num_partitions == -1:
        return context.broker.settings.num_partitions
    return max(asked.num_partitions, 0)


def _partition_count(asked: CreatableTopic, context: RequestContext) -> int:
    """The number of partitions, from the request, its assignments or the broker's default."""
    if asked.assignments:
        return _assigned_count(asked)
    if asked.replication_factor != -1 and asked.replication_factor < 1:
        raise error_for(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"the replication factor is {asked.replication_factor}; it must be 1 or more, or -1",
        )
    if asked.num_partitions == -1:
        return context.broker.settings.num_partitions
    if asked.num_partitions < 1:
        raise error_for(
            ErrorCode.INVALID_PARTITIONS,
            f"the number of partitions is {asked.num_partitions}; it must be 1 or more",
        )
    return asked.num_partitions


def _assigned_count(asked: CreatableTopic) -> int:
    if asked.num_partitions != -1 or asked.replication_factor != -1:
        raise InvalidRequestError(
            "with assignments the number of partitions and the replication factor must be -1"
        )
    assigned = sorted(assignment.partition_index for assignment in asked.assignments)
    if assigned != list(range(len(assigned))):
        raise error_for(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the partitions assigned are not 0, 1, 2, …")
    return len(assigned)


def _described(entry: ConfigEntry) -> CreatableTopicConfigs:
    return CreatableTopicConfigs(
        name=entry.name, value=entry.value, read_only=False, config_source=entry.source, is_sensitive=False
    )
