"""Answers that a follower can make no use of: what it asks next, and what it does not take for an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest
from support.storage.logs import DIRECTORY, TOPIC_ID, TP, batch, open_log
from trio.testing import MockClock

from splashdam.embedded_broker.configs.broker_settings import BrokerSettings
from splashdam.embedded_broker.replication.replica_fetcher import FetchingBroker, LeaderFetcher
from splashdam.model.values import TopicPartition
from splashdam.net.connection.connection import Connection
from splashdam.storage.files.memory import MemoryFiles
from splashdam.storage.log import Log
from splashdam.testing.clock import VirtualClock
from splashdam.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

SESSION = 9
OTHER_ID = b"o" * 16


class Broker:
    """The broker of a follower."""

    node_id, broker_epoch = 2, 1

    def __init__(self, clock: VirtualClock) -> None:
        self.settings = BrokerSettings()
        self.clock = clock

    def changed(self, topic_partition: TopicPartition) -> None:
        """Nobody reads here."""

    def high_watermark_moved(self, topic_partition: TopicPartition) -> None:
        """Nobody reads here."""


class Leader:
    """A connection to a leader that answers every fetch with one batch, and does something first."""

    def __init__(self, topic_id: bytes = TOPIC_ID, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.asked: list[list[tuple[int, int]]] = []
        self.topic_id = topic_id
        self.meanwhile = meanwhile
        self.records = batch(b"theirs")

    async def request(self, request: FetchRequest) -> FetchResponse:
        """Notes which offsets are told, and answers."""
        self.asked.append(
            [(each.partition, each.fetch_offset) for topic in request.topics for each in topic.partitions]
        )
        self.meanwhile()
        data = PartitionData(
            partition_index=0, high_watermark=1, log_start_offset=0, records=memoryview(self.records)
        )
        topic = FetchableTopicResponse(topic_id=self.topic_id, partitions=[data])
        return FetchResponse(session_id=SESSION, responses=[topic])


@pytest.fixture
def log() -> Log:
    """The follower's log."""
    return open_log(MemoryFiles())


@pytest.fixture
def fetcher(log: Log, autojump_clock: MockClock) -> LeaderFetcher:
    """Follows that log."""
    fetcher = LeaderFetcher(1, cast(FetchingBroker, Broker(VirtualClock(autojump_clock))))
    fetcher.follow(log, 0)
    return fetcher


async def step(fetcher: LeaderFetcher, leader: Leader) -> None:
    await fetcher.step(cast(Connection, leader))


async def test_after_a_discarded_answer_the_leader_learns_the_log_end(
    log: Log, fetcher: LeaderFetcher
) -> None:
    """Its session once kept the old offset, and the same bytes came again with every fetch."""
    leader = Leader(meanwhile=lambda: log.append_as_follower(memoryview(batch(b"ours")), now_ms=0))
    await step(fetcher, leader)
    assert (log.log_end_offset, log.high_watermark) == (1, 0)
    leader.meanwhile, leader.records = lambda: None, b""
    await step(fetcher, leader)
    assert leader.asked == [[(0, 0)], [(0, 1)]]


async def test_an_answer_about_a_deleted_topic_is_not_taken_for_its_namesakes(
    log: Log, fetcher: LeaderFetcher
) -> None:
    """The id of the deleted topic once stayed known, for the partition of the new one."""
    files = MemoryFiles()
    files.make_directory(DIRECTORY)
    again = Log.open(
        files,
        DIRECTORY,
        TP,
        log.settings,
        topic_id=OTHER_ID,
        now_ms=0,
        clean_shutdown=True,
        recovery_point=0,
    )
    fetcher.follow(again, 0)
    await step(fetcher, Leader(TOPIC_ID))
    assert again.log_end_offset == 0
    await step(fetcher, Leader(OTHER_ID))
    assert again.log_end_offset == 1
