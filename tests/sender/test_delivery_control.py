"""Where batches go next, and when: leaders named in answers, backoff, a cluster that has to be found anew."""

from __future__ import annotations

import itertools
import random

import pytest
import trio
from support.scripted.cluster import ScriptedBroker, Trouble

from splashdam.accumulator.backoff import exponential_ms
from splashdam.model.broker_errors import ErrorCode
from splashdam.model.errors import KafkaTimeoutError
from splashdam.model.values import TopicPartition
from splashdam.wire.messages.metadata import MetadataRequest
from splashdam.wire.messages.produce import ProduceRequest

T0 = TopicPartition("t", 0)


def partitions(request):
    """What a request holds for its first topic."""
    return request.topic_data[0].partition_data


def test_waits_grow_with_jitter():
    """KIP-580: 100, 200, 400, … times 0.8 to 1.2, at most the maximum."""
    waits = [exponential_ms(100, 1000, lambda: 0.5, n) for n in range(1, 7)]
    assert waits == pytest.approx([100, 200, 400, 800, 1000, 1000])
    assert exponential_ms(100, 1000, lambda: 0.0, 2) == pytest.approx(160)
    assert exponential_ms(100, 1000, lambda: 1.0, 2) == pytest.approx(240)
    assert exponential_ms(100, 1000, random.random, 10_000) == 1000


async def test_retries_back_off(make_rig, autojump_clock):
    """Five answers with 19: the waits between the attempts double, within the jitter (R27)."""
    rig = make_rig()
    async with rig.running():
        await rig.send_and_wait(b"warm")
        rig.cluster.produce_script.extend([Trouble(code=ErrorCode.NOT_ENOUGH_REPLICAS)] * 5)
        assert await rig.send_and_wait(b"x") == 1
    times = [each.at_ms for each in rig.cluster.received if isinstance(each.message, ProduceRequest)][1:]
    waits = [after - before for before, after in itertools.pairwise(times)]
    for wait, middle in zip(waits, [100, 200, 400, 800, 1000], strict=True):
        assert 0.8 * middle <= wait <= min(1.2 * middle, 1000) + 1


async def also_at(rig, nursery, host, node_id=1):
    """A broker of the cluster listens at one more address."""
    other = ScriptedBroker(rig.cluster, node_id)
    other.host = host
    await nursery.start(other.run)


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH])
async def test_leader_named_in_the_answer_is_tried_at_once(make_rig, autojump_clock, nursery, code):
    """6 and 74 name a leader of a newer epoch, at an address nobody knew: no metadata, no wait (R27)."""
    rig = make_rig(cluster={"nodes": 2})
    await also_at(rig, nursery, "moved-2", 2)
    async with rig.running():
        await rig.send_and_wait(b"x")
        rig.cluster.brokers[2].host = "moved-2"
        rig.cluster.move_leader(T0, 2)
        rig.cluster.produce_script.append(Trouble(code=code))
        start_ms, seen = rig.clock.now_ms(), len(rig.cluster.received)
        assert await rig.send_and_wait(b"y") == 1
        assert rig.clock.now_ms() == start_ms
        assert rig.metadata.cluster.nodes[2].host == "moved-2"
        kinds = [(each.node_id, type(each.message)) for each in rig.cluster.received[seen:]]
        assert kinds.index((2, ProduceRequest)) > 0
        assert (2, MetadataRequest) not in kinds[: kinds.index((2, ProduceRequest))]


async def test_all_five_in_flight_follow_the_leader(make_rig, autojump_clock):
    """Each of them is refused; they arrive at the new leader once, in order."""
    rig = make_rig(cluster={"nodes": 2}, batch_bytes=0)
    async with rig.running():
        await rig.send_and_wait(b"warm")
        rig.cluster.move_leader(T0, 2)
        futures = [rig.send(b"%d" % number) for number in range(12)]
        assert [await rig.outcome(future) for future in futures] == list(range(1, 13))
    assert rig.values()[1:] == [b"%d" % number for number in range(12)]


async def test_older_epoch_is_no_news(make_rig, autojump_clock, monkeypatch):
    """A broker that is behind names a former leader: the batch backs off and metadata decide."""
    rig = make_rig(cluster={"nodes": 2})
    async with rig.running():
        await rig.send_and_wait(b"x")
        rig.cluster.produce_script.append(Trouble(code=ErrorCode.NOT_LEADER_OR_FOLLOWER))
        start_ms = rig.clock.now_ms()
        assert await rig.send_and_wait(b"y") == 1
        assert rig.clock.now_ms() - start_ms >= 80


