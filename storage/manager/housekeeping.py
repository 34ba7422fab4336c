"""The scheduled tasks of a data directory, as one table (``TASKS``).

Kafka's ``LogManager.startup`` and ``ReplicaManager`` schedule the same under the same settings. Time comes
from outside: ``Housekeeping.step`` does what is due and returns when it wants to be called again, so that
tests run days in milliseconds.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

import trio

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.values import TopicPartition
from splashdam.storage.background import Now, log_failures
from splashdam.storage.cleaning.log_cleaner import LogCleaner
from splashdam.storage.directories.checkpoints import RootCheckpoints, SpreadCheckpoints
from splashdam.storage.log import Log, LogState
from splashdam.storage.manager.deletions import DirectoryRemovals
from splashdam.storage.manager.moves import LogMoves
from splashdam.storage.settings import DirectorySettings

_logger = logging.getLogger(__name__)

_PAUSE_MS = 1_000
"""Pause between two tries of a task that is due by an event: the disk may go on refusing."""

_SHORTEST_INTERVAL_MS = 20
"""Shortest interval between two scans of all logs, which take milliseconds with thousands of logs."""


class HousekeptLogs(Protocol):
    """What the tasks need of the log manager."""

    @property
    def settings(self) -> DirectorySettings: ...

    @property
    def logs(self) -> Mapping[TopicPartition, Log]: ...

    @property
    def logs_with_work(self) -> dict[Log, None]: ...

    @property
    def smallest_flush_ms(self) -> int: ...

    @property
    def checkpoints(self) -> RootCheckpoints | SpreadCheckpoints: ...

    @property
    def cleaner(self) -> LogCleaner: ...

    @property
    def moves(self) -> LogMoves: ...

    @property
    def removals(self) -> DirectoryRemovals: ...

    @property
    def on_log_start(self) -> Callable[[TopicPartition], None]: ...

    def write_high_watermarks(self) -> None:
        """Checkpoint the high watermarks of all logs."""
        ...


class ScheduledTask(NamedTuple):
    """One row of the table.

    Attributes:
        name: for log lines.
        due_ms: returns when it is due, given when it last ran (None for never) and when the broker started.
        run: runs it; what it raises is logged.
        covered_by: another task that does the same and more; if both are due, only that one runs.
    """

    name: str
    due_ms: Callable[[HousekeptLogs, float | None, float], float]
    run: Callable[[HousekeptLogs, Now], Awaitable[None]]
    covered_by: str = ""


OLD_SEGMENTS, COMPACTION = "looking for old segments", "compacting logs"


class Housekeeping:
    """Runs the tasks; knows when each ran last."""

    def __init__(self, manager: HousekeptLogs) -> None:
        self._manager = manager
        self._done_ms: dict[str, float] = {}
        self._started_ms: float | None = None

    async def step(self, now_ms: float, wall_ms: int) -> float:
        """Run the tasks that are due; return the milliseconds until the next one is."""
        started_ms = self._started_ms = now_ms if self._started_ms is None else self._started_ms
        done: set[str] = set()
        for task in TASKS:
            if task.due_ms(self._manager, self._done_ms.get(task.name), started_ms) <= now_ms:
                # Before the task: one that fails is not due again any sooner.
                self._done_ms[task.name] = now_ms
                if task.covered_by in done:
                    continue
                with log_failures(task.name):
                    await task.run(self._manager, Now(now_ms, wall_ms))
                    done.add(task.name)
        work = self._manager.logs_with_work
        for log in [log for log in work if not _has_work(log)]:
            del work[log]
        due = (task.due_ms(self._manager, self._done_ms.get(task.name), started_ms) for task in TASKS)
        return max(0.0, min(due) - now_ms)

    def due_in_ms(self, name: str, now_ms: float) -> float:
        """Return the milliseconds until a task is due; infinity if it never is."""
        task = next(each for each in TASKS if each.name == name)
        started_ms = now_ms if self._started_ms is None else self._started_ms
        return max(0.0, task.due_ms(self._manager, self._done_ms.get(name), started_ms) - now_ms)


# --- when ---------------------------------------------------------------------------------------------------


def _every(
    interval: Callable[[DirectorySettings], int],
) -> Callable[[HousekeptLogs, float | None, float], float]:
    """Due at an interval; the first time after ``log.initial.task.delay.ms`` if that is shorter."""

    def due_ms(manager: HousekeptLogs, done_ms: float | None, started_ms: float) -> float:
        interval_ms = interval(manager.settings)
        if done_ms is None:
            return started_ms + min(interval_ms, manager.settings.log_initial_task_delay_ms)
        return done_ms + interval_ms

    return due_ms


def _on_event(
    event_ms: Callable[[HousekeptLogs], float],
) -> Callable[[HousekeptLogs, float | None, float], float]:
    """Due at an event, but not before ``_PAUSE_MS`` after the last try."""

    def due_ms(manager: HousekeptLogs, done_ms: float | None, _started_ms: float) -> float:
        return max(event_ms(manager), -math.inf if done_ms is None else done_ms + _PAUSE_MS)

    return due_ms


def _segments_wait(manager: HousekeptLogs) -> float:
    return -math.inf if any(map(_waits_for_flush, manager.logs_with_work)) else math.inf


def _waits_for_flush(log: Log) -> bool:
    return log.needs_flush and log.state is LogState.OPEN


def _first_unlink(manager: HousekeptLogs) -> float:
    return min((log.next_unlink_ms for log in manager.logs_with_work), default=math.inf)


def _has_work(log: Log) -> bool:
    return log.state is not LogState.CLOSED and (_waits_for_flush(log) or log.next_unlink_ms < math.inf)


def _flush_check(manager: HousekeptLogs, done_ms: float | None, started_ms: float) -> float:
    """Due at the interval of ``log.flush.scheduler.interval.ms`` or of the smallest ``flush.ms``.

    (Kafka uses the former alone, whose default is never; then a topic's ``flush.ms`` does nothing.)
    """
    interval_ms = min(manager.smallest_flush_ms, manager.settings.log_flush_scheduler_interval_ms)
    interval_ms = max(_SHORTEST_INTERVAL_MS, interval_ms)
    return (started_ms if done_ms is None else done_ms) + interval_ms


def _compaction(manager: HousekeptLogs, done_ms: float | None, started_ms: float) -> float:
    return manager.cleaner.due_ms(done_ms, started_ms)


# --- what ---------------------------------------------------------------------------------------------------


def _for_each_log(
    what: str,
    act: Callable[[HousekeptLogs, Log, Now], Awaitable[object]],
    among: Callable[[HousekeptLogs, Now], Iterable[Log]] = lambda manager, _: manager.logs.values(),
) -> Callable[[HousekeptLogs, Now], Awaitable[None]]:
    """Run ``act`` for one log after the other; a failure of one does not stop the others."""

    async def run(manager: HousekeptLogs, now: Now) -> None:
        # A copy, because logs come and go during the awaits.
        for log in list(among(manager, now)):
            with log_failures(f"{what} of {log.topic_partition}"):
                await act(manager, log, now)

    return run


async def _flush(_manager: HousekeptLogs, log: Log, now: Now) -> None:
    await log.sync(now.wall_ms)


def _waiting(manager: HousekeptLogs, _now: Now) -> Iterable[Log]:
    return filter(_waits_for_flush, manager.logs_with_work)


def _flush_due(manager: HousekeptLogs, now: Now) -> Iterable[Log]:
    return (log for log in manager.logs.values() if log.flusher.is_due(now.wall_ms))


def _with_work(manager: HousekeptLogs, _now: Now) -> Iterable[Log]:
    return manager.logs_with_work


async def _delete_old_segments(manager: HousekeptLogs, log: Log, now: Now) -> None:
    before = log.log_start_offset
    try:
        log.delete_old_segments(wall_ms=now.wall_ms, now_ms=now.now_ms)
    finally:
        if log.log_start_offset != before:
            manager.on_log_start(log.topic_partition)
    await trio.lowlevel.checkpoint()  # let clients be served between two of thousands of partitions


async def _unlink_deleted(_manager: HousekeptLogs, log: Log, now: Now) -> None:
    log.unlink_deleted(now.now_ms)


async def _write_recovery_points(manager: HousekeptLogs, _now: Now) -> None:
    manager.checkpoints.write_recovery_points(manager.logs)


async def _write_log_starts(manager: HousekeptLogs, _now: Now) -> None:
    manager.checkpoints.write_log_starts(manager.logs)


async def _write_high_watermarks(manager: HousekeptLogs, _now: Now) -> None:
    manager.write_high_watermarks()


async def _expire_producers(manager: HousekeptLogs, now: Now) -> None:
    for log in manager.logs.values():
        log.producers.expire(now.wall_ms, manager.settings.producer_id_expiration_ms)


def _moving(manager: HousekeptLogs, _done_ms: float | None, _started_ms: float) -> float:
    return manager.moves.due_ms()


async def _move(manager: HousekeptLogs, now: Now) -> None:
    await manager.moves.work(now)


def _unfinished(manager: HousekeptLogs) -> float:
    return -math.inf if manager.removals.has_unfinished_work else math.inf


async def _retry_removals(manager: HousekeptLogs, _now: Now) -> None:
    for _ in manager.removals.steps():
        await trio.lowlevel.checkpoint()
    try:
        manager.removals.retry()
    except KafkaStorageError as error:
        # Whoever was refused first has logged a warning; this repeats every second.
        _logger.debug("changes of topics are not on disk yet: %s", error.message)


async def _compact(manager: HousekeptLogs, now: Now) -> None:
    await manager.cleaner.work(manager.logs, now)


TASKS = (
    ScheduledTask(
        "flushing closed segments",
        _on_event(_segments_wait),
        _for_each_log("flushing a segment", _flush, among=_waiting),
    ),
    ScheduledTask(
        "looking for logs to flush",
        _flush_check,
        _for_each_log("flushing the log", _flush, among=_flush_due),
    ),
    ScheduledTask(
        OLD_SEGMENTS,
        _every(lambda settings: settings.log_retention_check_interval_ms),
        _for_each_log("removing old segments", _delete_old_segments),
    ),
    ScheduledTask(
        "unlinking removed segments",
        _on_event(_first_unlink),
        _for_each_log("unlinking removed segments", _unlink_deleted, among=_with_work),
    ),
    ScheduledTask(
        "checkpointing recovery points",
        _every(lambda settings: settings.log_flush_offset_checkpoint_interval_ms),
        _write_recovery_points,
    ),
    ScheduledTask(
        "checkpointing log start offsets",
        _every(lambda settings: settings.log_flush_start_offset_checkpoint_interval_ms),
        _write_log_starts,
        covered_by="checkpointing recovery points",
    ),
    ScheduledTask(
        "checkpointing high watermarks",
        _every(lambda settings: settings.replica_high_watermark_checkpoint_interval_ms),
        _write_high_watermarks,
    ),
    ScheduledTask(
        "forgetting silent producers",
        _every(lambda settings: settings.producer_id_expiration_check_interval_ms),
        _expire_producers,
    ),
    ScheduledTask("removing directories of deleted topics", _on_event(_unfinished), _retry_removals),
    ScheduledTask(COMPACTION, _compaction, _compact),
    ScheduledTask("moving logs to other directories", _moving, _move),
)
