"""Random transactional workloads against a plain model: what read_committed sees, at every moment."""

from __future__ import annotations

import os
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.running.examples import examples
from support.storage.logs import DIRECTORY, NOW_MS, batch, open_log, read_all, read_headers

from splashdam.model.broker_errors import BrokerResponseError, InvalidProducerEpochError, KafkaStorageError
from splashdam.record.batch import iter_headers
from splashdam.record.reader import read_records
from splashdam.storage.files.memory import Fault, MemoryFiles
from splashdam.storage.log import Log
from splashdam.storage.settings import LogSettings
from splashdam.storage.transaction_marker import TransactionMarker

SETTINGS = LogSettings(segment_bytes=600, index_interval_bytes=150)
TRANSACTIONAL = range(3)  # these producers write in transactions, another one without


class Write(NamedTuple):
    """A batch of so many records by a producer."""

    producer_id: int
    count: int


class End(NamedTuple):
    """The end of a producer's transaction; without an open one it is a marker that ends nothing."""

    producer_id: int
    is_commit: bool


class Restart(NamedTuple):
    """The log is opened anew, after a clean end, a kill, or a power cut that leaves what the seed says."""

    how: str
    seed: int


class Flush(NamedTuple):
    """Everything is on stable storage from here on."""


class DeleteRecords(NamedTuple):
    """DeleteRecords up to a share of what is stable; whole segments below go."""

    share: float


steps = st.lists(
    st.builds(Write, st.integers(0, 3), st.integers(1, 3))
    | st.builds(End, st.sampled_from(TRANSACTIONAL), st.booleans())
    | st.builds(Restart, st.sampled_from(["stop", "kill", "power cut"]), st.integers(0, 999))
    | st.builds(Flush)
    | st.builds(DeleteRecords, st.floats(0, 1)),
    max_size=40,
)


class Model:
    """The written records, the open transactions, and the ends of the others."""

    def __init__(self) -> None:
        self.history: list[Write | End] = []
        self.start_offset = self.flushed_offset = 0
        self.forget()

    def forget(self) -> None:
        """Before anything was written."""
        self.values: dict[int, tuple[bytes, int]] = {}  # offset → value and producer
        self.open_since: dict[int, int] = {}
        self.aborted: set[int] = set()
        self.end_offset = 0
        self.sequences: dict[int, int] = {}

    def cut(self, end_offset: int) -> None:
        """The log has lost what is behind this offset."""
        assert end_offset >= self.flushed_offset
        history, self.history = self.history, []
        self.forget()
        for step in history:
            if self.end_offset < end_offset:
                self.take(step)
        assert self.end_offset == end_offset

    def take(self, step: Write | End) -> None:
        """Takes in a step that the log has done."""
        self.history.append(step)
        if isinstance(step, Write):
            self.sequences[step.producer_id] = self.sequences.get(step.producer_id, 0) + step.count
            if step.producer_id in TRANSACTIONAL:
                self.open_since.setdefault(step.producer_id, self.end_offset)
            for value in self.next_values(step):
                self.values[self.end_offset] = (value, step.producer_id)
                self.end_offset += 1
            return
        first = self.open_since.pop(step.producer_id, None)
        if first is not None and not step.is_commit:
            mine = range(first, self.end_offset)
            self.aborted |= {at for at in mine if self.values.get(at, (b"", -1))[1] == step.producer_id}
        self.end_offset += 1

    def next_values(self, step: Write) -> list[bytes]:
        return [b"%d" % (self.end_offset + number) for number in range(step.count)]

    @property
    def stable_offset(self) -> int:
        return max(self.start_offset, min(self.open_since.values(), default=self.end_offset))

    def committed(self, from_offset: int) -> list[bytes]:
        return [
            value
            for at, (value, _) in sorted(self.values.items())
            if from_offset <= at < self.stable_offset and at not in self.aborted
        ]


