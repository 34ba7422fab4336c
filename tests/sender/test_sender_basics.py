"""A record's way to the broker: requests, versions, acks, order, and quiet when there is nothing to do."""

from __future__ import annotations

import math

import pytest
import trio
from support.clients.holding import holding
from support.scripted.cluster import Trouble

from splashdam.model.broker_errors import UnsupportedCompressionTypeError, UnsupportedVersionError
from splashdam.model.errors import IllegalStateError, KafkaTimeoutError
from splashdam.model.values import TopicPartition
from splashdam.record.batch import Codec, parse_header
from splashdam.record.compression import Compression
from splashdam.wire.messages.init_producer_id import InitProducerIdRequest
from splashdam.wire.messages.metadata import MetadataRequest
from splashdam.wire.messages.produce import ProduceRequest


async def test_first_record_waits_for_nothing(make_rig, autojump_clock):
    """Connect, versions, metadata, producer id, record: no fixed wait in between (R22)."""
    rig = make_rig()
    async with rig.running():
        assert await rig.send_and_wait(b"x") == 0
        assert rig.clock.now_ms() == 0
    assert [type(each.message).__name__ for each in rig.cluster.received] == [
        "ApiVersionsRequest",
        "MetadataRequest",
        "InitProducerIdRequest",
        "ProduceRequest",
    ]


async def test_one_request_per_node(make_rig, autojump_clock):
    """All partitions of a node share a request, those of another node get their own."""
    rig = make_rig(cluster={"topics": {"t": 4, "u": 2}, "nodes": 2}, linger_ms=50)
    async with rig.running():
        for topic, partition in [("t", 0), ("t", 1), ("t", 2), ("t", 3), ("u", 0), ("u", 1)]:
            rig.send(b"x", topic=topic, partition=partition)
    requests = rig.cluster.requests(ProduceRequest)
    named = [
        {topic.name: [each.index for each in topic.partition_data] for topic in request.topic_data}
        for request in requests
    ]
    assert sorted(map(str, named)) == ["{'t': [0, 2], 'u': [0]}", "{'t': [1, 3], 'u': [1]}"]
    assert all((request.acks, request.timeout_ms) == (-1, 30_000) for request in requests)


async def test_linger_is_kept(make_rig, autojump_clock):
    """A batch that is not full is sent linger_ms after its first record, not before."""
    rig = make_rig(linger_ms=20)
    async with rig.running():
        await rig.send_and_wait(b"warm")
        start_ms = rig.clock.now_ms()
        first = rig.send(b"1")
        await trio.sleep(0.012)
        second = rig.send(b"2")
        assert await rig.outcome(second) == 2
        assert rig.clock.now_ms() - start_ms == 20
        assert first.outcome is second.outcome


async def test_flush_cuts_linger(make_rig, autojump_clock):
    """Nothing lingers while somebody flushes."""
    rig = make_rig(linger_ms=10_000)
    async with rig.running():
        future = rig.send(b"1")
        with holding(rig.guard):
            (outcome,) = rig.accumulator.begin_flush()
        rig.wakeup.wake()
        assert await rig.outcome(future) == 0
        assert outcome.done()
        assert rig.clock.now_ms() < 100
        rig.accumulator.end_flush()


@pytest.mark.parametrize(("acks", "offset"), [(-1, 0), (1, 0), (0, -1)])
async def test_acks(make_rig, autojump_clock, acks, offset):
    """With ``acks=0`` nobody answers and the offset is -1 (R15)."""
    rig = make_rig(acks=acks, enable_idempotence=False)
    async with rig.running():
        assert await rig.send_and_wait(b"x") == offset
        assert await rig.send_and_wait(b"y") in (1, -1)
    assert rig.values() == [b"x", b"y"]
    assert rig.cluster.requests(ProduceRequest)[0].acks == acks
    assert rig.cluster.requests(InitProducerIdRequest) == []


async def test_requests_beyond_those_of_one_turn_do_not_wait(make_rig, autojump_clock):
    """A turn writes a few requests and lets others go on; with ``acks=0`` no answer brings the next turn."""
    rig = make_rig(acks=0, enable_idempotence=False, batch_bytes=0, max_request_size=100)
    async with rig.running():
        await rig.send_and_wait(b"first")
        begun = trio.current_time()
        for number in range(50):
            rig.send(b"%d" % number)
        for future in rig.futures:
            await rig.outcome(future)
        assert trio.current_time() == begun


