"""A network that fails as told, and not otherwise."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, check_two_way_stream

from splashdam.model.errors import KafkaConnectionError
from splashdam.net.memory import MemoryNetwork, memory_stream_pair
from splashdam.testing.faulty_connect import Faults, FaultyConnect, FaultyStream


async def pair(faulty: FaultyConnect, network: MemoryNetwork) -> tuple[FaultyStream, trio.abc.Stream]:
    """A faulty connection and its other end."""
    (listener,) = await network.listen("b", 0)
    ours = await faulty("b", listener.address[1])
    return ours, await listener.accept()


@pytest.fixture
def network() -> MemoryNetwork:
    """A network in memory."""
    return MemoryNetwork()


@pytest.fixture
def faulty(network: MemoryNetwork) -> FaultyConnect:
    """Connects through it."""
    return FaultyConnect(network.connect)


async def test_without_faults(autojump_clock: MockClock) -> None:
    """It is a stream like any other."""

    async def fresh() -> tuple[FaultyStream, FaultyStream]:
        one, other = memory_stream_pair()
        return FaultyStream(one, Faults()), FaultyStream(other, Faults())

    await check_two_way_stream(fresh, None)


async def test_cut_while_sending(faulty: FaultyConnect, network: MemoryNetwork) -> None:
    """The first bytes arrive, the rest is lost, both ends notice."""
    faulty.faults.cut_after_sent_bytes = 5
    ours, theirs = await pair(faulty, network)
    await ours.send_all(b"abc")
    with pytest.raises(trio.BrokenResourceError, match="cut on purpose"):
        await ours.send_all(b"defg")
    assert ours.sent_bytes == 5
    assert await theirs.receive_some() == b"abcde"
    assert await theirs.receive_some() == b""
    for use in (ours.receive_some, ours.wait_send_all_might_not_block):
        with pytest.raises(trio.BrokenResourceError):
            await use()


async def test_cut_while_receiving(faulty: FaultyConnect, network: MemoryNetwork) -> None:
    """Likewise the other way."""
    faulty.faults.cut_after_received_bytes = 5
    ours, theirs = await pair(faulty, network)
    await theirs.send_all(b"abcdefg")
    assert await ours.receive_some(3) == b"abc"
    assert await ours.receive_some() == b"de"
    with pytest.raises(trio.BrokenResourceError, match="cut on purpose"):
        await ours.receive_some()


async def test_black_hole(faulty: FaultyConnect, network: MemoryNetwork, autojump_clock: MockClock) -> None:
    """Everything is taken and nothing comes, also where it opens later."""
    ours, theirs = await pair(faulty, network)
    with trio.move_on_after(1000) as before:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ours.receive_some)
            await trio.sleep(1)
            ours.faults.black_hole = True
            await theirs.send_all(b"lost")
    await ours.send_all(b"lost too")
    with trio.move_on_after(1000) as after:
        await ours.receive_some()
    assert before.cancelled_caught
    assert after.cancelled_caught
    await ours.aclose()
    assert await theirs.receive_some() == b""


async def test_delay(faulty: FaultyConnect, network: MemoryNetwork, autojump_clock: MockClock) -> None:
    """Reads take their time."""
    faulty.faults.delay_ms = 250
    ours, theirs = await pair(faulty, network)
    await theirs.send_all(b"x")
    start = trio.current_time()
    await ours.receive_some()
    assert trio.current_time() - start == pytest.approx(0.25)


async def test_refuse(faulty: FaultyConnect, network: MemoryNetwork) -> None:
    """As many connections as told."""
    (listener,) = await network.listen("b", 1)
    faulty.refuse = 2
    for _ in range(2):
        with pytest.raises(KafkaConnectionError, match="b:1: refused on purpose"):
            await faulty("b", 1)
    await faulty("b", 1)
    await listener.aclose()


async def test_cut_all(faulty: FaultyConnect, network: MemoryNetwork) -> None:
    """Every connection made so far."""
    streams = [await pair(faulty, network) for _ in range(2)]
    await faulty.cut_all()
    for ours, theirs in streams:
        with pytest.raises(trio.BrokenResourceError):
            await ours.send_all(b"x")
        assert await theirs.receive_some() == b""