class Run:
    """One example: a log and its model."""

    def __init__(self) -> None:
        self.files, self.model = MemoryFiles(), Model()
        self.kept_start = 0
        for made in self.files.make_directory(DIRECTORY):
            self.files.sync_directory(os.path.dirname(made))
        self.log = open_log(self.files, settings=SETTINGS)
        self.write(Write(3, 1))
        self.flush()  # before the first recovery point a power cut may leave holes, as in Kafka

    def do(self, step: NamedTuple) -> None:
        if isinstance(step, Write):
            self.write(step)
        elif isinstance(step, End):
            marker = TransactionMarker(step.producer_id, 0, step.is_commit, 0)
            assert self.log.append_marker(marker, now_ms=NOW_MS).base_offset == self.model.end_offset
            self.model.take(step)
        elif isinstance(step, Flush):
            self.flush()
        elif isinstance(step, DeleteRecords):
            self.flush()
            offset = int(step.share * self.model.stable_offset)
            self.model.start_offset = self.log.advance_log_start(offset)
            self.log.delete_old_segments(wall_ms=NOW_MS, now_ms=0)
            self.kept_start = self.log.log_start_checkpoint or 0
        elif isinstance(step, Restart):
            self.restart(step)

    def write(self, step: Write) -> None:
        data = batch(
            *self.model.next_values(step),
            producer_id=step.producer_id,
            sequence=self.model.sequences.get(step.producer_id, 0),
            transactional=step.producer_id in TRANSACTIONAL,
        )
        assert self.log.append_as_leader(data, now_ms=NOW_MS).base_offset == self.model.end_offset
        self.model.take(step)

    def flush(self) -> None:
        self.log.flush()
        self.model.flushed_offset = self.model.end_offset

    def restart(self, step: Restart) -> None:
        if step.how == "stop":
            self.flush()
            self.log.close()
        if step.how == "power cut":
            self.files.crash(Random(step.seed))
        else:
            self.files.kill()
        self.log = open_log(
            self.files,
            settings=SETTINGS,
            clean=step.how == "stop",
            recovery_point=self.model.flushed_offset,
            log_start_offset=self.kept_start,
        )
        if step.how == "power cut":
            self.model.cut(self.log.log_end_offset)
        self.model.start_offset = self.log.log_start_offset

    def compare(self, from_share: float) -> None:
        log, model = self.log, self.model
        assert (log.log_end_offset, log.last_stable_offset) == (model.end_offset, model.stable_offset)
        start = model.start_offset
        for offset in (start, start + int(from_share * (model.end_offset - start))):
            assert read_committed(log, offset) == model.committed(offset)


def read_committed(log: Log, from_offset: int) -> list[bytes | None]:
    """As a consumer does it: up to the last stable offset, without what the list of aborted names."""
    found: list[bytes | None] = []
    stable, offset = log.last_stable_offset, from_offset
    while offset < stable:
        piece = log.read(offset, 300, up_to=stable)
        data = memoryview(piece.read())
        piece.close()
        bound = min(log.fetch_bound(offset, len(data)), stable)
        aborted = sorted(log.aborted_transactions(offset, bound), key=lambda each: each.first_offset)
        skipped: set[int] = set()
        for position, header in iter_headers(data):
            while aborted and aborted[0].first_offset <= header.last_offset:
                skipped.add(aborted.pop(0).producer_id)
            if header.is_control:
                skipped.discard(header.producer_id)  # as an ABORT; a COMMIT finds none
            elif not (header.is_transactional and header.producer_id in skipped):
                records = read_records(data[position : position + header.size_bytes])
                found += [record.value for record in records if record.offset >= from_offset]
            offset = header.next_offset
    return found


@settings(max_examples=examples(150), deadline=None)
@given(todo=steps, from_share=st.floats(0, 1))
def test_read_committed_sees_committed_records(todo: list[NamedTuple], from_share: float) -> None:
    """After each step, from the start and from any offset; a restart changes nothing, a power cut the end."""
    run = Run()
    for step in todo:
        run.do(step)
        run.compare(from_share)
    found = {each.offset for each in read_all(run.log)}
    assert {at for at in run.model.values if at >= run.model.start_offset} <= found
    if not run.model.start_offset:
        rebuilt_equals_written(run.files, run.log)


def rebuilt_equals_written(files: MemoryFiles, log: Log) -> None:
    """The lists of aborted transactions that a recovery makes are byte for byte those that appends made."""
    log.close()
    names = [name for name, _ in files.list_directory(DIRECTORY) if name.endswith(".txnindex")]
    written = {name: files.read_bytes(f"{DIRECTORY}/{name}") for name in names}
    for name in names:
        files.unlink(f"{DIRECTORY}/{name}")
    open_log(files, settings=SETTINGS).close()
    assert {name: files.read_bytes(f"{DIRECTORY}/{name}") for name in names} == written


def test_markers_are_kafkas_byte_for_byte() -> None:
    """A COMMIT and an ABORT that a real broker wrote; base offset and leader epoch are the log's."""
    commit = bytes.fromhex(
        "00000042 00000000 02 1d0d4ffe 0030 00000000 000001a1fe042099 000001a1fe042099 0000000000000001"
        "0000 ffffffff 00000001 20 00 00 00 08 00000001 0c 000000000000 00".replace(" ", "")
    )
    written = TransactionMarker(1, 0, True, 0).encoded(0x1A1FE042099)
    assert written[8:12] + bytes(4) + written[16:] == commit
    aborted = TransactionMarker(1, 0, False, 0).encoded(0x1A1FE0420C1)
    assert aborted[17:21].hex() == "fb92895d"


def test_markers_of_the_past_are_refused() -> None:
    """An older epoch of the producer, 47, or of the coordinator, 52; nothing is written."""
    log = open_log(MemoryFiles())
    log.append_as_leader(batch(b"v", producer_id=1, epoch=3, transactional=True), now_ms=NOW_MS)
    with pytest.raises(InvalidProducerEpochError):
        log.append_marker(TransactionMarker(1, 2, True, 5), now_ms=NOW_MS)
    log.append_marker(TransactionMarker(1, 3, True, 5), now_ms=NOW_MS)
    with pytest.raises(BrokerResponseError) as caught:
        log.append_marker(TransactionMarker(1, 3, True, 4), now_ms=NOW_MS)
    assert caught.value.code == 52
    assert len(read_headers(log)) == 2


