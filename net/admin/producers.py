"""Idempotent and transactional producers that partitions know."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from splashdam.model.broker_errors import error_for
from splashdam.model.values import TopicPartition
from splashdam.net.cluster.cluster_client import ClusterClient
from splashdam.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)


class ActiveProducer(NamedTuple):
    """What a partition knows of a producer.

    Attributes:
        producer_id: of the producer.
        producer_epoch: likewise.
        last_sequence: of its last record.
        last_timestamp_ms: of its last batch.
        coordinator_epoch: of the transaction coordinator; -1 without transactions.
        txn_start_offset: where its open transaction begins; -1 if none is open.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    txn_start_offset: int


async def describe_producers(
    client: ClusterClient, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, list[ActiveProducer]]:
    """Return the producers of each partition, asked of its leader.

    Raises:
        BrokerResponseError: a partition does not exist or has no leader.
        UnsupportedVersionError: the cluster is older than Kafka 2.8.
        KafkaTimeoutError: the cluster did not answer.
    """

    def request(led: Sequence[TopicPartition]) -> DescribeProducersRequest:
        return DescribeProducersRequest(
            topics=[
                TopicRequest(name=topic, partition_indexes=[each.partition for each in chosen])
                for topic, chosen in groupby(led, lambda where: where.topic)
            ]
        )

    def producers(answer: DescribeProducersResponse) -> dict[TopicPartition, list[ActiveProducer]]:
        found = {}
        for topic in answer.topics:
            for each in topic.partitions:
                where = TopicPartition(topic.name, each.partition_index)
                if each.error_code:
                    raise error_for(each.error_code, each.error_message or str(where))
                found[where] = [
                    ActiveProducer(
                        known.producer_id,
                        known.producer_epoch,
                        known.last_sequence,
                        known.last_timestamp,
                        known.coordinator_epoch,
                        known.current_txn_start_offset,
                    )
                    for known in each.active_producers
                ]
        return found

    return await client.leaders(partitions, request, producers)
