"""Timeouts, ids that nobody uses, restarts in every state, and disks that refuse or are waited for."""

from __future__ import annotations

import errno
from collections import Counter
from typing import Any

import attrs
import pytest
import trio
from support.broker.broker_talk import produce_request
from support.broker.loop_watch import StepCount
from support.broker.transaction_talk import RawProducer, committed_values, killed, opened
from trio.testing import MockClock, wait_all_tasks_blocked

from splashdam.embedded_broker.broker import Broker
from splashdam.embedded_broker.topics.internal_topics import InternalTopic
from splashdam.embedded_broker.transactions import markers
from splashdam.embedded_broker.transactions.metadata import (
    ProducerIdentity,
    TransactionMetadata,
    TransactionState,
)
from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.values import TopicPartition
from splashdam.storage.files.memory import Fault, MemoryFiles
from splashdam.storage.flushing import FlushRound
from splashdam.storage.log import Log
from splashdam.storage.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE

S = TransactionState
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
HOUR_MS = 60 * 60 * 1000


def known(broker: Broker) -> TransactionMetadata:
    metadata = broker.transactions.get("tx")
    assert metadata is not None
    return metadata


async def test_open_for_too_long(autojump_clock: MockClock) -> None:
    """Aborted with the next look after its timeout; the producer learns it, and goes on with a new epoch."""
    async with opened(MemoryFiles(), autojump_clock) as (broker, talk):
        producer = RawProducer(talk)
        assert await producer.initialize(timeout_ms=15_000) == 0
        assert await producer.write(b"late") == 0
        await trio.sleep(14)
        assert known(broker).state is S.ONGOING
        await trio.sleep(10)
        assert known(broker).state is S.COMPLETE_ABORT
        log = broker.logs.logs[T0]
        assert log.last_stable_offset == log.high_watermark
        assert await producer.write(b"later") == 47
        assert await producer.end() == 48
        assert await producer.end(is_commit=False) == 0
        assert await producer.write(b"new") == 0
        assert await producer.end() == 0
        assert committed_values(broker) == [b"new"]


@pytest.mark.parametrize("is_open", [True, False], ids=["open for too long", "unused"])
async def test_many_transactional_ids_that_end_together_take_several_turns(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, is_open: bool
) -> None:
    """A client left three thousand open together: their aborts held the loop for most of a second."""
    options = {"transactional_id_expiration_ms": 3_600_000}
    async with opened(MemoryFiles(), autojump_clock, **options) as (broker, _):
        coordinator = broker.transactions
        for number in range(100):
            name = f"tx-{number}"
            identity = coordinator.initialize(name, 1000)
            if is_open:
                coordinator.add_partitions(name, *identity, [T0])
        count, turns = StepCount(), dict[str, int]()
        append = coordinator._append

        def counted(transactional_id: str, value: bytes | None) -> None:
            turns[transactional_id] = count.steps
            append(transactional_id, value)

        monkeypatch.setattr(coordinator, "_append", counted)
        trio.lowlevel.add_instrument(count)
        await trio.sleep(20 if is_open else 2 * 3_600)
        trio.lowlevel.remove_instrument(count)
        assert len(turns) == 100
        assert max(Counter(turns.values()).values()) == 20
        states = {each.state for each in coordinator.states.values()}
        assert states == ({S.COMPLETE_ABORT} if is_open else set())


async def test_the_interval_is_an_option(autojump_clock: MockClock) -> None:
    """transaction.abort.timed.out.transaction.cleanup.interval.ms."""
    options = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": 500}
    async with opened(MemoryFiles(), autojump_clock, **options) as (broker, talk):
        producer = RawProducer(talk)
        assert await producer.initialize(timeout_ms=1000) == 0
        assert await producer.write(b"late") == 0
        await trio.sleep(1.6)
        assert known(broker).state is S.COMPLETE_ABORT


@pytest.mark.parametrize("is_open", [False, True])
async def test_unused_transactional_ids(autojump_clock: MockClock, is_open: bool) -> None:
    """Forgotten after transactional.id.expiration.ms, for the next start, too; never while one is open."""
    files = MemoryFiles()
    options = {
        "transaction_max_timeout_ms": 2**31 - 1,
        "transactional_id_expiration_ms": 12 * HOUR_MS,
        # A broker does these every few seconds, thousands of times in twelve hours; nobody looks at them.
        "transaction_abort_timed_out_transaction_cleanup_interval_ms": HOUR_MS,
        "log_cleaner_backoff_ms": HOUR_MS,
        "log_flush_offset_checkpoint_interval_ms": HOUR_MS,
        "log_flush_start_offset_checkpoint_interval_ms": HOUR_MS,
        "replica_high_watermark_checkpoint_interval_ms": HOUR_MS,
    }
    async with opened(files, autojump_clock, **options) as (broker, talk):
        producer = RawProducer(talk)
        assert await producer.initialize(timeout_ms=2**31 - 1) == 0
        assert await producer.write(b"a") == 0
        if not is_open:
            assert await producer.end() == 0
        await trio.sleep(11 * HOUR_MS / 1000)
        assert broker.transactions.get("tx") is not None
        await trio.sleep(2.1 * HOUR_MS / 1000)
        assert (broker.transactions.get("tx") is not None) == is_open
    async with opened(files, autojump_clock, **options) as (broker, _):
        assert (broker.transactions.get("tx") is not None) == is_open


