"""Deadlines and closing: nothing waits for ever, whatever the broker does (R6, R10, R17)."""

from __future__ import annotations

from itertools import pairwise

import pytest
import trio
from support.scripted.cluster import Trouble

from splashdam.accumulator.open_batches import Appended
from splashdam.model.errors import IllegalStateError, KafkaTimeoutError
from splashdam.model.values import TopicPartition
from splashdam.wire.messages.metadata import MetadataRequest
from splashdam.wire.messages.produce import ProduceRequest

SILENCE = Trouble(then="silence")


async def test_delivery_timeout_in_the_queue(make_rig, autojump_clock):
    """No broker at all: the record fails at its deadline and says why (R6, R21)."""
    rig = make_rig(delivery_timeout_ms=5000)
    rig.network.refuse("node-1", 9092)
    async with rig.running():
        error = await rig.send_and_wait(b"x")
        assert rig.clock.now_ms() == pytest.approx(5000, abs=2)
        assert isinstance(error, KafkaTimeoutError)
        assert "delivery_timeout_ms=5000" in str(error)
        assert "Connection refused" in str(error)


async def test_delivery_timeout_in_flight(make_rig, autojump_clock):
    """The broker is silent: the record fails at its deadline; the memory waits for the connection's end."""
    rig = make_rig(delivery_timeout_ms=3000, request_timeout_ms=10_000)
    async with rig.running():
        await rig.send_and_wait(b"warm")
        start_ms = rig.clock.now_ms()
        rig.cluster.produce_script.append(SILENCE)
        error = await rig.send_and_wait(b"x")
        assert isinstance(error, KafkaTimeoutError)
        assert "the broker has not answered" in str(error)
        assert rig.clock.now_ms() - start_ms == pytest.approx(3000, abs=2)
        assert rig.accumulator.free_bytes < rig.accumulator.buffer_memory
        await trio.sleep(8)
        assert rig.accumulator.free_bytes == rig.accumulator.buffer_memory
        assert await rig.send_and_wait(b"y") == 2  # x had been written after all: its numbers are used up


async def test_late_success_is_ignored(make_rig, autojump_clock):
    """The answer comes after the deadline: the future stays failed, the numbers go on without a new epoch."""
    rig = make_rig(delivery_timeout_ms=3000, request_timeout_ms=10_000)
    async with rig.running():
        await rig.send_and_wait(b"warm")
        rig.cluster.produce_script.append(Trouble(delay_ms=5000))
        late = rig.send(b"late")
        assert isinstance(await rig.outcome(late), KafkaTimeoutError)
        behind = rig.send(b"behind")
        assert await rig.outcome(behind) == 2
        assert rig.sender.statistics().epoch_bumps == 0
        assert isinstance(late.outcome.error_of(0), KafkaTimeoutError)
    assert rig.values() == [b"warm", b"late", b"behind"]


async def test_expired_without_an_answer_leaves_no_gap(make_rig, autojump_clock):
    """A batch is lost and given up: those behind it wait, then start a new epoch at 0 (1.5)."""
    rig = make_rig(delivery_timeout_ms=3000, request_timeout_ms=1000)
    async with rig.running():
        await rig.send_and_wait(b"warm")
        rig.cluster.trouble_for = lambda message: (
            Trouble(then="refuse") if isinstance(message, ProduceRequest) else Trouble()
        )
        assert isinstance(await rig.send_and_wait(b"lost"), KafkaTimeoutError)
        rig.cluster.trouble_for = lambda _message: Trouble()
        assert await rig.send_and_wait(b"next") == 1
        assert rig.sender.statistics().epoch_bumps == 1
    headers = rig.cluster.logs[TopicPartition("t", 0)].headers
    assert (headers[1].producer_epoch, headers[1].base_sequence) == (1, 0)


async def test_request_timeout_is_retried(make_rig, autojump_clock):
    """No answer within request_timeout_ms: the connection is given up, the batch sent again on another."""
    rig = make_rig(request_timeout_ms=2000)
    rig.cluster.produce_script.append(SILENCE)
    async with rig.running():
        assert await rig.send_and_wait(b"x") == 0
        assert 2000 <= rig.clock.now_ms() < 2400
    assert rig.values() == [b"x"]