async def test_acks_0_on_a_broken_connection_is_sent_again(make_rig, autojump_clock):
    """What could not be written goes to the next connection."""
    rig = make_rig(acks=0, enable_idempotence=False)
    async with rig.running():
        await rig.send_and_wait(b"x")
        await trio.sleep(0.01)  # it counts as delivered once it is written; the broker has to read it first
        rig.network.drop("node-1", 9092)
        await rig.send_and_wait(b"y")
        await trio.sleep(0.01)
    assert rig.values() == [b"x", b"y"]


@pytest.mark.parametrize("newest", [3, 5, 8, 9, 11])
async def test_speaks_what_the_broker_speaks(make_rig, autojump_clock, newest):
    """The highest version both sides know."""
    rig = make_rig()
    rig.cluster.spoken[ProduceRequest] = (0, newest)
    async with rig.running():
        assert await rig.send_and_wait(b"x") == 0
    assert {
        each.header.api_version for each in rig.cluster.received if isinstance(each.message, ProduceRequest)
    } == {newest}


async def test_broker_from_another_age(make_rig, autojump_clock):
    """No common version of Produce: fatal, with both ranges named; later records fail at once."""
    rig = make_rig()
    rig.cluster.spoken[ProduceRequest] = (20, 21)
    async with rig.running():
        error = await rig.send_and_wait(b"x")
        assert isinstance(error, UnsupportedVersionError)
        assert "v20-21" in str(error) or "v20" in str(error)
        assert rig.sender.fatal_error is not None
        assert isinstance(await rig.send_and_wait(b"y"), UnsupportedVersionError)
        assert rig.clock.now_ms() == 0


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
async def test_compressed_batches(make_rig, autojump_clock, codec):
    """Batches carry their codec; a retry sends the same bytes."""
    rig = make_rig(compression=Compression(codec), linger_ms=5)
    rig.cluster.produce_script.append(Trouble(code=19))
    async with rig.running():
        futures = [rig.send(b"x" * 500) for _ in range(20)]
        assert [await rig.outcome(future) for future in futures] == list(range(20))
    batches = [
        bytes(request.topic_data[0].partition_data[0].records or b"")
        for request in rig.cluster.requests(ProduceRequest)
    ]
    assert batches[0] == batches[1]
    assert parse_header(batches[0]).codec is codec
    assert len(batches[0]) < 1000


async def test_zstd_needs_produce_7(make_rig, autojump_clock):
    """An old broker would not know the codec; the record fails with a word on that, the producer lives."""
    rig = make_rig(compression=Compression(Codec.ZSTD))
    rig.cluster.spoken[ProduceRequest] = (0, 6)
    async with rig.running():
        error = await rig.send_and_wait(b"x")
        assert isinstance(error, UnsupportedCompressionTypeError)
        assert "zstd needs v7" in str(error)
        assert rig.sender.fatal_error is None


async def test_five_in_flight_per_partition(make_rig, autojump_clock):
    """Five numbered batches are under way at once, each behind the other; the sixth waits (R4)."""
    rig = make_rig(batch_bytes=0)
    async with rig.running():
        await rig.send_and_wait(b"warm")
        rig.cluster.trouble_for = lambda _message: Trouble(delay_ms=100)
        start_ms = rig.clock.now_ms()
        futures = [rig.send(b"%d" % number) for number in range(12)]
        await trio.sleep(0.05)
        assert rig.sender.statistics().in_flight_requests == 5
        assert [await rig.outcome(future) for future in futures] == list(range(1, 13))
        assert rig.clock.now_ms() - start_ms == 1200  # this broker works on one after the other
    headers = rig.cluster.logs[TopicPartition("t", 0)].headers
    assert [header.base_sequence for header in headers] == list(range(13))


