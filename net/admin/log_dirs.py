"""Log directories of brokers, and the replicas in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from splashdam.model.broker_errors import ErrorCode, error_for
from splashdam.model.values import TopicPartition
from splashdam.net.cluster.cluster_client import ClusterClient
from splashdam.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)


class StoredReplica(NamedTuple):
    """A replica in a directory.

    Attributes:
        topic_partition: whose replica it is.
        size_bytes: of its segments.
        offset_lag: how many records it lacks: behind the high watermark or, of a future replica, behind the
            one that it replaces.
        is_future: whether it is on its way from another directory of the broker.
    """

    topic_partition: TopicPartition
    size_bytes: int
    offset_lag: int
    is_future: bool


class LogDirDescription(NamedTuple):
    """A log directory.

    Attributes:
        broker_id: of the broker that has it.
        path: of the directory, on the broker's machine.
        error: Kafka's name of its error, for example of a failed disk; None if it can be used.
        total_bytes: size of its volume; -1 if the broker is too old to say (Kafka 3.3).
        usable_bytes: free bytes of its volume; likewise.
        replicas: what is in it, sorted.
    """

    broker_id: int
    path: str
    error: str | None
    total_bytes: int
    usable_bytes: int
    replicas: tuple[StoredReplica, ...]


async def describe_log_dirs(
    client: ClusterClient, partitions: Iterable[TopicPartition] | None = None
) -> list[LogDirDescription]:
    """Return the log directories of all brokers.

    Args:
        client: of the cluster.
        partitions: whose replicas are listed; None: all.

    Raises:
        BrokerResponseError: this client may not ask.
        KafkaTimeoutError: the cluster did not answer.
    """
    by_topic: dict[str, list[int]] = {}
    for each in partitions or ():
        by_topic.setdefault(each.topic, []).append(each.partition)
    topics = [DescribableLogDirTopic(topic=topic, partitions=each) for topic, each in by_topic.items()]
    request = DescribeLogDirsRequest(topics=None if partitions is None else topics)
    found: list[LogDirDescription] = []
    for node in (await client.cluster()).nodes.values():

        def described(
            answer: DescribeLogDirsResponse, broker_id: int = node.node_id
        ) -> list[LogDirDescription]:
            if answer.error_code:
                raise error_for(answer.error_code, f"describing the log directories of broker {broker_id}")
            return [
                LogDirDescription(
                    broker_id,
                    each.log_dir,
                    ErrorCode(error_for(each.error_code).code).name if each.error_code else None,
                    each.total_bytes,
                    each.usable_bytes,
                    tuple(
                        sorted(
                            StoredReplica(
                                TopicPartition(topic.name, replica.partition_index),
                                replica.partition_size,
                                replica.offset_lag,
                                replica.is_future_key,
                            )
                            for topic in each.topics
                            for replica in topic.partitions
                        )
                    ),
                )
                for each in answer.results
            ]

        found += await client.broker(node, request, described)
    return sorted(found, key=lambda each: (each.broker_id, each.path))
