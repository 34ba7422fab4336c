"""Topics: to create, describe, enlarge and delete them, their offsets by time, and to delete old records."""

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

TIMEOUT_MS = 30_000
"""How long brokers may take to do it."""

DEFAULT = -1
"""As a number of partitions or replicas: what the cluster is set to."""

_FIRST_WITH_STATES = 6


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
    """Creates a topic.

    Args:
        client: of the cluster.
        topic: its name.
        partitions: how many, `DEFAULT` for as many as the cluster is set to.
        replication_factor: on how many brokers each, likewise.
        assignments: the brokers of each partition, the preferred leader first; instead of the two numbers.
        configs: settings of the topic by Kafka's names.
        validate_only: only asks whether it could be created.

    Raises:
        BrokerResponseError: it exists, or something is wrong with it; the broker's text says what.
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
    """Deletes a topic with its records.

    Raises:
        BrokerResponseError: it does not exist, or cannot be deleted.
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
    """The names of all topics, in order."""
    return sorted((await client.cluster(None)).topics)


async def describe_topic(client: ClusterClient, topic: str) -> TopicInfo:
    """A topic's id and partitions with leaders and replicas.

    Raises:
        BrokerResponseError: it does not exist.
        KafkaTimeoutError: the cluster did not answer.
    """
    found = (await client.cluster([topic])).topics.get(topic)
    if found is None:
        raise UnknownTopicOrPartitionError(f"topic {topic!r}")
    if found.error_code:
        raise error_for(found.error_code, f"topic {topic!r}")
    return found


async def create_partitions(client: ClusterClient, topic: str, count: int) -> None:
    """Gives a topic more partitions.

    Args:
        client: of the cluster.
        topic: its name.
        count: how many it shall have in all.

    Raises:
        BrokerResponseError: the topic does not exist, or has as many already.
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
    """Deletes the records of a partition before an offset; -1 means all that are committed.

    Returns:
        The new log start offset.

    Raises:
        BrokerResponseError: the offset is beyond the high watermark, or the topic is compacted only.
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


async def list_offsets(
    client: ClusterClient, partitions: Iterable[TopicPartition], timestamp: int
) -> dict[TopicPartition, int]:
    """For each partition the first offset at or after a time, -1 where there is none.

    Args:
        client: of the cluster.
        partitions: which.
        timestamp: milliseconds since the epoch, or `LATEST` or `EARLIEST`.

    Raises:
        BrokerResponseError: a partition does not exist or has no leader.
        KafkaTimeoutError: the cluster did not answer.
    """
    return await client.leaders(partitions, lambda led: offsets_request(led, timestamp), read_offsets)