@pytest.mark.parametrize(("strategy", "finds"), [("rebootstrap", True), ("none", False)])
async def test_cluster_that_moved_is_found_where_it_was_found_first(
    make_rig, autojump_clock, nursery, strategy, finds
):
    """Every known broker is gone; the first address leads to the new ones (KIP-899), if that is wanted."""
    rig = make_rig(
        bootstrap=(("front", 9092),), metadata_recovery_strategy=strategy, delivery_timeout_ms=20_000
    )
    await also_at(rig, nursery, "front")
    await also_at(rig, nursery, "elsewhere")
    async with rig.running():
        assert await rig.send_and_wait(b"x") == 0
        rig.cluster.brokers[1].host = "elsewhere"
        rig.network.refuse("node-1", 9092)
        rig.network.drop("node-1", 9092)
        rig.network.drop("front", 9092)
        outcome = await rig.send_and_wait(b"y")
        assert outcome == 1 if finds else isinstance(outcome, KafkaTimeoutError)


@pytest.mark.parametrize("finds", [True, False])
async def test_no_metadata_for_too_long(make_rig, autojump_clock, nursery, caplog, finds):
    """The known broker answers, but not with metadata: after the time set, all brokers are forgotten."""
    rig = make_rig(
        bootstrap=(("front", 9092),),
        metadata_recovery_strategy="rebootstrap" if finds else "none",
        metadata_recovery_rebootstrap_trigger_ms=5_000,
        delivery_timeout_ms=30_000,
    )
    usual = rig.cluster.respond

    def respond(broker, message, version, trouble):
        response = usual(broker, message, version, trouble)
        if (
            isinstance(message, MetadataRequest)
            and rig.futures[0].done()
            and broker is rig.cluster.brokers[1]
        ):
            response.error_code = 31
        return response

    rig.cluster.respond = respond
    await also_at(rig, nursery, "front")
    await also_at(rig, nursery, "elsewhere")
    async with rig.running():
        assert await rig.send_and_wait(b"x") == 0
        rig.cluster.brokers[1].host = "elsewhere"
        rig.network.drop("front", 9092)
        rig.cluster.trouble_for = lambda message: (
            Trouble(code=5)
            if isinstance(message, ProduceRequest) and rig.metadata.cluster.nodes[1].host == "node-1"
            else Trouble()
        )
        outcome = await rig.send_and_wait(b"y")
        assert (outcome == 1) is finds
        assert 5_000 < rig.clock.now_ms() < 8_000 or not finds
        assert ("no metadata within 5000 ms" in caplog.text) is finds


async def test_a_broker_may_ask_for_it(make_rig, autojump_clock, caplog):
    """Code 129 of Metadata v13 (KIP-1102): brokers are forgotten, the topic is not, and all goes on."""
    rig = make_rig(cluster={"nodes": 2})
    codes = [129]
    rig.cluster.trouble_for = lambda message: (
        Trouble(code=codes.pop())
        if isinstance(message, MetadataRequest) and codes and rig.futures[0].done()
        else Trouble()
    )
    async with rig.running():
        assert await rig.send_and_wait(b"x") == 0
        rig.cluster.produce_script.extend([Trouble(code=5)] * 3)
        assert await rig.send_and_wait(b"y") == 1
        assert not codes
        assert "asks for it" in caplog.text
        assert sorted(rig.metadata.cluster.nodes) == [1, 2]


async def test_without_recovery_129_is_a_failure_like_others(make_rig, autojump_clock, caplog):
    """It is asked again, and nothing is forgotten."""
    rig = make_rig(metadata_recovery_strategy="none")
    codes = [129]
    rig.cluster.trouble_for = lambda message: (
        Trouble(code=codes.pop()) if isinstance(message, MetadataRequest) and codes else Trouble()
    )
    async with rig.running():
        assert await rig.send_and_wait(b"x") == 0
        assert not codes
        assert "asks for it" not in caplog.text


