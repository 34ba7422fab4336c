"""Questions of a broker to others."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from splashdam.embedded_broker.broker import open_broker
from splashdam.embedded_broker.controller.inter_broker_client import InterBrokerClient
from splashdam.model.errors import KafkaConnectionError
from splashdam.net.memory import MemoryStream, memory_stream_pair
from splashdam.storage.files.memory import MemoryFiles
from splashdam.testing.clock import VirtualClock
from splashdam.wire.messages.api_versions import ApiVersionsRequest


def peers_of(clock: MockClock, connect: Any, start_soon: Any) -> InterBrokerClient:
    """Those of node 1."""
    return InterBrokerClient(1, VirtualClock(clock), connect, start_soon)


async def test_a_starting_broker_does_not_block_the_others(autojump_clock: MockClock) -> None:
    """They are asked, while one question waits for the start."""

    async def connect(node_id: int) -> MemoryStream:
        await trio.sleep(10 if node_id == 2 else 0)
        raise KafkaConnectionError(f"node {node_id} is down")

    async with trio.open_nursery() as nursery:
        peers = peers_of(autojump_clock, connect, nursery.start_soon)

        async def ask(node_id: int) -> None:
            with pytest.raises(KafkaConnectionError):
                await peers.ask(node_id, ApiVersionsRequest())

        nursery.start_soon(ask, 2)
        await trio.sleep(0.1)
        await ask(3)
        assert trio.current_time() < 1
        await ask(2)
        assert trio.current_time() > 10


async def test_a_cancelled_request_leaves_no_connection(autojump_clock: MockClock) -> None:
    """Nobody else would ever use or close it."""
    ours, theirs = memory_stream_pair()

    async def connect(node_id: int) -> MemoryStream:
        await trio.lowlevel.checkpoint()
        return ours

    async with trio.open_nursery() as nursery:
        peers = peers_of(autojump_clock, connect, nursery.start_soon)
        with trio.move_on_after(1):
            await peers.ask(2, ApiVersionsRequest())
        with trio.fail_after(1):
            while await theirs.receive_some(1000):  # what it asked, then the end
                pass


async def test_a_question_that_is_given_up_at_once_ended_the_broker(autojump_clock: MockClock) -> None:
    """Its connection was closed before the task that runs it began; that raised in the broker's nursery."""
    ours, _ = memory_stream_pair()

    async def connect(node_id: int) -> MemoryStream:
        await trio.lowlevel.checkpoint()
        return ours

    async with trio.open_nursery() as nursery:
        begun: list[Any] = []
        peers = peers_of(autojump_clock, connect, begun.append)
        with trio.move_on_after(1):
            await peers.ask(2, ApiVersionsRequest())
        (run,) = begun
        nursery.start_soon(run)


async def test_a_broker_that_has_just_ended_serves_no_other_broker(autojump_clock: MockClock) -> None:
    """The request fails as to any broker that is down; trio's RuntimeError ended a coordinator's work."""
    clock = VirtualClock(autojump_clock)
    async with open_broker("/data", port=None, clock=clock, files=MemoryFiles()) as broker:
        pass
    ours, theirs = memory_stream_pair()
    with pytest.raises(KafkaConnectionError, match="has stopped serving"):
        broker.server.adopt(theirs)
    await trio.aclose_forcefully(ours)
