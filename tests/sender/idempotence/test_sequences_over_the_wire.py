"""Sequence numbers as a broker sees them, at the ends of their ranges, and what they hold up."""

from __future__ import annotations

import pytest
import trio
import trio.lowlevel
from support.scripted.cluster import Trouble

from splashdam.accumulator.batch import SEQUENCE_COUNT
from splashdam.model.broker_errors import InvalidRecordError
from splashdam.model.errors import KafkaTimeoutError
from splashdam.model.values import TopicPartition
from splashdam.sender.idempotence import LAST_EPOCH
from splashdam.wire.messages.init_producer_id import InitProducerIdRequest
from splashdam.wire.messages.produce import ProduceRequest

TP = TopicPartition("t", 0)


def jump(rig, sequence):
    """The next batch has this number, for the broker, too."""
    partition = rig.sender._idempotence._partitions[TP]
    partition.next_sequence = partition.acked_to = sequence
    state = next(iter(rig.cluster.logs[TP]._producers.values()))
    state.batches.clear()
    state.batches.append((sequence - 1, sequence - 1, 0))


@pytest.mark.parametrize("trouble", [Trouble(then="hang_up"), Trouble(code=19), Trouble(delay_ms=20)])
async def test_numbers_wrap_with_five_in_flight(make_rig, autojump_clock, trouble):
    """2,147,483,647 is followed by 0, also where the batches around it are repeated."""
    rig = make_rig(batch_bytes=0)
    async with rig.running():
        await rig.send_and_wait(b"warm")
        jump(rig, SEQUENCE_COUNT - 2)
        rig.cluster.produce_script.extend([Trouble(), trouble, Trouble(), trouble])
        futures = [rig.send(b"%d" % number) for number in range(10)]
        assert [await rig.outcome(future) for future in futures] == list(range(1, 11))
        assert rig.sender.statistics().epoch_bumps == 0
    assert rig.values() == [b"warm", *(b"%d" % number for number in range(10))]
    numbers = [header.base_sequence for header in rig.cluster.logs[TP].headers[1:5]]
    assert numbers == [SEQUENCE_COUNT - 2, SEQUENCE_COUNT - 1, 0, 1]


async def test_a_batch_over_the_wrap_is_split(make_rig, autojump_clock):
    """Its halves share its numbers, on both sides of it."""
    rig = make_rig(linger_ms=5)
    async with rig.running():
        await rig.send_and_wait(b"warm")
        jump(rig, SEQUENCE_COUNT - 2)
        rig.cluster.produce_script.append(Trouble(code=10))
        futures = [rig.send(b"%d" % number + b"." * 50) for number in range(4)]
        assert [await rig.outcome(future) for future in futures] == [1, 2, 3, 4]
    numbers = [header.base_sequence for header in rig.cluster.logs[TP].headers[1:]]
    assert numbers == [SEQUENCE_COUNT - 2, 0]


async def test_the_last_epoch_is_followed_by_a_new_producer_id(make_rig, autojump_clock):
    """A refused batch at epoch 32,767: queued records wait for the new id, and no record is lost."""
    rig = make_rig(batch_bytes=0)
    async with rig.running():
        await rig.send_and_wait(b"warm")
        sequences = rig.sender._idempotence
        sequences.identity = sequences.identity._replace(epoch=LAST_EPOCH)
        rig.cluster.produce_script.append(Trouble(code=87))
        assert isinstance(await rig.send_and_wait(b"bad"), InvalidRecordError)
        futures = [rig.send(b"%d" % number) for number in range(5)]
        assert [await rig.outcome(future) for future in futures] == [1, 2, 3, 4, 5]
        assert len(rig.cluster.requests(InitProducerIdRequest)) == 2
    headers = rig.cluster.logs[TP].headers
    assert headers[0].producer_id != headers[1].producer_id
    assert (headers[1].producer_epoch, headers[1].base_sequence) == (0, 0)


async def test_an_expired_batch_in_flight_loses_nothing_behind_it(make_rig, autojump_clock):
    """Nobody knows whether it was written. What waits behind it goes out under the next epoch, in order."""
    rig = make_rig(batch_bytes=0, delivery_timeout_ms=3000, request_timeout_ms=5000)
    async with rig.running():
        await rig.send_and_wait(b"warm")
        rig.cluster.produce_script.append(Trouble(then="refuse", delay_ms=3500))
        lost = rig.send(b"lost")
        await trio.sleep(2)
        futures = [rig.send(b"%d" % number) for number in range(3)]
        assert isinstance(await rig.outcome(lost), KafkaTimeoutError)
        assert [await rig.outcome(future) for future in futures] == [1, 2, 3]
        assert rig.sender.statistics().epoch_bumps == 1
    numbers = [(each.producer_epoch, each.base_sequence) for each in rig.cluster.logs[TP].headers]
    assert numbers == [(0, 0), (1, 0), (1, 1), (1, 2)]


@pytest.mark.parametrize("idempotent_first", [True, False])
async def test_unknown_at_number_0_is_only_repeated(make_rig, autojump_clock, idempotent_first):
    """59 where nothing lower can be begun with: no epoch is spent, however often it comes."""
    rig = make_rig()
    async with rig.running():
        if idempotent_first:
            await rig.send_and_wait(b"warm")
            rig.cluster.produce_script.append(Trouble(code=87))
            await rig.send_and_wait(b"bad")  # the next one begins at 0 again
        bumps = rig.sender.statistics().epoch_bumps
        rig.cluster.produce_script.extend([Trouble(code=59)] * 3)
        assert await rig.send_and_wait(b"x") == (1 if idempotent_first else 0)
        assert rig.sender.statistics().epoch_bumps == bumps + idempotent_first
        assert len(rig.cluster.requests(ProduceRequest)) == (6 if idempotent_first else 4)


async def test_a_partition_in_trouble_holds_up_no_other(make_rig, autojump_clock):
    """Other partitions of the same request go on: only new batches of the troubled one wait (R18)."""
    rig = make_rig(cluster={"topics": {"t": 3}}, batch_bytes=0)
    async with rig.running():
        for number in range(3):
            await rig.send_and_wait(b"warm", partition=number)
        rig.cluster.leaders[TopicPartition("t", 1)] = (-1, 1)
        rig.cluster.produce_script.append(Trouble(code=6))
        stuck = rig.send(b"stuck", partition=1)
        await trio.sleep(0.3)
        start_ms = rig.clock.now_ms()
        for number in (0, 2, 0, 2):
            assert isinstance(await rig.send_and_wait(b"x", partition=number), int)
        assert rig.clock.now_ms() == start_ms
        assert not stuck.done()
        rig.cluster.move_leader(TopicPartition("t", 1), 1)
        assert await rig.outcome(stuck) == 1