async def test_one_in_flight_keeps_order_by_muting(make_rig, autojump_clock):
    """Without idempotence and with one request in flight a failed batch is not overtaken."""
    rig = make_rig(enable_idempotence=False, max_in_flight_requests_per_connection=1, batch_bytes=0)
    rig.cluster.produce_script.extend([Trouble(), Trouble(code=19), Trouble(code=19)])
    async with rig.running():
        for number in range(6):
            rig.send(b"%d" % number)
    assert rig.values() == [b"%d" % number for number in range(6)]


async def test_a_large_request_becomes_several(make_rig, autojump_clock):
    """max_request_size bounds a request; partitions that do not fit go in the next."""
    rig = make_rig(cluster={"topics": {"t": 6}}, max_request_size=1000, linger_ms=5)
    async with rig.running():
        for partition in range(6):
            rig.send(b"x" * 400, partition=partition)
    sizes = [
        sum(len(each.records or b"") for topic in request.topic_data for each in topic.partition_data)
        for request in rig.cluster.requests(ProduceRequest)
    ]
    assert len(sizes) == 3
    assert max(sizes) <= 1000


async def test_throttled_client_waits(make_rig, autojump_clock):
    """KIP-219: after an answer with a throttle time the client itself stays away for so long."""
    rig = make_rig()
    rig.cluster.produce_script.append(Trouble(throttle_ms=700))
    async with rig.running():
        assert await rig.send_and_wait(b"x") == 0
        start_ms = rig.clock.now_ms()
        assert await rig.send_and_wait(b"y") == 1
        assert rig.clock.now_ms() - start_ms == pytest.approx(700, abs=2)


async def test_a_question_is_asked_once_there_is_a_connection(make_rig, autojump_clock):
    """This holds without any record: the lookup of a topic waits for nothing else."""
    rig = make_rig()
    answered = trio.Event()
    async with rig.running():
        rig.metadata.add_waiter(answered.set)
        rig.metadata.request_topic("t", rig.clock.now_ms())
        rig.wakeup.wake()
        await answered.wait()
        assert trio.current_time() == 0
        assert rig.metadata.cluster.partition_count("t") == 1


async def test_a_question_waits_for_the_end_of_the_throttling(make_rig, autojump_clock):
    """What is to be asked while the only broker wants to be left alone is asked right after that."""
    rig = make_rig(cluster={"topics": {"t": 1, "u": 1}})
    rig.cluster.produce_script.append(Trouble(throttle_ms=700))
    async with rig.running():
        await rig.send_and_wait(b"a")
        begun = trio.current_time()
        with trio.fail_after(10):
            assert await rig.send_and_wait(b"b", topic="u") == 0
        assert trio.current_time() - begun == pytest.approx(0.7, abs=0.01)


async def test_a_time_out_says_that_the_broker_throttles(make_rig, autojump_clock):
    """Even an absurd throttle time is obeyed; the error of a caller names it."""
    rig = make_rig(delivery_timeout_ms=5_000, request_timeout_ms=1_000)
    rig.cluster.produce_script.append(Trouble(throttle_ms=2_000_000_000))
    async with rig.running():
        await rig.send_and_wait(b"a")
        why = "the broker at node-1:9092 throttles this client for another {} s"
        assert rig.metadata.obstacle() == why.format("2,000,000.0")
        error = await rig.send_and_wait(b"b")
        assert isinstance(error, KafkaTimeoutError)
        assert f"; {why.format('1,999,995.0')}; last failure: none" in str(error)


async def test_forgotten_partition_is_not_taken_for_a_repeat(make_rig, autojump_clock, monkeypatch):
    """A topic out of use for long comes back at number 0 of a new epoch: its record is written."""
    monkeypatch.setattr("splashdam.sender.idempotence.MOST_IDLE", 0)
    rig = make_rig(cluster={"topics": {"t": 1, "u": 1}})
    async with rig.running():
        assert await rig.send_and_wait(b"first") == 0
        for number in range(20):
            assert await rig.send_and_wait(b"%d" % number, topic="u") == number
            await trio.sleep(60)
        assert rig.sender.statistics().epoch_bumps == 1
        assert await rig.send_and_wait(b"second") == 1
    assert rig.values() == [b"first", b"second"]


