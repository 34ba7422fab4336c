"""What topics are to become, as changes of the cluster's state; checked first, and nothing is done here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

import attrs

from splashdam.embedded_broker.configs.own_topics import INTERNAL_TOPICS
from splashdam.embedded_broker.controller.assignment import new_partition, placed
from splashdam.embedded_broker.controller.state import ClusterChange, ClusterState, PartitionState
from splashdam.model.broker_errors import UnknownTopicOrPartitionError, error_for
from splashdam.model.error_codes import ErrorCode
from splashdam.model.quoting import quoted
from splashdam.model.values import TopicPartition
from splashdam.storage.manager.topic_registry import NewTopic, Topic, new_topics


def known_topic(state: ClusterState, name: str) -> Topic:
    """The topic of this name.

    Raises:
        UnknownTopicOrPartitionError: there is none.
    """
    topic = state.topics.get(name)
    if topic is None:
        raise UnknownTopicOrPartitionError(f"there is no topic {quoted(name)}")
    return topic


def created(
    wanted: Sequence[NewTopic],
    state: ClusterState,
    check_configs: Callable[[Mapping[str, str]], object],
    default_replication_factor: int,
    random: Random,
) -> ClusterChange:
    """New topics, all or none, each with an id, its partitions spread over the brokers.

    Raises:
        BrokerResponseError: as ``new_topics``, ``placed`` and ``new_partition``, for the first one refused.
    """
    topics = new_topics(wanted, state.topics, check_configs, state.names_by_fold)
    partitions: dict[TopicPartition, PartitionState] = {}
    for new, topic in zip(wanted, topics, strict=True):
        factor = new.replication_factor if new.replication_factor > 0 else default_replication_factor
        if new.name in INTERNAL_TOPICS:  # Kafka waits until there are as many brokers
            factor = min(factor, len(state.brokers))
        replicas = new.assignments or placed(new.partitions, factor, state, random)
        partitions |= _partitions(topic.name, 0, replicas, state)
    return ClusterChange(topics={topic.name: topic for topic in topics}, partitions=partitions)


def extended(
    state: ClusterState, name: str, count: int, assignments: Sequence[Sequence[int]], random: Random
) -> ClusterChange:
    """More partitions for a topic, ``count`` in all, with as many replicas as its first one has.

    Raises:
        BrokerResponseError: UNKNOWN_TOPIC_OR_PARTITION (3); INVALID_PARTITIONS (37): no more than there are;
            INVALID_REPLICA_ASSIGNMENT (39): an assignment that does not fit; as ``placed``.
    """
    topic = known_topic(state, name)
    present = len(topic.partitions)
    if count <= present:
        raise error_for(
            ErrorCode.INVALID_PARTITIONS, f"topic {quoted(name)} has {present} partitions already"
        )
    factor = len(state.partitions[TopicPartition(name, topic.partitions[0])].replicas)
    if assignments and any(len(replicas) != factor for replicas in assignments):
        raise error_for(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"each partition of {quoted(name)} has {factor} replicas"
        )
    if assignments and len(assignments) != count - present:
        raise error_for(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{count - present} partitions are new, {len(assignments)} are assigned",
        )
    behind = [state.partitions[TopicPartition(name, number)].replicas for number in topic.partitions]
    replicas = assignments or placed(count - present, factor, state, random, behind=behind)
    longer = attrs.evolve(topic, partitions=tuple(range(count)))
    return ClusterChange(topics={name: longer}, partitions=_partitions(name, present, replicas, state))


def configured(state: ClusterState, name: str, configs: Mapping[str, str]) -> ClusterChange:
    """Other options for a topic, by Kafka's dotted names; those that it had are replaced.

    Raises:
        UnknownTopicOrPartitionError: there is none.
    """
    return ClusterChange(topics={name: attrs.evolve(known_topic(state, name), configs=dict(configs))})


def deleted(state: ClusterState, name: str) -> ClusterChange:
    """A topic gone.

    Raises:
        UnknownTopicOrPartitionError: there is none.
    """
    return ClusterChange(deleted=(known_topic(state, name),))


def _partitions(
    name: str, first: int, replicas: Sequence[Sequence[int]], state: ClusterState
) -> dict[TopicPartition, PartitionState]:
    begun = {each: new_partition(each, state) for each in set(map(tuple, replicas))}
    return {TopicPartition(name, number): begun[tuple(each)] for number, each in enumerate(replicas, first)}
