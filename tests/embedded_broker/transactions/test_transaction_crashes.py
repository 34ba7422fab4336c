"""Whenever the process or the power goes: the next start finishes transactions, and none is half done."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

import pytest
import trio
from support.broker.broker_talk import Talk
from support.broker.transaction_talk import RawProducer, committed_values, opened
from support.running.fault_points import FaultPoints
from trio.testing import MockClock

from splashdam.embedded_broker.transactions.metadata import PREPARED, TransactionState
from splashdam.model.values import TopicPartition
from splashdam.storage.files.memory import Fault, MemoryFiles, PowerCutError
from splashdam.storage.topic_names import TRANSACTION_STATE

S = TransactionState
SAFE = {"log_flush_interval_messages": 1}
ENDS = [(b"a", True), (b"b", False), (b"c", True)]


async def transactions(talk: Talk, *, uses_v2: bool) -> list[bytes]:
    """Three transactions over two partitions; returns those whose commit was acknowledged."""
    acknowledged: list[bytes] = []
    with suppress(EOFError, trio.BrokenResourceError):
        producer = RawProducer(talk, uses_v2=uses_v2)
        if await producer.initialize():
            return acknowledged
        for value, is_commit in ENDS:
            for _ in range(100):  # 51 while markers wait for the disk
                if uses_v2 or set(await producer.add(0, 1)) == {0}:
                    break
                await trio.sleep(0.02)
            codes = [await _written(producer, value, partition) for partition in (0, 1)]
            if any(codes) or await producer.end(is_commit=is_commit):
                return acknowledged
            if is_commit:
                acknowledged.append(value)
    return acknowledged


async def _written(producer: RawProducer, value: bytes, partition: int) -> int:
    for _ in range(100):
        code = await producer.write(value, partition=partition)
        if code not in (19, 51):
            return code
        await trio.sleep(0.02)
    return code


async def check_what_is_left(
    files: MemoryFiles, clock: MockClock, acknowledged: list[bytes], **options: Any
) -> None:
    """At the next start: what was acknowledged is there, nothing is half, and nobody waits for ever."""
    async with opened(files, clock, **options) as (broker, _):
        await trio.sleep(90)  # what was open times out
        first, second = committed_values(broker, "t", 0), committed_values(broker, "t", 1)
        assert first == second
        assert set(acknowledged) <= set(first) <= {b"a", b"c"}
        for log in broker.logs.logs.values():
            assert log.last_stable_offset == log.high_watermark
        assert not any(each.state in (*PREPARED, S.ONGOING) for each in broker.transactions.states.values())


async def cut_short(
    files: MemoryFiles, clock: MockClock, fault: Fault, *, uses_v2: bool, **options: Any
) -> list[bytes] | None:
    """Runs until the power goes; None where it lasted to the end."""
    acknowledged: list[bytes] = []
    try:
        async with opened(files, clock, **options) as (_, talk):
            files.inject(fault)
            acknowledged = await transactions(talk, uses_v2=uses_v2)
            if acknowledged == [b"a", b"c"]:
                files.heal()
                return None
    except* PowerCutError:
        pass
    return acknowledged


@pytest.mark.parametrize("uses_v2", [False, True], ids=["v1", "v2"])
async def test_killed_at_any_write(
    autojump_clock: MockClock, uses_v2: bool, fault_points: FaultPoints
) -> None:
    """By default nothing is synced: what the process wrote before it was killed is what counts."""
    for after in fault_points.of(range(500)):
        files = MemoryFiles()
        fault = Fault(None, after=after)
        acknowledged = await cut_short(files, autojump_clock, fault, uses_v2=uses_v2)
        files.kill()
        await check_what_is_left(
            files, autojump_clock, [b"a", b"c"] if acknowledged is None else acknowledged
        )
        if acknowledged is None:
            break
    assert 20 < after < 499


@pytest.mark.parametrize("uses_v2", [pytest.param(False, marks=pytest.mark.slow), True], ids=["v1", "v2"])
async def test_power_cut_at_any_operation(
    autojump_clock: MockClock, uses_v2: bool, fault_points: FaultPoints
) -> None:
    """With flush.messages=1 what is acknowledged has outlived it."""
    for after in fault_points.of(range(500)):
        files = MemoryFiles()
        fault = Fault(None, after=after)
        acknowledged = await cut_short(files, autojump_clock, fault, uses_v2=uses_v2, **SAFE)
        files.crash(Random(after))
        await check_what_is_left(
            files, autojump_clock, [b"a", b"c"] if acknowledged is None else acknowledged, **SAFE
        )
        if acknowledged is None:
            break
    assert 20 < after < 499


async def test_a_damaged_log_of_states_costs_its_ids_and_not_the_broker(
    files: MemoryFiles, autojump_clock: MockClock
) -> None:
    """They are answered with 15, and what is open stays open: what cannot be read may have committed it."""
    async with opened(files, autojump_clock) as (broker, talk):
        producer = RawProducer(talk, uses_v2=True)
        await producer.initialize()
        await producer.write(b"a", partition=0)
        number = broker.transactions.log_of(producer.transactional_id).topic_partition.partition
    path = f"/data/{TRANSACTION_STATE}-{number}/00000000000000000000.log"
    data = bytearray(files.read_bytes(path) or b"")
    data[57] ^= 1  # the count of the first batch's records
    files.write_atomic(path, bytes(data))
    async with opened(files, autojump_clock) as (broker, talk):
        assert await RawProducer(talk, uses_v2=True).initialize() == 15
        producer.talk = talk
        assert await producer.end() == 15
        await trio.sleep(90)
        assert broker.logs.logs[TopicPartition("t", 0)].last_stable_offset == 0
