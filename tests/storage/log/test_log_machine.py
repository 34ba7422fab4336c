"""A log against a plain list: appends, rolls, flushes, retention, DeleteRecords, crashes, a failing disk."""

from __future__ import annotations

import errno
from random import Random

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.running.examples import examples
from support.storage.logs import NOW_MS, batch, open_log, read_headers, values_of

from splashdam.model.broker_errors import (
    InvalidProducerEpochError,
    KafkaStorageError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceNumberError,
)
from splashdam.record.batch import iter_headers
from splashdam.storage.files.memory import Fault, MemoryFiles
from splashdam.storage.log import Log, LogState
from splashdam.storage.settings import LogSettings

SETTINGS = LogSettings(
    segment_bytes=700,
    index_interval_bytes=150,
    segment_index_bytes=80,
    retention_bytes=2000,
    retention_ms=10_000,
    file_delete_delay_ms=100,
)
producers = st.integers(0, 2)
faults = st.builds(
    Fault,
    st.sampled_from([errno.ENOSPC, errno.EIO]),
    after=st.integers(0, 6),
    times=st.integers(1, 3),
    landed_bytes=st.integers(0, 90),
)


@attrs.frozen
class Written:
    """One batch of the model."""

    producer_id: int
    epoch: int
    sequence: int
    base_offset: int
    values: tuple[bytes, ...]

    @property
    def next_offset(self) -> int:
        return self.base_offset + len(self.values)

    def encoded(self) -> bytes:
        return batch(*self.values, producer_id=self.producer_id, epoch=self.epoch, sequence=self.sequence)


