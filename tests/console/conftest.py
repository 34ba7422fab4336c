"""A broker in memory and virtual time, and its console."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.console.visitor import Visitor
from trio.testing import MockClock

from splashdam.console.console import ConsoleSettings, OpenConsole
from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.embedded_broker.console import open_broker_console
from splashdam.net.memory import MemoryNetwork
from splashdam.storage.files.memory import MemoryFiles
from splashdam.testing.clock import VirtualClock

HOST, PORT, TOKEN = "127.0.0.1", 8080, "the-token"


@pytest.fixture
def network() -> MemoryNetwork:
    """The network that broker, console, clients and visitors share."""
    return MemoryNetwork()


@pytest.fixture
def clock(autojump_clock: MockClock) -> VirtualClock:
    """The clock of all of them."""
    return VirtualClock(autojump_clock)


@pytest.fixture
async def broker(
    network: MemoryNetwork, clock: VirtualClock, settings: dict[str, str]
) -> AsyncIterator[Broker]:
    """A broker, at broker:9092."""
    few = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
    async with open_broker(
        "/data",
        host="broker",
        port=9092,
        listen=network.listen,
        clock=clock,
        files=MemoryFiles(),
        config={**few, **settings},
    ) as opened:
        yield opened


@pytest.fixture
def settings() -> dict[str, str]:
    """Of the broker; a test that wants others says ``@pytest.mark.parametrize("settings", [{…}])``."""
    return {}


@pytest.fixture
def how() -> ConsoleSettings:
    """How the console behaves; a test that wants another way parametrizes it."""
    return ConsoleSettings(host=HOST, port=PORT)


@pytest.fixture
async def console(broker: Broker, network: MemoryNetwork, how: ConsoleSettings) -> AsyncIterator[OpenConsole]:
    """Its console."""
    async with open_broker_console(broker, how, listen=network.listen, token=TOKEN) as opened:
        yield opened


@pytest.fixture
def visitor(console: OpenConsole, network: MemoryNetwork) -> Visitor:
    """A browser that has opened the printed link."""
    return Visitor(network.connect, HOST, PORT, TOKEN)


@pytest.fixture
def stranger(console: OpenConsole, network: MemoryNetwork) -> Visitor:
    """A browser that has not opened the link."""
    return Visitor(network.connect, HOST, PORT, TOKEN, is_known=False)