async def test_a_record_takes_one_turn_and_no_task(make_rig, autojump_clock):
    """At linger 0: the turn that writes it. The answer settles it in the turn of the connection's reader."""
    rig = make_rig()
    async with rig.running():
        await rig.send_and_wait(b"warm")
        await trio.testing.wait_all_tasks_blocked()
        turns = rig.sender.statistics().turns
        tasks = trio.lowlevel.current_statistics().tasks_living
        rig.cluster.trouble_for = lambda _message: Trouble(delay_ms=5)
        for number in range(1, 11):
            future = rig.send(b"%d" % number)
            await trio.testing.wait_all_tasks_blocked()
            assert rig.sender.statistics().in_flight_requests == 1
            assert trio.lowlevel.current_statistics().tasks_living == tasks
            assert await rig.outcome(future) == number
        assert rig.sender.statistics().turns - turns == 10


async def test_answers_let_the_next_batches_go_at_once(make_rig, autojump_clock):
    """The reader takes the sender's turn, though the sender itself sleeps until something rings."""
    rig = make_rig(batch_bytes=0)
    async with rig.running():
        await rig.send_and_wait(b"warm")
        rig.cluster.trouble_for = lambda _message: Trouble(delay_ms=10)
        futures = [rig.send(b"%d" % number) for number in range(20)]
        await trio.testing.wait_all_tasks_blocked()
        rig.wakeup.sleep = None  # nobody calls it before all is delivered, or this test fails
        assert [await rig.outcome(future) for future in futures] == list(range(1, 21))
        del rig.wakeup.sleep


async def test_idle_sender_sleeps(make_rig, autojump_clock):
    """An hour without records: the refreshes of the metadata, and hardly a turn more (R19)."""
    rig = make_rig()
    async with rig.running():
        await rig.send_and_wait(b"x")
        await trio.sleep(1)
        turns = rig.sender.statistics().turns
        await trio.sleep(3600)
        assert rig.sender.statistics().turns - turns < 20
        assert rig.sender.statistics().connections == 0  # idle connections are closed
        assert len(rig.cluster.requests(MetadataRequest)) < 5
        assert await rig.send_and_wait(b"y") == 1


async def test_leaderless_partition_does_not_spin(make_rig, autojump_clock):
    """Metadata are requested at growing intervals until there is a leader.

    Other partitions are not delayed.
    """
    rig = make_rig(cluster={"topics": {"t": 2}})
    rig.cluster.move_leader(TopicPartition("t", 0), -1)
    async with rig.running():
        stuck = rig.send(b"stuck")
        assert await rig.send_and_wait(b"fine", partition=1) == 0
        turns = rig.sender.statistics().turns
        await trio.sleep(20)
        assert rig.sender.statistics().turns - turns < 100
        assert len(rig.cluster.requests(MetadataRequest)) < 30
        rig.cluster.move_leader(TopicPartition("t", 0), 1)
        assert await rig.outcome(stuck) == 0


async def test_unreachable_cluster_does_not_spin(make_rig, autojump_clock):
    """Reconnects back off to a second each; with nothing to send they stop."""
    rig = make_rig(delivery_timeout_ms=30_000)
    rig.network.refuse("node-1", 9092)
    async with rig.running():
        future = rig.send(b"x")
        await trio.sleep(29)
        assert rig.sender.statistics().turns < 200
        error = await rig.outcome(future)
        assert "cannot connect to node-1:9092: Connection refused" in str(error)
        turns = rig.sender.statistics().turns
        await trio.sleep(250)
        assert rig.sender.statistics().turns - turns < 10


async def test_step_is_one_turn(make_rig, autojump_clock):
    """``step`` decides and starts, and says when to come again; outside ``serving`` it is refused."""
    rig = make_rig(linger_ms=30)
    with pytest.raises(IllegalStateError, match="serving"):
        await rig.sender.step()
    async with trio.open_nursery() as nursery:
        await nursery.start(rig.cluster.run)
        async with rig.sender.serving():
            assert await rig.sender.step() == math.inf
            future = rig.send(b"x")
            for _ in range(4):
                await rig.sender.step()
                await trio.testing.wait_all_tasks_blocked()
            assert await rig.sender.step() == pytest.approx(30)
            await trio.sleep(0.03)
            await rig.sender.step()
            assert await rig.outcome(future) == 0
        nursery.cancel_scope.cancel()