class LogMachine(RuleBasedStateMachine):
    """The model is the list of batches that were acknowledged, and how many of them were flushed."""

    def __init__(self) -> None:
        super().__init__()
        self.files = MemoryFiles()
        self.written: list[Written] = []
        self.flushed_offset = 0
        self.flushed_start = 0  # what the checkpoint says of the start, where it says that much was flushed
        self.doubtful: list[Written] = []  # refused, but the bytes of one may have landed and still be there
        self.refused_by_disk: dict[int, Written] = {}  # of each producer, while its retry may come
        self.counter = 0
        self.gap_end = 0  # the end of what a power cut took out of the middle, or of the end
        self.start_offset = 0
        self.gone: set[int] = set()  # removed batches whose segment a crash brought back without their bytes
        self.kept_start = 0  # what the checkpoint says
        self.forgotten_below = 0  # repeats of batches that had gone before a restart need not be known
        self.now_ms = 0
        self.log: Log

    @initialize()
    def start(self) -> None:
        self.log = open_log(self.files, settings=SETTINGS)
        self.files.sync_directory("/data")
        self.files.sync_directory("/")

    # --- the model ------------------------------------------------------------------------------------------

    @property
    def end(self) -> int:
        return max(self.gap_end, self.written[-1].next_offset if self.written else 0)

    def kept(self) -> list[Written]:
        """The readable batches: those that reach beyond the start of the log."""
        left = (each for each in self.written if each.next_offset > self.start_offset)
        return [each for each in left if each.base_offset not in self.gone]

    def of_producer(self, producer_id: int) -> list[Written]:
        mine = [each for each in self.written if each.producer_id == producer_id]
        return [each for each in mine if each.epoch == mine[-1].epoch]

    def next_batch(self, producer_id: int, count: int, *, skip: int = 0, epochs_on: int = 0) -> Written:
        """The producer's next batch; ``skip`` leaves sequence numbers out."""
        mine = self.of_producer(producer_id)
        epoch = (mine[-1].epoch if mine else 0) + epochs_on
        sequence = mine[-1].sequence + len(mine[-1].values) if mine and not epochs_on else 0
        self.counter += 1
        values = tuple(b"%d.%d" % (self.counter, number) for number in range(count))
        return Written(producer_id, epoch, sequence + skip, self.end, values)

    def lose(self, recovery_point: int) -> None:
        """A closed segment that was not yet synced loses its end; the one behind may be there, as in Kafka.

        Where the recovery point is known the one behind goes, too. What the producers of those batches have
        sent is known where a snapshot tells of it.
        """
        there = {header.base_offset for header in read_headers(self.log)}
        end = self.log.log_end_offset
        lost = [each for each in self.written if self.flushed_offset <= each.base_offset < end]
        lost = [each for each in lost if each.base_offset not in there]
        assert not lost or not recovery_point or lost[-1].next_offset <= self.start_offset
        if lost:
            known = {entry.producer_id: (entry.epoch, entry.last_sequence) for entry in self.log.producers}
            told = [
                each for each in lost if (each.epoch, each.sequence) <= known.get(each.producer_id, (-1, -1))
            ]
            self.gone |= {each.base_offset for each in told}
            self.written = [each for each in self.written if each not in lost or each in told]
            self.gap_end = lost[-1].next_offset

    def take_over_what_survived(self) -> None:
        """After a crash: a prefix, or everything and the one batch whose client was told to try again."""
        end, values = self.log.log_end_offset, values_of(self.log)
        self.written += [
            each
            for each in self.doubtful
            if each.next_offset == end and (*values[-len(each.values) :],) == each.values
        ]
        self.doubtful.clear()
        self.written = [each for each in self.written if each.next_offset <= end]
        assert self.end == end
        self.take_over_start()

    def take_over_start(self) -> None:
        """A crash may bring removed segments back, whole or not, but none below the start that was kept."""
        before, start = self.start_offset, self.log.log_start_offset
        assert self.kept_start <= start <= max(before, self.kept_start)
        there = {header.base_offset for header in read_headers(self.log)}
        back = {each.base_offset for each in self.written if start < each.next_offset <= before}
        self.gone |= back - there
        self.start_offset = start
        forgotten_below = before if back - there else self.log.segments[0].base_offset
        self.forgotten_below = max(forgotten_below, self.gap_end)

    def reopen(self, *, clean: bool = False, recovery_point: int = 0) -> None:
        self.refused_by_disk.clear()
        self.log = open_log(
            self.files,
            settings=SETTINGS,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=self.kept_start,
        )

    # --- rules ----------------------------------------------------------------------------------------------

    @rule(producer_id=producers, count=st.integers(1, 5), epochs_on=st.sampled_from([0, 0, 0, 1]))
    def append(self, producer_id: int, count: int, epochs_on: int) -> None:
        wanted = self.next_batch(producer_id, count, epochs_on=epochs_on)
        result = self.log.append_as_leader(wanted.encoded(), now_ms=NOW_MS)
        assert (result.base_offset, result.duplicate) == (self.end, False)
        self.written.append(wanted)
        self.doubtful.clear()
        self.refused_by_disk.pop(producer_id, None)
        assert result.last_offset == self.end - 1

    @rule(producer_id=producers, count=st.integers(1, 3), fault=faults)
    def append_on_a_failing_disk(self, producer_id: int, count: int, fault: Fault) -> None:
        wanted = self.next_batch(producer_id, count)
        self.files.inject(fault)
        try:
            self.log.append_as_leader(wanted.encoded(), now_ms=NOW_MS)
        except KafkaStorageError:
            assert self.log.log_end_offset == self.end
            self.doubtful.append(wanted)
            self.refused_by_disk[producer_id] = wanted
        else:
            self.written.append(wanted)
            self.doubtful.clear()
            self.refused_by_disk.pop(producer_id, None)
        self.files.heal()

    @rule(producer_id=producers, back=st.integers(1, 9))
    def repeat(self, producer_id: int, back: int) -> None:
        mine = self.of_producer(producer_id)
        if back > len(mine):
            return
        earlier = mine[-back]
        if earlier.base_offset < self.forgotten_below and back > 1:
            return
        if back <= 5:
            result = self.log.append_as_leader(earlier.encoded(), now_ms=NOW_MS)
            assert result.duplicate
            assert (result.base_offset, result.last_offset) == (earlier.base_offset, earlier.next_offset - 1)
        else:
            self.refused(earlier, OutOfOrderSequenceNumberError)

    @rule(producer_id=producers, skip=st.integers(1, 9))
    def gap(self, producer_id: int, skip: int) -> None:
        if self.of_producer(producer_id):
            wanted, earlier = (
                self.next_batch(producer_id, 1, skip=skip),
                self.refused_by_disk.get(producer_id),
            )
            is_behind_it = earlier is not None and earlier.epoch == wanted.epoch
            self.refused(wanted, KafkaStorageError if is_behind_it else OutOfOrderSequenceNumberError)

    @rule(producer_id=producers)
    def older_epoch(self, producer_id: int) -> None:
        mine = self.of_producer(producer_id)
        if mine and mine[-1].epoch > 0:
            stale = attrs.evolve(self.next_batch(producer_id, 1), epoch=mine[-1].epoch - 1)
            self.refused(stale, InvalidProducerEpochError)

    def refused(self, wanted: Written, error: type[Exception]) -> None:
        try:
            self.log.append_as_leader(wanted.encoded(), now_ms=NOW_MS)
        except error:
            return
        raise AssertionError(f"{wanted} was taken")

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW_MS)

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.flushed_offset = self.end
        self.flushed_start = self.log.log_start_checkpoint or 0
        self.doubtful.clear()
        assert self.log.recovery_point == self.end

    @rule(offset=st.integers(-2, 120), max_bytes=st.integers(1, 2000), bound=st.integers(0, 120))
    def read(self, offset: int, max_bytes: int, bound: int) -> None:
        if not self.start_offset <= offset <= self.end:
            try:
                self.log.read(offset, max_bytes)
            except OffsetOutOfRangeError:
                return
            raise AssertionError("an offset outside the log was read")
        bound = max((each.next_offset for each in self.written if each.next_offset <= bound), default=0)
        data = self.log.read(offset, max_bytes, up_to=bound).read()
        bases = [header.base_offset for _, header in iter_headers(data)]
        expected = [each.base_offset for each in self.kept() if offset < each.next_offset <= bound]
        assert bases == expected[: len(bases)]
        assert bool(bases) == bool(expected)
        assert len(data) <= max_bytes or len(bases) == 1

    @rule(wall_ms=st.sampled_from([NOW_MS, NOW_MS + 20_000]), fault=st.none() | faults)
    def retention(self, wall_ms: int, fault: Fault | None) -> None:
        if fault is not None:
            self.files.inject(fault)
        try:
            self.log.delete_old_segments(wall_ms=wall_ms, now_ms=self.now_ms)
        except KafkaStorageError:
            assert fault is not None
        else:
            assert fault is not None or self.log.size_bytes <= 2000 + 700
            assert fault is not None or wall_ms == NOW_MS or self.log.size_bytes == 0
        self.files.heal()
        assert self.start_offset <= self.log.log_start_offset <= self.end
        self.start_offset = self.log.log_start_offset

    @rule(later_ms=st.integers(0, 150))
    def unlink(self, later_ms: int) -> None:
        self.now_ms += later_ms
        self.log.unlink_deleted(self.now_ms)
        assert self.log.next_unlink_ms > self.now_ms

    @rule(offset=st.integers(-1, 120))
    def delete_records(self, offset: int) -> None:
        if not 0 <= offset <= self.end:
            try:
                self.log.advance_log_start(offset)
            except OffsetOutOfRangeError:
                return
            raise AssertionError("the log starts outside itself")
        self.start_offset = max(self.start_offset, offset)
        assert self.log.advance_log_start(offset) == self.start_offset
        if self.start_offset > self.flushed_offset:
            self.flush()
        self.keep_start()

    @rule()
    def keep_start(self) -> None:
        self.kept_start = self.flushed_start = self.log.log_start_checkpoint or 0

    @rule()
    def restart(self) -> None:
        self.log.close()
        self.flushed_offset = self.end
        self.doubtful.clear()
        self.keep_start()
        self.reopen(clean=True)
        assert self.log.log_end_offset == self.end
        self.take_over_start()

    @rule()
    def kill(self) -> None:
        self.files.kill()
        self.kept_start = max(self.kept_start, self.flushed_start)
        self.reopen(recovery_point=self.flushed_offset)
        assert self.log.log_end_offset >= self.end
        self.take_over_what_survived()

    @rule(seed=st.none() | st.integers(0, 2**16), knows_recovery_point=st.booleans())
    def cut_power(self, seed: int | None, knows_recovery_point: bool) -> None:
        if knows_recovery_point:
            self.kept_start = max(self.kept_start, self.flushed_start)
        elif (self.log.log_start_checkpoint or 0) > self.kept_start:
            # The disk refused to rename removed segments, which no flush concerns any more, and nothing says
            # that the log began behind them.
            self.flushed_offset = self.kept_start
        self.files.crash(None if seed is None else Random(seed))
        recovery_point = self.flushed_offset if knows_recovery_point else 0
        self.reopen(recovery_point=recovery_point)
        self.gap_end = min(self.gap_end, self.log.log_end_offset)
        assert self.log.log_end_offset >= self.flushed_offset
        self.lose(recovery_point)
        self.take_over_what_survived()
        self.flush()  # what came back may stand in pages that were never synced

    @precondition(lambda self: hasattr(self, "log"))
    @invariant()
    def holds_what_the_model_holds(self) -> None:
        assert self.log.state is LogState.OPEN
        assert self.log.log_end_offset == self.end
        assert self.log.log_start_offset == self.start_offset
        assert values_of(self.log) == [value for each in self.kept() for value in each.values]


LogMachine.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
TestLogMachine = LogMachine.TestCase