async def test_drained_while_another_expires(make_rig, autojump_clock):
    """The turn in which one batch expires sends the others (R17)."""
    rig = make_rig(cluster={"topics": {"t": 2}, "nodes": 2}, delivery_timeout_ms=2000, linger_ms=5)
    async with rig.running():
        await rig.send_and_wait(b"warm", partition=0)
        rig.network.refuse("node-2", 9092)
        rig.network.drop("node-2", 9092)
        stuck = rig.send(b"stuck", partition=1)
        await trio.sleep(1.996)
        assert await rig.send_and_wait(b"fine", partition=0) == 1
        assert rig.clock.now_ms() < 2010
        assert isinstance(await rig.outcome(stuck), KafkaTimeoutError)


async def test_reconnects_with_growing_waits(make_rig, autojump_clock):
    """50, 100, 200 … up to 1,000 ms between attempts; a success starts again at 50."""
    rig = make_rig()
    attempts = []
    usual = rig.network.connect

    async def connect(host, port):
        attempts.append(rig.clock.now_ms())
        return await usual(host, port)

    rig.sender._connect = connect
    rig.network.refuse("node-1", 9092)
    async with rig.running():
        future = rig.send(b"x")
        await trio.sleep(8)
        gaps = [later - earlier for earlier, later in pairwise(attempts)]
        expected = [50, 100, 200, 400, 800, 1000, 1000, 1000]
        for gap, wait in zip(gaps, expected, strict=False):
            assert 0.8 * wait <= gap <= 1.2 * wait + 2
        rig.network.refuse("node-1", 9092, refusing=False)
        assert await rig.outcome(future) == 0


async def test_bootstrap_addresses_take_turns(make_rig, autojump_clock):
    """The first address is dead, the second serves; the third is not needed."""
    rig = make_rig(bootstrap=(("gone", 1), ("node-1", 9092), ("also-gone", 1)))
    async with rig.running():
        assert await rig.send_and_wait(b"x") == 0
        assert rig.clock.now_ms() < 10
    assert rig.sender.statistics().connections == 0


async def test_silent_bootstrap_server_is_left(make_rig, autojump_clock):
    """One that accepts and says nothing costs the setup timeout, no more."""
    rig = make_rig(bootstrap=(("hole", 1), ("node-1", 9092)), connection_setup_timeout_ms=500)
    async with trio.open_nursery() as nursery:
        (listener,) = await rig.network.listen("hole", 1)
        async with rig.running():
            assert await rig.send_and_wait(b"x") == 0
            assert rig.clock.now_ms() == pytest.approx(500, abs=5)
        await listener.aclose()
        nursery.cancel_scope.cancel()


async def test_a_silent_bootstrap_server_does_not_keep_others_from_being_tried(make_rig, autojump_clock):
    """It once took the whole setup timeout, 10 s by default, before the next address was tried."""
    rig = make_rig(bootstrap=(("hole", 1), ("pit", 1), ("node-1", 9092)))
    (hole,), (pit,) = await rig.network.listen("hole", 1), await rig.network.listen("pit", 1)
    async with rig.running():
        assert await rig.send_and_wait(b"x") == 0
        assert rig.clock.now_ms() == pytest.approx(2_000, abs=5)
    await hole.aclose()
    await pit.aclose()


async def test_a_slow_broker_keeps_its_connection_while_another_one_is_tried(make_rig, autojump_clock):
    """A broker that answers later than the patience keeps the connection attempt it has."""
    rig = make_rig(bootstrap=(("node-1", 9092), ("gone", 1)))
    attempts = []

    async def connect(host, port):
        attempts.append(host)
        await trio.sleep(3)
        return await rig.network.connect(host, port)

    for node in rig.sender._links._bootstrap:
        rig.sender._links.link_to(node)._connect = connect
    async with rig.running():
        assert await rig.send_and_wait(b"x") == 0
        assert rig.clock.now_ms() == pytest.approx(3_000, abs=5)
    assert attempts == ["node-1", "gone"]


