"""A log, its checkpoints, and crash after crash, at random: what was promised holds after each of them.

Unlike the state machine of test_log_machine.py this one checkpoints as a broker does, starts again with what
was written last, however old, and does not flush what a recovery has mended.
"""

from __future__ import annotations

import errno
from random import Random

import pytest
from support.running.examples import examples
from support.storage.logs import DIRECTORY, NOW_MS, TP, batch, open_log, read_all

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.storage.directories.checkpoints import RootCheckpoints
from splashdam.storage.files.memory import Fault, MemoryFiles
from splashdam.storage.log import Log, LogState
from splashdam.storage.settings import LogSettings

LENGTH = len(batch(b"00000"))
SETTINGS = LogSettings(
    segment_bytes=4 * LENGTH,
    index_interval_bytes=80,
    retention_bytes=10 * LENGTH,
    file_delete_delay_ms=0,
)
ROUNDS = examples(300)


class Life:
    """One log, and what was promised of it.

    Attributes:
        values: by offset, of what is in the log as far as anybody knows.
        flushed: below it nothing may get lost.
        deleted: below it nothing may come back.
    """

    def __init__(self, noise: Random, *, has_faults: bool) -> None:
        self.noise = noise
        self.has_faults = has_faults
        self.files = MemoryFiles()
        self.log = open_log(self.files, settings=SETTINGS)
        self.checkpoints = RootCheckpoints(self.files, "/data")
        for directory in ("/", "/data", DIRECTORY):
            self.files.sync_directory(directory)
        self.values: dict[int, bytes | None] = {}
        self.flushed = self.deleted = self.sent = 0

    def step(self) -> None:
        """One thing that a broker does, or a crash."""
        do = self.noise.choices(
            (self.append, self.roll, self.flush, self.retain, self.delete, self.checkpoint, self.crash),
            (8, 2, 2, 2, 1, 3, 3),
        )[0]
        if self.has_faults and self.noise.random() < 0.15:
            error = self.noise.choice([errno.ENOSPC, errno.EIO])
            after, times = self.noise.randint(0, 4), self.noise.randint(1, 3)
            self.files.inject(Fault(error, after=after, times=times, landed_bytes=self.noise.randint(0, 90)))
        try:
            do()
        except KafkaStorageError:
            assert self.has_faults
        self.files.heal()
        if self.log.state is not LogState.OPEN:
            self.crash()

    def append(self) -> None:
        for _ in range(self.noise.randint(1, 3)):
            value = b"%05d" % self.sent
            self.sent += 1
            offset = self.log.append_as_leader(batch(value), now_ms=NOW_MS).base_offset
            self.values[offset] = value

    def roll(self) -> None:
        self.log.roll(NOW_MS)

    def flush(self) -> None:
        self.log.flush()
        self.flushed = self.log.log_end_offset

    def retain(self) -> None:
        self.log.delete_old_segments(wall_ms=NOW_MS, now_ms=0)
        self.log.unlink_deleted(1)

    def delete(self) -> None:
        """DeleteRecords, which flushes and checkpoints before it answers."""
        offset = self.noise.randint(self.log.log_start_offset, self.log.log_end_offset)
        self.log.advance_log_start(offset)
        if self.log.log_start_offset > self.log.recovery_point:
            self.flush()
        self.checkpoints.write_log_starts({TP: self.log})
        self.deleted = max(self.deleted, offset)

    def checkpoint(self) -> None:
        self.checkpoints.write_recovery_points({TP: self.log})

    def crash(self) -> None:
        """Kills the broker, or cuts the power, and checks what the next one finds."""
        removed_below = self.log.log_start_checkpoint or 0
        fate = self.noise.random()
        if fate < 0.3:
            self.files.kill()
        else:
            self.files.crash(None if fate < 0.5 else Random(self.noise.random()))
        self.checkpoints = RootCheckpoints(self.files, "/data")
        kept = self.checkpoints.read()
        self.log = open_log(
            self.files,
            settings=SETTINGS,
            recovery_point=kept.recovery_points.get(TP, 0),
            log_start_offset=kept.log_starts.get(TP, 0),
        )
        self.check(self.log, removed_below)

    def check(self, log: Log, removed_below: int) -> None:
        """``removed_below`` is from where on removed segments may have come back without their bytes."""
        found = {record.offset: record.value for record in read_all(log)}
        assert log.log_end_offset >= self.flushed
        assert log.log_start_offset >= self.deleted
        first = max(log.log_start_offset, removed_below)
        safe = {offset: value for offset, value in self.values.items() if first <= offset < self.flushed}
        assert {offset: found.get(offset) for offset in safe} == safe
        self.values = found


@pytest.mark.parametrize("has_faults", [False, True])
def test_flushed_records_stay_and_deleted_ones_do_not_return(has_faults: bool) -> None:
    """It came back after the second crash; a torn end that a crash brought back was read by consumers."""
    for seed in range(ROUNDS):
        life = Life(Random(seed), has_faults=has_faults)
        for _ in range(life.noise.randint(10, 40)):
            life.step()
