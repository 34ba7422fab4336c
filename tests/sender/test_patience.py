"""When a write may keep the sender's loop: only where no other connection has to wait for it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
from support.running.patches import perhaps
from support.scripted.cluster import Trouble

from splashdam.model.values import Buffer
from splashdam.net.connection import connection, streams


@pytest.fixture
def patience_ms(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each write was allowed to take."""
    seen: list[float] = []

    def send_now(stream: trio.abc.SendStream, parts: Sequence[Buffer], patience_ms: float = 0.0) -> int:
        seen.append(patience_ms)
        return streams.send_now(stream, parts, patience_ms)

    monkeypatch.setattr(connection, "send_now", send_now)
    return seen


@pytest.fixture
def lookouts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many requests were under way each time an answer was looked out for."""
    seen: list[int] = []
    note = perhaps(lambda each: seen.append(each.in_flight), because="nobody may look out")
    monkeypatch.setattr(connection.Connection, "read_eagerly", note)
    return seen


async def test_alone(make_rig, autojump_clock, patience_ms, lookouts):
    """Records to the one broker; what is asked of it is small, and not waited for."""
    rig = make_rig(write_patience_ms=2.0)
    async with rig.running():
        await rig.send_and_wait(b"x")
    assert patience_ms == [0.0, 0.0, 0.0, 2.0]
    assert set(lookouts) == {1}


async def test_a_loop_that_is_not_ours(make_rig, autojump_clock, patience_ms, lookouts):
    """It is the default: beside other tasks nothing stands still."""
    rig = make_rig()
    async with rig.running():
        await rig.send_and_wait(b"x")
    assert set(patience_ms) == {0.0}
    assert not lookouts


async def test_two_requests_in_a_turn(make_rig, autojump_clock, patience_ms, lookouts):
    """One broker's request is not kept waiting by the other's."""
    rig = make_rig(cluster={"topics": {"t": 2}, "nodes": 2}, linger_ms=50, write_patience_ms=2.0)
    async with rig.running():
        for partition in (0, 1):
            await rig.send_and_wait(b"x", partition=partition)
        patience_ms.clear()
        lookouts.clear()
        for partition in (0, 1):
            rig.send(b"x", partition=partition)
    assert set(patience_ms) == {0.0}
    assert not lookouts


async def test_an_answer_is_due_elsewhere(make_rig, autojump_clock, patience_ms):
    """While another broker has a request, nobody waits for this one's socket."""
    rig = make_rig(cluster={"topics": {"t": 2}, "nodes": 2}, write_patience_ms=2.0)
    async with rig.running():
        for partition in (0, 1):
            await rig.send_and_wait(b"x", partition=partition)
        patience_ms.clear()
        assert await rig.send_and_wait(b"x", partition=0) == 1
        assert patience_ms == [2.0]
        rig.cluster.produce_script.append(Trouble(delay_ms=100))
        slow = rig.send(b"x", partition=0)
        await trio.sleep(0.01)
        assert await rig.send_and_wait(b"x", partition=1) == 1
        assert not slow.done()
        assert patience_ms == [2.0, 2.0, 0.0]


async def test_other_tasks_run_while_records_are_awaited_one_by_one(make_rig, monkeypatch):
    """The sender waits in place for the next record, but not for ever."""
    rig = make_rig(write_patience_ms=2.0)
    monkeypatch.setattr(rig.wakeup, "is_woken_soon", lambda: True)
    in_place = []
    while rig.sender._is_woken_soon():
        in_place.append(rig.sender)
        assert len(in_place) < 100
    assert rig.sender._is_woken_soon(), "it may begin again after a pass of the loop"