# --- restarts -----------------------------------------------------------------------------------------------


async def written(talk: Any, *, uses_v2: bool = True) -> RawProducer:
    """A producer with an open transaction in both partitions."""
    producer = RawProducer(talk, uses_v2=uses_v2)
    assert await producer.initialize() == 0
    if not uses_v2:
        assert await producer.add(0, 1) == [0, 0]
    for partition in (0, 1):
        assert await producer.write(b"v", partition=partition) == 0
    return producer


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("state", [S.EMPTY, S.ONGOING, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
async def test_restarted_in_a_lasting_state(
    autojump_clock: MockClock, state: TransactionState, version: int
) -> None:
    """The producer goes on as if nothing had been, in either format of the state's log."""
    files, uses_v2 = MemoryFiles(), version == 2
    async with killed(files, autojump_clock, transaction_version=version) as (broker, talk):
        producer = RawProducer(talk, uses_v2=uses_v2)
        assert await producer.initialize() == 0
        if state is not S.EMPTY:
            producer = await written(talk, uses_v2=uses_v2)
        if state in (S.COMPLETE_COMMIT, S.COMPLETE_ABORT):
            assert await producer.end(is_commit=state is S.COMPLETE_COMMIT) == 0
        before = known(broker)
        assert before.state is state
    async with opened(files, autojump_clock, transaction_version=version) as (broker, talk):
        forgotten = {"last_producer_epoch": -1}
        if not version:
            forgotten |= {"previous_producer_id": -1, "client_version": 0}
        assert known(broker) == attrs.evolve(before, **forgotten)
        producer.talk = talk
        if not uses_v2:
            assert await producer.add(0, 1) == [0, 0]
        assert await producer.write(b"w") == 0
        assert await producer.end() == 0
        whole = [b"v"] if state in (S.ONGOING, S.COMPLETE_COMMIT) else []
        assert committed_values(broker) == [*whole, b"w"]


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("markers", [0, 1, 2])
async def test_killed_between_decision_and_markers(
    autojump_clock: MockClock, is_commit: bool, version: int, markers: int
) -> None:
    """The next start writes what is missing, whatever was written before."""
    files, uses_v2 = MemoryFiles(), version == 2
    async with killed(files, autojump_clock, transaction_version=version) as (broker, talk):
        await written(talk, uses_v2=uses_v2)
        decided = known(broker).ended(is_commit, broker.clock.wall_ms(), version, lambda: 99)
        broker.transactions.put(decided)
        files.inject(Fault(None, after=markers))
        broker.transactions._completion.begin(decided)
    async with opened(files, autojump_clock, transaction_version=version) as (broker, _):
        assert known(broker).state is (S.COMPLETE_COMMIT if is_commit else S.COMPLETE_ABORT)
        for partition in (0, 1):
            assert committed_values(broker, "t", partition) == ([b"v"] if is_commit else [])
            log = broker.logs.logs[TopicPartition("t", partition)]
            assert log.last_stable_offset == log.high_watermark


async def test_offsets_of_a_prepared_transaction(autojump_clock: MockClock) -> None:
    """Its marker in __consumer_offsets is written at the start, behind the reading of the offsets."""
    files = MemoryFiles()
    async with killed(files, autojump_clock) as (broker, talk):
        producer = RawProducer(talk)
        assert await producer.initialize() == 0
        assert await producer.add_offsets("g") == 0
        identity = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}
        InternalTopic(CONSUMER_OFFSETS, broker).append(0, [(b"\0\x63", b"v")], **identity)
        broker.transactions.put(known(broker).ended(True, 0, 2, lambda: 99))
    async with opened(files, autojump_clock) as (broker, _):
        log = broker.logs.logs[TopicPartition(CONSUMER_OFFSETS, 0)]
        assert log.last_stable_offset == log.log_end_offset == 2


@pytest.mark.parametrize("state", [S.ONGOING, S.COMPLETE_COMMIT, S.COMPLETE_ABORT, None])
async def test_unknown_transactions(autojump_clock: MockClock, state: TransactionState | None) -> None:
    """A power cut took the state or a marker: what was committed is committed, what is open joins."""
    files = MemoryFiles()
    async with killed(files, autojump_clock) as (broker, talk):
        await written(talk)
        before = known(broker)
        if state is S.ONGOING:
            broker.transactions.put(attrs.evolve(before, partitions=frozenset({T0})))
        elif state is None:
            broker.transactions._append("tx", None)
        else:
            ended = before.ended(state is S.COMPLETE_COMMIT, 5, 2, lambda: 99)
            broker.transactions.put(ended.completed(5))
    async with opened(files, autojump_clock) as (broker, _):
        if state is S.ONGOING:
            assert known(broker).partitions == {T0, T1}
            return
        expected = [b"v"] if state is S.COMPLETE_COMMIT else []
        assert committed_values(broker, "t", 0) == committed_values(broker, "t", 1) == expected
        log = broker.logs.logs[T1]
        assert log.last_stable_offset == log.high_watermark


async def test_a_copy_without_states_is_left_alone(autojump_clock: MockClock) -> None:
    """Its cluster's coordinator may still decide what is open in it."""
    files = MemoryFiles()
    async with opened(files, autojump_clock) as (broker, talk):
        await written(talk)
        topic = broker.topics.get(TRANSACTION_STATE)
        assert topic is not None
        broker.topics.delete(topic)
    async with opened(files, autojump_clock) as (broker, _):
        assert broker.logs.logs[T0].last_stable_offset == 0


# --- the disk -----------------------------------------------------------------------------------------------


async def test_states_that_the_disk_refuses(autojump_clock: MockClock) -> None:
    """16, and nothing has changed: the client looks for its coordinator and asks again."""
    files = MemoryFiles()
    async with opened(files, autojump_clock) as (broker, talk):
        producer = await written(talk)
        before = known(broker)
        for _ in range(2):
            files.inject(Fault(errno.ENOSPC))
            assert await producer.end() == 16
            files.heal()
            assert known(broker) == before
        assert await producer.end() == 0
        assert committed_values(broker) == [b"v"]


async def test_markers_that_the_disk_refuses(autojump_clock: MockClock) -> None:
    """The decision stands, the producer waits (51), and the markers follow when there is room again."""
    files = MemoryFiles()
    async with opened(files, autojump_clock) as (broker, talk):
        producer = await written(talk)
        files.inject(Fault(errno.ENOSPC, after=1, times=None))
        assert await producer.end() == 0
        assert known(broker).state is S.PREPARE_COMMIT
        for _ in range(3):
            await trio.sleep(2)
            assert await producer.write(b"w") == 51
        files.heal()
        await trio.sleep(10)
        assert known(broker).state is S.COMPLETE_COMMIT
        assert committed_values(broker, "t", 0) == committed_values(broker, "t", 1) == [b"v"]
        assert await producer.write(b"w") == 0


async def test_refused_markers_that_another_coordinator_owes_keep_no_loop_spinning(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused completion of another coordinator is not due here; the loop would have spun."""
    files = MemoryFiles()
    async with opened(files, autojump_clock) as (broker, talk):
        producer = await written(talk)
        files.inject(Fault(errno.ENOSPC, after=1, times=None))
        assert await producer.end() == 0
        await trio.sleep(0.5)
        for partition in (0, 1):
            broker.transactions.resign(partition)
        files.heal()
        turns, step = [], broker.transactions.step

        def counted(now_ms: float, wall_ms: int) -> float:
            turns.append(now_ms)
            assert len(turns) < 100
            return step(now_ms, wall_ms)

        monkeypatch.setattr(broker.transactions, "step", counted)
        await trio.sleep(30)
        assert 0 < len(turns) < 10


async def test_markers_wait_until_the_decision_is_safe(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With flush.messages=1 a power cut between the two would leave half of it."""
    gate = trio.Event()
    run_async = FlushRound.run_async

    async def gated(round_: FlushRound) -> None:
        await gate.wait()
        await run_async(round_)

    async with opened(MemoryFiles(), autojump_clock, log_flush_interval_messages=1) as (broker, talk):
        producer = await written(talk)
        monkeypatch.setattr(FlushRound, "run_async", gated)
        ends = [broker.logs.logs[each].log_end_offset for each in (T0, T1)]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(producer.end)
            await wait_all_tasks_blocked()
            assert known(broker).state is S.PREPARE_COMMIT
            assert [broker.logs.logs[each].log_end_offset for each in (T0, T1)] == ends
            with pytest.raises(Exception, match="being completed"):
                broker.transactions.initialize("tx", 1000)
            gate.set()
        assert known(broker).state is S.COMPLETE_COMMIT
        assert [broker.logs.logs[each].recovery_point for each in (T0, T1)] == [2, 2]


async def test_a_marker_was_not_synced_while_another_partition_waited_for_its_replicas(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Consumers had seen it, and a power cut took it: the broker waited for one partition after the other."""
    async with opened(MemoryFiles(), autojump_clock, log_flush_interval_messages=1) as (broker, talk):
        producer = await written(talk)
        logs = [broker.logs.logs[each] for each in (T0, T1)]
        wait_safe = markers.wait_safe

        async def for_ever(log: Log, *given: Any, **options: Any) -> None:
            if log in logs:
                await trio.sleep_forever()
            await wait_safe(log, *given, **options)

        monkeypatch.setattr(markers, "wait_safe", for_ever)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(producer.end)
            await trio.sleep(1)
            assert [log.log_end_offset for log in logs] == [2, 2]
            assert [log.recovery_point for log in logs] == [2, 2]
            nursery.cancel_scope.cancel()


async def test_a_batch_is_answered_when_its_partition_has_joined_safely(autojump_clock: MockClock) -> None:
    """Produce 12 appends to two logs, and its answer waits for both."""
    options = {"log_flush_interval_messages": 1}
    async with opened(MemoryFiles(), autojump_clock, **options) as (broker, talk):
        producer = RawProducer(talk)
        assert await producer.initialize() == 0
        assert await producer.write(b"v") == 0
        log = broker.transactions.log_of("tx")
        assert log.recovery_point == log.log_end_offset


async def test_the_next_transaction_need_not_wait(autojump_clock: MockClock) -> None:
    """EndTxn is answered behind the markers' sync: a client that then met 51 would wait its whole backoff."""
    async with opened(MemoryFiles(), autojump_clock, log_flush_interval_messages=1) as (_, talk):
        producer = await written(talk)
        for _ in range(5):
            assert await producer.end() == 0
            assert await producer.write(b"next") == 0


async def test_markers_that_fail_their_sync_are_not_waited_for(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The decision is safe, so the producer hears of it; its partition is read-only until the next start."""
    files, run_async = MemoryFiles(), FlushRound.run_async

    async def refused(round_: FlushRound) -> None:
        if any("/safe-0/" in file.path for file in round_.unsynced):
            raise KafkaStorageError("the disk does not want to")
        await run_async(round_)

    async with killed(files, autojump_clock) as (broker, talk):
        broker.topics.create("safe", 1, {"flush.messages": "1"})
        producer = RawProducer(talk)
        assert await producer.initialize() == 0
        assert await producer.write(b"v", topic="safe") == 0
        monkeypatch.setattr(FlushRound, "run_async", refused)
        assert await producer.end() == 0
        await trio.sleep(5)
        assert known(broker).state is S.PREPARE_COMMIT
    monkeypatch.undo()
    async with opened(files, autojump_clock) as (broker, _):
        await trio.sleep(1)
        assert known(broker).state is S.COMPLETE_COMMIT
        assert committed_values(broker, "safe") == [b"v"]


async def test_a_failed_sync_of_the_states_is_reported(autojump_clock: MockClock) -> None:
    """Nobody is told that it is done; the log is read-only from then on, and the next start finishes."""
    files = MemoryFiles()
    async with killed(files, autojump_clock, log_flush_interval_messages=1) as (broker, talk):
        producer = await written(talk)
        files.inject(Fault(errno.EIO, after=1))
        assert await producer.end() == 16
        files.heal()
        assert known(broker).state is S.PREPARE_COMMIT
    async with opened(files, autojump_clock) as (broker, _):
        assert committed_values(broker, "t", 0) == committed_values(broker, "t", 1) == [b"v"]


async def test_other_producers_requests_are_not_mixed_up(autojump_clock: MockClock) -> None:
    """Two transactional ids on one connection have nothing to do with each other."""
    async with opened(MemoryFiles(), autojump_clock) as (broker, talk):
        producers = [RawProducer(talk, name) for name in ("a", "b")]
        for producer in producers:
            assert await producer.initialize() == 0
            assert await producer.write(producer.transactional_id.encode()) == 0
        assert await producers[0].end() == 0
        assert committed_values(broker) == [b"a"]
        assert await producers[1].end(is_commit=False) == 0
        assert committed_values(broker) == [b"a"]
        request = produce_request("t", None, transactional_id="a")
        assert (await talk.ask(request, 12)).responses[0].partition_responses[0].error_code == 87
        with pytest.raises(Exception, match="writes with producer id"):
            broker.transactions.end(
                "a", ProducerIdentity(producers[1].producer_id, 0), is_commit=True, client_version=2
            )
