"""The ends of transactions in their partitions: markers, written here or by the brokers that lead."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

import trio

from splashdam.embedded_broker.configs.own_topics import CONSUMER_OFFSETS
from splashdam.embedded_broker.controller.state import NOBODY
from splashdam.embedded_broker.topics.partitions import KnowsPartitions, leader_log
from splashdam.model.broker_errors import (
    ErrorCode,
    InvalidProducerEpochError,
    UnknownTopicOrPartitionError,
    error_class,
)
from splashdam.model.errors import KafkaError
from splashdam.model.values import TopicPartition
from splashdam.storage.transaction_marker import MARKER_BYTES, TransactionMarker
from splashdam.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

if TYPE_CHECKING:
    from splashdam.embedded_broker.controller.inter_broker_client import InterBrokerClient
    from splashdam.embedded_broker.groups.group_offsets import GroupOffsets
    from splashdam.embedded_broker.topics.parking import FetchParking
    from splashdam.net.clock import Clock
    from splashdam.storage.log import Log

_log = logging.getLogger(__name__)

NEEDLESS = (
    UnknownTopicOrPartitionError,  # the topic was deleted
    InvalidProducerEpochError,  # whatever is open there is of a newer epoch
    error_class(ErrorCode.TRANSACTION_COORDINATOR_FENCED),
)
"""Where nothing is left to be ended."""


class WritesMarkers(KnowsPartitions, Protocol):
    """What markers need of a broker; the attributes are those of `Broker`."""

    clock: Clock
    parking: FetchParking
    offsets: GroupOffsets
    peers: InterBrokerClient


def write_marker(broker: WritesMarkers, topic_partition: TopicPartition, marker: TransactionMarker) -> Log:
    """Ends a producer's transaction in one partition, and tells whoever waits for that.

    Raises:
        UnknownTopicOrPartitionError: there is no such partition.
        NotLeaderOrFollowerError: another broker leads it.
        BrokerResponseError: what ``Log.append_marker`` raises.
    """
    log = leader_log(broker, topic_partition)
    log.append_marker(marker, now_ms=broker.clock.wall_ms())
    broker.parking.ended_transaction(topic_partition, MARKER_BYTES)
    if topic_partition.topic == CONSUMER_OFFSETS:
        broker.offsets.end_transaction(
            topic_partition.partition, marker.producer_id, committed=marker.is_commit
        )
    return log


class Leaders:
    """Who has to write the markers of some partitions.

    Args:
        broker: who asks.
        partitions: those that are owed markers.

    Attributes:
        here: those that the broker leads itself.
        elsewhere: those that others lead, by node id.
        needless: those that are gone.
    """

    def __init__(self, broker: KnowsPartitions, partitions: Iterable[TopicPartition]) -> None:
        self.here: list[TopicPartition] = []
        self.elsewhere: dict[int, list[TopicPartition]] = {}
        self.needless: set[TopicPartition] = set()
        for topic_partition in sorted(partitions):
            leader = broker.leadership.leader_of(topic_partition)
            if leader is None:
                self.needless.add(topic_partition)
            elif leader.node_id == broker.node_id:
                self.here.append(topic_partition)
            elif leader.node_id != NOBODY:
                self.elsewhere.setdefault(leader.node_id, []).append(topic_partition)


async def write_elsewhere(
    peers: InterBrokerClient, leaders: Leaders, marker: TransactionMarker
) -> set[TopicPartition]:
    """Has other brokers write markers; returns where there is nothing left to do."""
    done: set[TopicPartition] = set()
    async with trio.open_nursery() as nursery:
        for node_id, partitions in leaders.elsewhere.items():
            nursery.start_soon(_ask, peers, node_id, _request(partitions, marker), done)
    return done


async def _ask(
    peers: InterBrokerClient, node_id: int, request: WriteTxnMarkersRequest, done: set[TopicPartition]
) -> None:
    try:
        answer = await peers.ask(node_id, request)
    except KafkaError as error:
        _log.warning("node %d writes no markers: %s", node_id, error)
        return
    needless = {each.code for each in NEEDLESS}
    for result in answer.markers:
        for topic in result.topics:
            for each in topic.partitions:
                topic_partition = TopicPartition(topic.name, each.partition_index)
                if each.error_code == ErrorCode.NONE or each.error_code in needless:
                    done.add(topic_partition)
                else:
                    _log.info("no marker in %s: node %d says %d", topic_partition, node_id, each.error_code)


def _request(partitions: Iterable[TopicPartition], marker: TransactionMarker) -> WriteTxnMarkersRequest:
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=marker.is_commit,
                topics=[
                    WritableTxnMarkerTopic(name=name, partition_indexes=each) for name, each in topics.items()
                ],
                coordinator_epoch=marker.coordinator_epoch,
            )
        ]
    )
