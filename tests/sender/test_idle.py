"""A sender with nothing to do does nothing, also when something is wrong (dpkp/kafka-python#2615).

Turns are counted over an hour of virtual time: one that spins makes millions of them.
"""

from __future__ import annotations

from typing import Any

import trio
from support.scripted.cluster import Trouble

from splashdam.model.errors import KafkaTimeoutError
from splashdam.wire.messages.produce import ProduceRequest

HOUR = 3600


async def turns_in_an_hour(rig: Any) -> int:
    before = rig.sender.statistics().turns
    await trio.sleep(HOUR)
    after: int = rig.sender.statistics().turns
    return after - before


async def test_before_the_first_record(make_rig, autojump_clock):
    """Nobody is connected to, nothing is asked."""
    rig = make_rig()
    async with rig.running():
        assert await turns_in_an_hour(rig) <= 1
        assert rig.sender.statistics().connections == 0


async def test_after_a_delivery_timeout(make_rig, autojump_clock):
    """What has expired, in the queue or in flight, is not looked at again."""
    rig = make_rig(delivery_timeout_ms=5_000, request_timeout_ms=2_000)
    rig.cluster.trouble_for = lambda message: Trouble(
        then="silence" if isinstance(message, ProduceRequest) else "answer"
    )
    async with rig.running():
        assert isinstance(await rig.send_and_wait(b"lost"), KafkaTimeoutError)
        await trio.sleep(60)
        assert await turns_in_an_hour(rig) < 60
        rig.cluster.trouble_for = lambda _message: Trouble()
        assert isinstance(await rig.send_and_wait(b"found"), int)


async def test_a_cluster_away_for_longer_than_metadata_max_age_was_asked_for_every_second(
    make_rig, autojump_clock
):
    """Once nobody waits for it, it is looked for as seldom as it would be asked; and found again."""
    rig = make_rig(delivery_timeout_ms=5_000, request_timeout_ms=2_000)
    rig.network.refuse("node-1", 9092)
    async with rig.running():
        assert isinstance(await rig.send_and_wait(b"lost"), KafkaTimeoutError)
        await trio.sleep(60)
        assert await turns_in_an_hour(rig) < 100
        rig.network.refuse("node-1", 9092, refusing=False)
        assert await rig.send_and_wait(b"found") == 0


async def test_while_a_record_waits_for_brokers_that_cannot_be_reached(make_rig, autojump_clock):
    """A turn or two for each attempt to connect, which come at most every ``reconnect_backoff_max_ms``."""
    rig = make_rig(delivery_timeout_ms=10 * HOUR * 1000)
    rig.network.refuse("node-1", 9092)
    async with rig.running():
        future = rig.send(b"waits")
        await trio.sleep(60)
        assert await turns_in_an_hour(rig) < HOUR * 12
        rig.sender.force_close(KafkaTimeoutError("the test is over"))
        await rig.outcome(future)
