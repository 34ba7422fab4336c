"""A broker in memory, in virtual time, with faults, and a connection to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from support.broker.broker_talk import Talk
from trio.testing import MockClock

from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.net.memory import MemoryNetwork
from splashdam.storage.files.memory import MemoryFiles
from splashdam.testing.clock import VirtualClock
from splashdam.testing.faults.faults import Faults


@pytest.fixture
def network() -> MemoryNetwork:
    """The network that broker and clients share."""
    return MemoryNetwork()


@pytest.fixture
async def broker(network: MemoryNetwork, autojump_clock: MockClock) -> AsyncIterator[Broker]:
    """A broker at broker:9092 with topics of two partitions."""
    async with open_broker(
        "/data",
        host="broker",
        port=9092,
        listen=network.listen,
        clock=VirtualClock(autojump_clock),
        files=MemoryFiles(),
        num_partitions=2,
    ) as opened:
        opened.topics.create_all(["t", "u"])
        yield opened


@pytest.fixture
def faults(broker: Broker) -> Iterator[Faults]:
    """The faults of the test; each must have happened by its end."""
    set_here = Faults(broker.interception)
    yield set_here
    assert set_here.unhit == []


@pytest.fixture
def some_faults(broker: Broker) -> Faults:
    """As ``faults``, for tests in which some are not meant to happen."""
    return Faults(broker.interception)


@pytest.fixture
async def talk(broker: Broker, network: MemoryNetwork) -> AsyncIterator[Talk]:
    """A connection to the broker."""
    async with await network.connect("broker", 9092) as stream:
        yield Talk(stream)
