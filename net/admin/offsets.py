"""Offsets of partitions by time, asked of every leader at once."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from splashdam.model.broker_errors import error_for
from splashdam.model.values import TopicPartition
from splashdam.net.cluster.cluster_client import ClusterClient
from splashdam.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)


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

    def request(led: Iterable[TopicPartition]) -> ListOffsetsRequest:
        topics = [
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(partition_index=each.partition, timestamp=timestamp)
                    for each in chosen
                ],
            )
            for topic, chosen in groupby(led, lambda where: where.topic)
        ]
        return ListOffsetsRequest(replica_id=-1, topics=topics)

    return await client.leaders(partitions, request, _offsets)


def _offsets(answer: ListOffsetsResponse) -> dict[TopicPartition, int]:
    found = {}
    for topic in answer.topics:
        for each in topic.partitions:
            where = TopicPartition(topic.name, each.partition_index)
            if each.error_code:
                raise error_for(each.error_code, f"offsets of {where}")
            found[where] = each.offset
    return found
