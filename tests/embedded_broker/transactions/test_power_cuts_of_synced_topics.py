"""Topics with ``flush.messages=1`` beside a log of states without it: producers go on after a power cut."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from random import Random

import pytest
import trio
from support.broker.transaction_talk import RawProducer, committed_values, opened
from support.running.fault_points import FaultPoints
from trio.testing import MockClock

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.values import TopicPartition
from splashdam.storage.files.memory import Fault, MemoryFiles, PowerCutError

Step = Callable[[], Awaitable[int]]

SYNCED = {"flush.messages": "1"}
BOTH = pytest.mark.parametrize("uses_v2", [False, True], ids=["v1", "v2"])
WAIT = (19, 51)


def transaction_after_an_abort(producer: RawProducer) -> list[Step]:
    """Ends the open transaction, and writes and commits one of three records in two partitions."""

    async def joined(partition: int) -> int:
        return 0 if producer.uses_v2 else max(await producer.add(partition, topic="synced"))

    write = partial(producer.write, topic="synced")
    return [
        partial(producer.end, is_commit=False),
        partial(joined, 0),
        partial(write, b"a", partition=0),
        partial(joined, 1),
        partial(write, b"a", partition=1),
        partial(write, b"b", partition=0),
        partial(write, b"b", partition=1),
        producer.end,
    ]


async def take(steps: list[Step], count: int = 100) -> None:
    """The next steps, each until it is done; those that a broker's end cuts short stay in the list."""
    tries = 100  # a broker without power may have 51 for an answer until somebody ends it
    while steps and count:
        code = await steps[0]()
        if code in WAIT and tries:
            tries -= 1
            await trio.sleep(0.02)
            continue
        assert code == 0
        del steps[0]
        count -= 1


async def cut(
    files: MemoryFiles, clock: MockClock, *, uses_v2: bool, after_steps: int = 0, after: int = 0
) -> tuple[RawProducer, list[Step]]:
    """A producer whose broker lost its power, and what it has still to do."""
    try:
        async with opened(files, clock) as (broker, talk):
            broker.topics.create("synced", 2, SYNCED)
            producer = RawProducer(talk, uses_v2=uses_v2)
            assert await producer.initialize() == 0
            if not uses_v2:
                assert await producer.add(0, topic="synced") == [0]
            assert await producer.write(b"aborted", topic="synced") == 0
            steps = transaction_after_an_abort(producer)
            await take(steps, after_steps)
            files.inject(Fault(None, after=after))
            with suppress(EOFError, trio.BrokenResourceError):
                await take(steps)
    except* PowerCutError:
        pass
    return producer, steps


async def check_it_is_whole(
    files: MemoryFiles, clock: MockClock, producer: RawProducer, steps: list[Step]
) -> None:
    """Goes on where the power cut came, and finds all of the transaction."""
    async with opened(files, clock) as (broker, talk):
        producer.talk = talk
        await take(steps)
        for partition in (0, 1):
            assert committed_values(broker, "synced", partition) == [b"a", b"b"]


@BOTH
async def test_a_power_cut_forgot_the_open_transaction_and_aborted_it_by_the_marker_of_the_one_before(
    files: MemoryFiles, autojump_clock: MockClock, uses_v2: bool
) -> None:
    """Its records were acknowledged and synced, its state was not: the log of states ended with an abort."""
    producer, steps = await cut(files, autojump_clock, uses_v2=uses_v2, after_steps=5)
    assert len(steps) == 3
    files.crash()
    await check_it_is_whole(files, autojump_clock, producer, steps)


@BOTH
async def test_a_transaction_goes_on_after_a_power_cut_at_any_operation(
    autojump_clock: MockClock, uses_v2: bool, fault_points: FaultPoints
) -> None:
    """Whatever of the unsynced the disk has kept, and however often a batch was sent."""
    for after in fault_points.of(range(500)):
        files = MemoryFiles()
        producer, steps = await cut(files, autojump_clock, uses_v2=uses_v2, after=after)
        if not steps:
            break
        files.crash(Random(after))
        await check_it_is_whole(files, autojump_clock, producer, steps)
    assert 10 < after < 499


@BOTH
async def test_a_log_of_states_that_cannot_be_synced_lets_no_batch_of_a_synced_topic_pass(
    files: MemoryFiles, autojump_clock: MockClock, uses_v2: bool
) -> None:
    """56 (16 to AddPartitionsToTxn), and nothing is in the log that nobody could end."""
    seen: list[object] = []

    async def refused() -> None:
        async with opened(files, autojump_clock) as (broker, talk):
            broker.topics.create("synced", 2, SYNCED)
            producer = RawProducer(talk, uses_v2=uses_v2)
            assert await producer.initialize() == 0
            files.inject(Fault(errno.EIO, after=1))  # the state is written, and not synced
            if uses_v2:
                seen.append(await producer.write(b"a", topic="synced"))
            else:
                seen.extend(await producer.add(0, topic="synced"))
            files.heal()
            seen.append(broker.logs.logs[TopicPartition("synced", 0)].log_end_offset)

    with pytest.raises(KafkaStorageError, match="was not closed in order"):
        await refused()
    assert seen == [56 if uses_v2 else 16, 0]


async def test_a_coordinator_that_cannot_sync_held_the_loop_for_ever(
    files: MemoryFiles, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its error refused the batch and was raised from itself: the broker looked for the cause in a circle."""
    seen: list[KafkaStorageError] = []

    async def refused() -> None:
        async with opened(files, autojump_clock) as (broker, talk):
            broker.topics.create("synced", 1, SYNCED)
            producer = RawProducer(talk)
            assert await producer.initialize() == 0
            # As in a cluster: even the coordinator of this broker is asked before the batch is appended.
            monkeypatch.setattr(broker.enrolments, "coordinator_to_ask", lambda _: broker.node_id)
            monkeypatch.setattr(broker.disk_failures, "append_failed", lambda _, error: seen.append(error))
            files.inject(Fault(errno.ENOSPC, after=1))  # the state is written, and not synced
            assert await producer.write(b"a", topic="synced") == 56

    with pytest.raises(KafkaStorageError, match="was not closed in order"):
        await refused()
    assert [each.errno for each in seen[0].causes if isinstance(each, OSError)] == [errno.ENOSPC]
