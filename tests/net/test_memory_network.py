"""The network in memory behaves as trio's stream contract demands, and fails as told."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, check_half_closeable_stream, wait_all_tasks_blocked

from splashdam.model.errors import KafkaConnectionError
from splashdam.net.listen import address_of
from splashdam.net.memory import MemoryNetwork, MemoryStream, memory_stream_pair


async def clogged() -> tuple[MemoryStream, MemoryStream]:
    """A pair whose both directions are full."""
    pair = memory_stream_pair(1)
    for end in pair:
        await end.send_all(b"x")
    return pair


async def fresh() -> tuple[MemoryStream, MemoryStream]:
    """A new pair."""
    return memory_stream_pair()


async def test_the_stream_contract(autojump_clock: MockClock) -> None:
    """Trio's own checks of a bidirectional stream that can be half closed."""
    await check_half_closeable_stream(fresh, clogged)


async def test_a_sleeping_reader_stops_the_writer(autojump_clock: MockClock) -> None:
    """No more than the capacity is under way."""
    ours, theirs = memory_stream_pair(1000)
    with trio.move_on_after(10) as scope:
        await ours.send_all(bytes(1001))
    assert scope.cancelled_caught
    assert await theirs.receive_some() == bytes(1000)


async def test_an_end_that_closed() -> None:
    """It cannot end its direction once more."""
    ours, _ = memory_stream_pair()
    await ours.aclose()
    with pytest.raises(trio.ClosedResourceError):
        await ours.send_eof()


async def test_connect_and_accept() -> None:
    """Ports are given out, addresses are told, bytes flow both ways."""
    network = MemoryNetwork()
    (listener,) = await network.listen("broker", 0)
    (other,) = await network.listen("broker", 0)
    assert address_of(listener)[0] == "broker"
    assert address_of(listener) != address_of(other)
    ours = await network.connect(*address_of(listener))
    theirs = await listener.accept()
    await ours.send_all(b"ping")
    assert await theirs.receive_some() == b"ping"
    await theirs.send_all(b"pong")
    assert await ours.receive_some() == b"pong"


async def test_nobody_listens() -> None:
    """The error names the address, before anybody listens and after."""
    network = MemoryNetwork()
    with pytest.raises(KafkaConnectionError, match="cannot connect to broker:9092: Connection refused"):
        await network.connect("broker", 9092)
    (listener,) = await network.listen("broker", 9092)
    with pytest.raises(KafkaConnectionError, match="cannot listen on broker:9092: address in use"):
        await network.listen("broker", 9092)
    await listener.aclose()
    with pytest.raises(KafkaConnectionError, match="refused"):
        await network.connect("broker", 9092)
    await network.listen("broker", 9092)


async def test_refusing() -> None:
    """New connections fail, open ones stay; until it is over."""
    network = MemoryNetwork()
    (listener,) = await network.listen("broker", 1)
    ours = await network.connect("broker", 1)
    network.refuse("broker", 1)
    with pytest.raises(KafkaConnectionError):
        await network.connect("broker", 1)
    await ours.send_all(b"x")
    network.refuse("broker", 1, False)
    await network.connect("broker", 1)
    await listener.aclose()


async def test_dropping() -> None:
    """Both ends of every connection break, whatever they do at that moment."""
    network = MemoryNetwork()
    (listener,) = await network.listen("broker", 1)
    ours = await network.connect("broker", 1)
    theirs = await listener.accept()
    broken: list[MemoryStream] = []

    async def read(stream: MemoryStream) -> None:
        with pytest.raises(trio.BrokenResourceError):
            await stream.receive_some()
        broken.append(stream)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read, ours)
        nursery.start_soon(read, theirs)
        await wait_all_tasks_blocked()
        network.drop("broker", 1)
    assert len(broken) == 2
    for stream in broken:
        with pytest.raises(trio.BrokenResourceError):
            await stream.send_all(b"x")
        with pytest.raises(trio.BrokenResourceError):
            await stream.wait_send_all_might_not_block()
    network.drop("broker", 1)
    await network.connect("broker", 1)