def test_a_marker_of_a_newer_epoch_fences_the_producer() -> None:
    """The coordinator bumps the epoch to end a transaction in its producer's stead."""
    log = open_log(MemoryFiles())
    log.append_as_leader(batch(b"v", producer_id=1, transactional=True), now_ms=NOW_MS)
    log.append_marker(TransactionMarker(1, 1, False, 0), now_ms=NOW_MS)
    assert log.last_stable_offset == 2
    with pytest.raises(InvalidProducerEpochError):
        log.append_as_leader(batch(b"v", producer_id=1, sequence=1, transactional=True), now_ms=NOW_MS)


def test_markers_take_the_append_time_where_the_topic_does() -> None:
    """As every batch of such a topic."""
    log = open_log(MemoryFiles(), settings=LogSettings(message_timestamp_type="LogAppendTime"))
    assert log.append_marker(TransactionMarker(1, 0, True, 0), now_ms=7).log_append_time_ms == 7
    (header,) = read_headers(log)
    assert (header.is_log_append_time, header.max_timestamp) == (True, 7)


def test_a_list_of_aborted_that_the_disk_refuses_is_kept_and_written_later() -> None:
    """The marker is in the log already: failing it would end the transaction a second time."""
    files = MemoryFiles()
    log = open_log(files)
    log.append_as_leader(batch(b"v", producer_id=1, transactional=True), now_ms=NOW_MS)
    files.inject(Fault(28, after=1))
    log.append_marker(TransactionMarker(1, 0, False, 0), now_ms=NOW_MS)
    files.heal()
    assert len(log.aborted_transactions(0, 2)) == 1
    assert not files.size_bytes(f"{DIRECTORY}/{0:020d}.txnindex")
    log.flush()
    assert files.size_bytes(f"{DIRECTORY}/{0:020d}.txnindex") == 34


def test_a_marker_that_the_disk_refuses_ends_nothing() -> None:
    """The transaction stays open, and the coordinator tries again."""
    files = MemoryFiles()
    log = open_log(files)
    log.append_as_leader(batch(b"v", producer_id=1, transactional=True), now_ms=NOW_MS)
    files.inject(Fault(28))
    with pytest.raises(KafkaStorageError):
        log.append_marker(TransactionMarker(1, 0, True, 0), now_ms=NOW_MS)
    assert (log.log_end_offset, log.last_stable_offset) == (1, 0)
    log.append_marker(TransactionMarker(1, 0, True, 0), now_ms=NOW_MS)
    assert log.last_stable_offset == 2


def test_damaged_lists_of_aborted_transactions_are_rebuilt_after_a_clean_end() -> None:
    """As Kafka, which checks this index alone then."""
    files = MemoryFiles()
    log = open_log(files)
    for sequence in range(2):
        data = batch(b"v", producer_id=1, sequence=sequence, transactional=True)
        log.append_as_leader(data, now_ms=NOW_MS)
        log.append_marker(TransactionMarker(1, 0, False, 0), now_ms=NOW_MS)
    log.close()
    path = f"{DIRECTORY}/{0:020d}.txnindex"
    sound = files.read_bytes(path)
    assert sound is not None
    for damaged in (sound[:-1], sound[34:] + sound[:34]):
        files.write_atomic(path, damaged)
        open_log(files, clean=True).close()
        assert files.read_bytes(path) == sound


def test_deleting_the_first_records_of_a_transaction_leaves_it_open() -> None:
    """The last stable offset is not below the log start offset."""
    log = open_log(MemoryFiles())
    for sequence in range(3):
        data = batch(b"v", producer_id=1, sequence=sequence, transactional=True)
        log.append_as_leader(data, now_ms=NOW_MS)
    assert log.last_stable_offset == 0
    log.advance_log_start(2)
    assert (log.log_start_offset, log.last_stable_offset, log.high_watermark) == (2, 2, 3)
    log.append_marker(TransactionMarker(1, 0, False, 0), now_ms=NOW_MS)
    assert log.last_stable_offset == 4


def test_a_reader_gets_the_aborted_transactions_of_its_records() -> None:
    """Not of the hundreds that follow: the bound is at most an index interval behind the bytes."""
    log = open_log(MemoryFiles(), settings=SETTINGS)
    for sequence in range(200):
        data = batch(b"v", producer_id=1, sequence=sequence, transactional=True)
        log.append_as_leader(data, now_ms=NOW_MS)
        log.append_marker(TransactionMarker(1, 0, False, 0), now_ms=NOW_MS)
    size = log.read(100, 200).size_bytes
    bound = log.fetch_bound(100, size)
    assert 100 < bound <= 110
    assert [each.first_offset for each in log.aborted_transactions(100, bound)] == [*range(100, bound, 2)]
    assert log.fetch_bound(399, 78) == 400
    assert log.fetch_bound(400, 0) == 400