async def test_returns_to_bootstrap_when_the_cluster_is_gone(make_rig, autojump_clock):
    """No broker answers where it is said to be: the bootstrap addresses are tried again (KIP-899)."""
    rig = make_rig()
    async with rig.running():
        rig.cluster.brokers[1].host = "moved"
        future = rig.send(b"x")
        await trio.sleep(3)
        assert not future.done()
        rig.network.drop("node-1", 9092)
        await trio.sleep(1)
        rig.cluster.brokers[1].host = "node-1"
        assert await rig.outcome(future) == 0


async def test_unknown_topic_is_created_meanwhile(make_rig, autojump_clock):
    """The first answer does not know the topic; it is asked for again until it is there."""
    rig = make_rig()
    async with rig.running():
        future = rig.send(b"x", topic="new")
        await trio.sleep(1.5)
        assert 3 < len(rig.cluster.requests(MetadataRequest)) < 8
        rig.cluster.create_topic("new", 1)
        assert await rig.outcome(future) == 0


async def test_close_delivers_everything(make_rig, autojump_clock):
    """Closing cuts linger, waits for answers and retries, and takes no more records."""
    rig = make_rig(linger_ms=60_000, batch_bytes=200)
    rig.cluster.produce_script.append(Trouble(code=19))
    async with rig.running():
        futures = [rig.send(b"%03d" % number) for number in range(50)]
        rig.sender.initiate_close()
        with pytest.raises(IllegalStateError, match="closed"):
            rig.send(b"late")
    assert [future.outcome.offset_of(future.index) for future in futures] == list(range(50))
    assert rig.clock.now_ms() < 1000


async def test_forced_close_fails_everything_at_once(make_rig, autojump_clock):
    """Unsent and unanswered records fail with the given error; ``run`` returns; memory is free."""
    rig = make_rig(batch_bytes=0)
    rig.cluster.trouble_for = lambda message: SILENCE if isinstance(message, ProduceRequest) else Trouble()
    error = IllegalStateError("the producer was closed")
    async with rig.running():
        futures = [rig.send(b"%d" % number) for number in range(10)]
        await trio.sleep(1)
        ticket = None
        ticket = rig.guard.run(rig.accumulator.memory.queue, rig.accumulator.buffer_memory)
        rig.sender.force_close(error)
    assert all(future.outcome.error_of(future.index) is error for future in futures)
    assert ticket.ready
    assert rig.clock.now_ms() == 1000


async def test_cancelled_run_leaves_nobody_waiting(make_rig, autojump_clock):
    """A cancelled sender fails what it had, as a closed one does."""
    rig = make_rig()
    rig.network.refuse("node-1", 9092)
    with trio.move_on_after(1):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.sender.run)
            future = rig.send(b"x")
    assert isinstance(future.outcome.error_of(0), IllegalStateError)
    assert rig.accumulator.free_bytes == rig.accumulator.buffer_memory


async def test_close_before_anything(make_rig, autojump_clock):
    """A producer that was never used closes at once, without a connection."""
    rig = make_rig()
    async with rig.running():
        pass
    assert rig.cluster.received == []
    assert rig.clock.now_ms() == 0


async def test_memory_waiters_make_everything_sendable(make_rig, autojump_clock):
    """With full memory nothing lingers.

    The oldest records are sent, and the waiting caller gets their memory.
    """
    rig = make_rig(linger_ms=60_000, buffer_memory=10_000, batch_bytes=1024, cluster={"topics": {"t": 1}})
    async with rig.running():
        first = rig.send(b"first")
        while isinstance(answer := rig.append(b"y" * 900), Appended):
            pass
        ready = trio.Event()
        answer.ticket.on_ready = ready.set
        rig.wakeup.wake()
        await ready.wait()
        assert rig.clock.now_ms() < 100
        assert first.done()
        rig.accumulator.cancel(answer.ticket)


async def test_each_batch_expires_at_its_own_time(make_rig, autojump_clock):
    """That includes a batch that was young when an older one expired."""
    rig = make_rig(delivery_timeout_ms=3000, request_timeout_ms=10_000)
    rig.cluster.produce_script.extend([Trouble(then="silence")] * 2)
    async with rig.running():
        rig.send(b"old")
        await trio.sleep(2)
        assert isinstance(await rig.send_and_wait(b"young"), KafkaTimeoutError)
        assert trio.current_time() == pytest.approx(5, abs=0.01)
