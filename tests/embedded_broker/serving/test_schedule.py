"""The broker's scheduled tasks in virtual time: each is driven by the clock, and none stops another.

Each test names ``autojump_clock`` itself: trio runs on the machine's clock otherwise.
"""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
import trio
import trio.lowlevel
from support.broker.broker_talk import batch
from support.storage.compacted_logs import put
from support.storage.logs import read_headers
from trio.testing import MockClock

from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.values import TopicPartition
from splashdam.storage.background import Now
from splashdam.storage.files.memory import Fault, MemoryFiles
from splashdam.storage.log import Log
from splashdam.storage.manager import housekeeping
from splashdam.storage.manager.housekeeping import TASKS, ScheduledTask
from splashdam.testing.clock import VirtualClock

DAY_S = 24 * 60 * 60
T0 = TopicPartition("t", 0)
Open = Callable[..., AbstractAsyncContextManager[Broker]]


@pytest.fixture
def opened(files: MemoryFiles, autojump_clock: MockClock) -> Open:
    """Opens a broker without a port, with a topic ``t``; options are the broker's."""

    @asynccontextmanager
    async def open_it(configs: dict[str, str] | None = None, **options: Any) -> AsyncIterator[Broker]:
        clock = VirtualClock(autojump_clock)
        async with open_broker("/data", port=None, clock=clock, files=files, **options) as broker:
            broker.topics.create("t", 1, configs or {})
            await trio.lowlevel.checkpoint()
            yield broker

    return open_it


def append(broker: Broker, value: bytes = b"x" * 50, **fields: Any) -> Log:
    log = broker.logs.logs[T0]
    log.append_as_leader(batch(value, **fields), now_ms=broker.clock.wall_ms())
    return log


def checkpoint(files: MemoryFiles, name: str) -> bytes | None:
    return files.read_bytes(f"/data/{name}-checkpoint")


async def test_a_closed_segment_is_flushed_soon(autojump_clock: MockClock, opened: Open) -> None:
    """In the background: the append that closed it does not wait."""
    async with opened({"segment.bytes": "150"}) as broker:
        append(broker)
        log = append(broker)
        assert (log.needs_flush, log.recovery_point) == (True, 0)
        await trio.sleep(0.06)
        assert (log.needs_flush, log.recovery_point) == (False, 2)


@pytest.mark.parametrize(
    ("configs", "options"),
    [
        ({"flush.ms": "700"}, {}),
        ({}, {"log_flush_interval_ms": 700}),
        ({}, {"log_flush_scheduler_interval_ms": 700}),
    ],
    ids=["topic", "broker", "scheduler"],
)
async def test_logs_are_flushed_when_their_time_has_come(
    autojump_clock: MockClock, opened: Open, configs: dict[str, str], options: dict[str, int]
) -> None:
    """flush.ms of the topic, log.flush.interval.ms, or else log.flush.scheduler.interval.ms."""
    async with opened(configs, **options) as broker:
        log = append(broker)
        await trio.sleep(0.6)
        assert log.recovery_point == 0
        await trio.sleep(0.9)
        assert log.recovery_point == 1


async def test_nothing_is_flushed_by_default(autojump_clock: MockClock, opened: Open) -> None:
    """The system decides that, as for Kafka."""
    async with opened() as broker:
        log = append(broker)
        await trio.sleep(DAY_S / 8)
        assert log.recovery_point == 0


async def test_old_segments_are_removed_and_their_files_unlinked(
    autojump_clock: MockClock, opened: Open, files: MemoryFiles
) -> None:
    """log.retention.check.interval.ms, then file.delete.delay.ms of the topic."""
    configs = {"retention.ms": "1000", "file.delete.delay.ms": "7000"}
    async with opened(configs, log_retention_check_interval_ms=20_000) as broker:
        log = append(broker)
        await trio.sleep(19)
        assert log.log_start_offset == 0
        await trio.sleep(2)
        assert log.log_start_offset == 1
        await trio.sleep(5)
        assert any(name.endswith(".log.deleted") for name, _ in files.list_directory("/data/t-0"))
        await trio.sleep(3)
        assert not any(name.endswith(".deleted") for name, _ in files.list_directory("/data/t-0"))


async def test_compacted_topics_are_compacted(
    autojump_clock: MockClock, opened: Open, files: MemoryFiles
) -> None:
    """log.cleaner.backoff.ms; the checkpoint is written when it is done."""
    configs = {"cleanup.policy": "compact", "segment.bytes": "150"}
    async with opened(configs, log_cleaner_backoff_ms=20_000) as broker:
        log = broker.logs.logs[T0]
        for _ in range(4):
            put(log, (b"k", b"x" * 50))
        await trio.sleep(19)
        assert len(read_headers(log)) == 4
        await trio.sleep(2)
        assert [header.base_offset for header in read_headers(log)] == [2, 3]  # the active segment stays
        assert checkpoint(files, "cleaner-offset") == b"0\n1\nt 0 3\n"


