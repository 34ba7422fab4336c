"""A broker whose files and network are in memory, and connections to it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.broker.broker_talk import Talk
from support.broker.memory_cluster_kit import Kit
from trio.testing import MockClock

from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.net.memory import MemoryNetwork
from splashdam.storage.files.memory import MemoryFiles
from splashdam.testing.clock import VirtualClock


@pytest.fixture
def network() -> MemoryNetwork:
    """The network that broker and clients share."""
    return MemoryNetwork()


@pytest.fixture
def files() -> MemoryFiles:
    """The broker's file system."""
    return MemoryFiles()


@pytest.fixture
def own_topics() -> dict[str, int]:
    """Partitions of the broker's own topics: Kafka's fifty are most of what a test of a group would cost.

    A test that wants them says ``@pytest.mark.parametrize("own_topics", [{}])``.
    """
    return {"offsets_topic_num_partitions": 3, "transaction_state_log_num_partitions": 3}


@pytest.fixture
def kit(autojump_clock: MockClock) -> Kit:
    """Whole clusters, on an empty disk."""
    return Kit(autojump_clock)


@pytest.fixture
async def broker(
    files: MemoryFiles, network: MemoryNetwork, autojump_clock: MockClock, own_topics: dict[str, int]
) -> AsyncIterator[Broker]:
    """A broker in virtual time, at broker:9092, with Kafka's defaults but for ``own_topics``."""
    clock = VirtualClock(autojump_clock)
    async with open_broker(
        "/data", host="broker", port=9092, listen=network.listen, clock=clock, files=files, **own_topics
    ) as opened:
        yield opened


@pytest.fixture
async def talk(broker: Broker, network: MemoryNetwork) -> AsyncIterator[Talk]:
    """A connection to the broker."""
    async with await network.connect("broker", 9092) as stream:
        yield Talk(stream)