async def test_a_blocked_partition_delays_no_other(make_rig, autojump_clock):
    """One backs off, of the same node, with the oldest batches: the others go at once (R18)."""
    rig = make_rig(cluster={"topics": {"t": 3}}, batch_bytes=0)
    rig.cluster.trouble_for = lambda message: (
        Trouble(code=ErrorCode.NOT_ENOUGH_REPLICAS)
        if isinstance(message, ProduceRequest) and [each.index for each in partitions(message)] == [0]
        else Trouble()
    )
    async with rig.running():
        assert await rig.send_and_wait(b"warm", partition=1) == 0
        stuck = [rig.send(b"stuck") for _ in range(5)]
        await trio.sleep(0.001)
        start_ms = rig.clock.now_ms()
        futures = [rig.send(b"x", partition=1 + number % 2) for number in range(20)]
        assert all(isinstance(outcome, int) for outcome in [await rig.outcome(each) for each in futures])
        assert rig.clock.now_ms() - start_ms < 50
        rig.cluster.trouble_for = lambda _message: Trouble()
        assert [await rig.outcome(each) for each in stuck] == list(range(5))


async def test_no_turns_after_a_delivery_timeout(make_rig, autojump_clock):
    """The broker hangs and the record expires; an idle producer then uses no processor time (R19)."""
    rig = make_rig(delivery_timeout_ms=2_000, request_timeout_ms=1_000)
    rig.cluster.trouble_for = lambda message: (
        Trouble(then="silence") if isinstance(message, ProduceRequest) else Trouble()
    )
    async with rig.running():
        assert isinstance(await rig.send_and_wait(b"x"), KafkaTimeoutError)
        await trio.sleep(5)
        turns = rig.sender.statistics().turns
        await trio.sleep(250)
        assert rig.sender.statistics().turns - turns < 10
        rig.cluster.trouble_for = lambda _message: Trouble()
        assert isinstance(await rig.send_and_wait(b"y"), int)


async def test_a_slow_network_gets_more_time(make_rig, autojump_clock):
    """Connecting may take longer after each failure, up to the maximum (KIP-601); errors say how long."""
    rig = make_rig(
        bootstrap=(("hole", 1),),
        connection_setup_timeout_ms=1_000,
        connection_setup_timeout_max_ms=3_000,
        delivery_timeout_ms=30_000,
    )
    seen = []

    async def connect(_host, _port):
        started_ms = rig.clock.now_ms()
        try:
            await trio.sleep_forever()
        finally:
            seen.append(round(rig.clock.now_ms() - started_ms))

    rig.sender._connect = connect
    async with rig.running():
        error = await rig.send_and_wait(b"x")
        assert "no answer within 3000 ms" in str(error)
    assert seen[:4] == [1_000, 2_000, 3_000, 3_000]


async def test_a_node_that_takes_nothing_lags(make_rig, autojump_clock):
    """Its batches wait while its connection cannot be written to: null keys may go elsewhere (KIP-794)."""
    rig = make_rig(
        cluster={"nodes": 2, "topics": {"t": 2}},
        availability_timeout_ms=100,
        batch_bytes=0,
        max_in_flight_requests_per_connection=1,
    )
    availability = rig.accumulator.availability
    async with rig.running():
        for partition in (0, 1):
            assert await rig.send_and_wait(b"warm", partition=partition) == 0
        rig.cluster.trouble_for = lambda message: (
            Trouble(delay_ms=500) if isinstance(message, ProduceRequest) else Trouble()
        )
        futures = [rig.send(b"%d" % number) for number in range(3)]
        await trio.sleep(0.3)
        futures.append(rig.send(b"3"))
        await trio.sleep(0.01)
        slow = rig.metadata.cluster.leader_for(T0)
        assert (availability.lags(slow), availability.lags(3 - slow)) == (True, False)
        rig.cluster.trouble_for = lambda _message: Trouble()
        assert all(isinstance(outcome, int) for outcome in [await rig.outcome(each) for each in futures])
        await rig.send_and_wait(b"again")
        assert not availability.lags(slow)


async def test_a_batch_too_large_was_blamed_on_its_records_when_its_time_was_up(make_rig, autojump_clock):
    """No record is too large by itself: there was no time left to split the batch."""
    rig = make_rig(linger_ms=100, batch_bytes=300, delivery_timeout_ms=2_000, request_timeout_ms=9_000)
    async with rig.running():
        await rig.send_and_wait(b"warm")
        futures = [rig.send(b"x" * 100)]
        await trio.sleep(0.0004)
        # Just past the deadline, and just before the turn that would see it.
        rig.cluster.produce_script.append(Trouble(code=10, delay_ms=1_999.8))
        futures += [rig.send(b"x" * 100) for _ in range(2)]
        for future in futures[:2]:
            error = await rig.outcome(future)
            assert isinstance(error, KafkaTimeoutError)
            assert "MessageTooLarge" in str(error)
        assert rig.sender.statistics().splits == 0