async def test_checkpoints_are_written(autojump_clock: MockClock, opened: Open, files: MemoryFiles) -> None:
    """High watermarks, recovery points and log starts, each by its interval; starts also before points."""
    options = {
        "replica_high_watermark_checkpoint_interval_ms": 2_000,
        "log_flush_offset_checkpoint_interval_ms": 4_000,
        "log_flush_start_offset_checkpoint_interval_ms": 6_000,
    }
    names = ("replication-offset", "recovery-point-offset", "log-start-offset")
    async with opened(**options) as broker:
        for _ in range(3):
            log = append(broker)
        log.flush()
        log.advance_log_start(1)
        for seconds, offsets in ((1, (None,) * 3), (3, (3, None, None)), (5, (3, 3, 1)), (7, (3, 3, 2))):
            await trio.sleep(seconds - trio.current_time())
            assert [checkpoint(files, name) for name in names] == [
                None if offset is None else b"0\n1\nt 0 %d\n" % offset for offset in offsets
            ]
            if seconds == 5:
                log.advance_log_start(2)


async def test_rare_tasks_begin_after_the_initial_delay(
    autojump_clock: MockClock, opened: Open, files: MemoryFiles
) -> None:
    """log.initial.task.delay.ms, 30 s."""
    async with opened() as broker:
        append(broker)
        await trio.sleep(29)
        assert checkpoint(files, "recovery-point-offset") is None
        await trio.sleep(2)
        assert checkpoint(files, "recovery-point-offset") is not None


async def test_silent_producers_are_forgotten(autojump_clock: MockClock, opened: Open) -> None:
    """producer.id.expiration.ms, looked at by producer.id.expiration.check.interval.ms."""
    options = {"producer_id_expiration_ms": 10_000, "producer_id_expiration_check_interval_ms": 4_000}
    async with opened(**options) as broker:
        log = append(broker, producer_id=7, producer_epoch=0, base_sequence=0)
        await trio.sleep(9)
        assert len(log.producers) == 1
        await trio.sleep(4)
        assert len(log.producers) == 0


async def test_a_task_that_raises_is_logged_and_the_schedule_goes_on(
    autojump_clock: MockClock,
    opened: Open,
    files: MemoryFiles,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whatever it raises; it is tried again when it is due next."""
    calls: list[float] = []

    async def fail(_manager: object, now: Now) -> None:
        calls.append(now.now_ms)
        raise ZeroDivisionError("a mistake")

    broken = ScheduledTask("the broken one", lambda _manager, done, start: (done or start) + 1000, fail)
    monkeypatch.setattr(housekeeping, "TASKS", (broken, *TASKS))
    async with opened() as broker:
        append(broker)
        await trio.sleep(5.5)
        assert len(calls) == 5
        assert checkpoint(files, "replication-offset") is not None
    assert "the broken one failed" in caplog.text
    assert "ZeroDivisionError" in caplog.text


async def test_a_disk_that_refuses_is_asked_again_with_a_pause(
    autojump_clock: MockClock, opened: Open, files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    """Not in a loop: what is due by what happened waits a second after each try."""
    configs = {"retention.bytes": "0", "file.delete.delay.ms": "0"}
    async with opened(configs, log_retention_check_interval_ms=1000) as broker:
        log = append(broker)
        await trio.sleep(1.0005)
        assert log.log_start_offset == 1
        files.inject(Fault(errno.EIO, times=None))
        await trio.sleep(4)
        files.heal()
        assert caplog.text.count("unlinking removed segments of t-0") <= 5
        await trio.sleep(2)
        assert log.next_unlink_ms == float("inf")


@pytest.mark.parametrize("seconds", [6, 0], ids=["while it runs", "right before its end"])
async def test_a_broker_whose_directory_is_removed_ends_with_an_error(
    autojump_clock: MockClock, opened: Open, files: MemoryFiles, seconds: float
) -> None:
    """It went on, took records that nobody could read again, and ended as if nothing was."""

    async def use() -> None:
        async with opened() as broker:
            append(broker)
            files.rename("/data", "/elsewhere")
            await trio.sleep(seconds)
            assert not seconds

    with pytest.raises(KafkaStorageError, match="/data was removed while the broker used it"):
        await use()


@pytest.mark.parametrize(
    ("own", "expected"), [(None, KafkaStorageError), (ZeroDivisionError("x"), ZeroDivisionError)], ids=str
)
async def test_an_end_that_is_not_clean_is_an_error(
    autojump_clock: MockClock,
    opened: Open,
    files: MemoryFiles,
    own: Exception | None,
    expected: type[Exception],
) -> None:
    """The caller of the broker gets the error; an error of the block itself has precedence."""

    async def use() -> None:
        async with opened() as broker:
            append(broker)
            files.inject(Fault(errno.EIO, times=None))
            if own is not None:
                raise own

    with pytest.raises(expected, match=r"/data was not closed in order.*could not truncate|x"):
        await use()
