"""Topics: create, list, describe, extend and delete them; look up offsets by time; delete old records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from splashdam.model.broker_errors import UnknownTopicOrPartitionError, error_for
from splashdam.model.cluster import TopicInfo
from splashdam.model.values import TopicPartition
from splashdam.net.cluster.cluster_client import ClusterClient
from splashdam.net.cluster.fetch_client import offsets_request, read_offsets
from splashdam.net.connection.connection import Connection
from splashdam.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from splashdam.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from splashdam.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from splashdam.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from splashdam.wire.messages.list_offsets import ListOffsetsResponse

TIMEOUT_MS = 30_000
"""Time limit for the brokers to complete a change."""

DEFAULT = -1
"""As a number of partitions or replicas: the cluster's default."""

_FIRST_WITH_STATES = 6
_MAX_TIMESTAMP = -3


async def create_topic(
    client: ClusterClient,
    topic: str,
    *,
    partitions: int = DEFAULT,
    replication_factor: int = DEFAULT,
    assignments: Mapping[int, Sequence[int]] | None = None,
    configs: Mapping[str, str | None] | None = None,
    validate_only: bool = False,
) -> None:
    """Create a topic.

    Args:
        client: of the cluster.
        topic: name of the topic.
        partitions: number of partitions; `DEFAULT` for the cluster's default.
        replication_factor: replicas of each partition; likewise.
        assignments: the brokers of each partition, the preferred leader first; replaces the two numbers.
        configs: configurations of the topic by Kafka's names.
        validate_only: check the request without creating the topic.

    Raises:
        BrokerResponseError: the topic exists, or the request is invalid; the broker's text says why.
        KafkaTimeoutError: the cluster did not answer.
    """
    created = CreatableTopic(
        name=topic,
        num_partitions=DEFAULT if assignments else partitions,
        replication_factor=DEFAULT if assignments else replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=partition, broker_ids=list(brokers))
            for partition, brokers in (assignments or {}).items()
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in (configs or {}).items()],
    )
    request = CreateTopicsRequest(topics=[created], timeout_ms=TIMEOUT_MS, validate_only=validate_only)

    def check(answer: CreateTopicsResponse) -> None:
        for each in answer.topics:
            if each.error_code:
                raise error_for(each.error_code, each.error_message or f"topic {topic!r}")

    await client.controller(request, check)


async def delete_topic(client: ClusterClient, topic: str) -> None:
    """Delete a topic and its records.

    Raises:
        BrokerResponseError: the topic does not exist, or cannot be deleted.
        KafkaTimeoutError: the cluster did not answer.
    """

    def request(connection: Connection) -> DeleteTopicsRequest:
        if connection.version_for(DeleteTopicsRequest) >= _FIRST_WITH_STATES:
            return DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=TIMEOUT_MS)
        return DeleteTopicsRequest(topic_names=[topic], timeout_ms=TIMEOUT_MS)

    def check(answer: DeleteTopicsResponse) -> None:
        for each in answer.responses:
            if each.error_code:
                raise error_for(each.error_code, each.error_message or f"topic {topic!r}")

    await client.controller(request, check)


async def list_topics(client: ClusterClient) -> list[str]:
    """Return the names of all topics, sorted."""
    return sorted((await client.cluster(None)).topics)


async def describe_topic(client: ClusterClient, topic: str) -> TopicInfo:
    """Return a topic's id and its partitions with leaders and replicas.

    Raises:
        BrokerResponseError: the topic does not exist.
        KafkaTimeoutError: the cluster did not answer.
    """
    found = (await client.cluster([topic])).topics.get(topic)
    if found is None:
        raise UnknownTopicOrPartitionError(f"topic {topic!r}")
    if found.error_code:
        raise error_for(found.error_code, f"topic {topic!r}")
    return found


async def create_partitions(client: ClusterClient, topic: str, count: int) -> None:
    """Add partitions to a topic.

    Args:
        client: of the cluster.
        topic: name of the topic.
        count: the new total number of partitions.

    Raises:
        BrokerResponseError: the topic does not exist, or already has as many partitions.
        KafkaTimeoutError: the cluster did not answer.
    """
    wanted = CreatePartitionsTopic(name=topic, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS)

    def check(answer: CreatePartitionsResponse) -> None:
        for each in answer.results:
            if each.error_code:
                raise error_for(each.error_code, each.error_message or f"topic {topic!r}")

    await client.controller(request, check)


async def delete_records(client: ClusterClient, topic_partition: TopicPartition, before_offset: int) -> int:
    """Delete the records of a partition before an offset; -1 stands for the high watermark.

    Returns:
        The new log start offset.

    Raises:
        BrokerResponseError: the offset is above the high watermark, or ``cleanup.policy`` lacks ``delete``.
        KafkaTimeoutError: the cluster did not answer.
    """
    asked = DeleteRecordsPartition(partition_index=topic_partition.partition, offset=before_offset)
    topics = [DeleteRecordsTopic(name=topic_partition.topic, partitions=[asked])]

    def low_watermark(answer: DeleteRecordsResponse) -> int:
        (found,) = (each for topic in answer.topics for each in topic.partitions)
        if found.error_code:
            raise error_for(found.error_code, str(topic_partition))
        return found.low_watermark

    request = DeleteRecordsRequest(topics=topics, timeout_ms=TIMEOUT_MS)
    return await client.leader(topic_partition, request, low_watermark)


async def newest_timestamps(
    client: ClusterClient, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return for each partition the largest timestamp of its records, -1 if it is empty.

    Raises:
        BrokerResponseError: a partition does not exist or has no leader.
        KafkaTimeoutError: the cluster did not answer.
    """

    def timestamps(answer: ListOffsetsResponse) -> dict[TopicPartition, int]:
        found = {}
        for topic in answer.topics:
            for each in topic.partitions:
                where = TopicPartition(topic.name, each.partition_index)
                if each.error_code:
                    raise error_for(each.error_code, f"newest record of {where}")
                found[where] = each.timestamp
        return found

    return await client.leaders(partitions, lambda led: offsets_request(led, _MAX_TIMESTAMP), timestamps)


async def list_offsets(
    client: ClusterClient, partitions: Iterable[TopicPartition], timestamp: int
) -> dict[TopicPartition, int]:
    """Return for each partition the offset of its first record at or after a time, -1 without such a record.

    Args:
        client: of the cluster.
        partitions: the partitions.
        timestamp: milliseconds since the epoch, or `LATEST` or `EARLIEST`.

    Raises:
        BrokerResponseError: a partition does not exist or has no leader.
        KafkaTimeoutError: the cluster did not answer.
    """
    return await client.leaders(partitions, lambda led: offsets_request(led, timestamp), read_offsets)
