"""Torn ends are what a crash leaves; damage elsewhere fails, or is told and left out."""

from __future__ import annotations

import logging
import struct
from itertools import pairwise
from pathlib import Path

import pytest
from support.pipeline.log_source_kit import SMALL, partition_on_disk, records_in, slices_in
from support.storage.log_workload import append_random, append_transactions
from support.storage.logs import NOW_MS, batch

from splashdam.model.broker_errors import CorruptMessageError, KafkaStorageError
from splashdam.pipeline.log_source.filesystems import location_of
from splashdam.pipeline.log_source.index_hints import OffsetHints
from splashdam.pipeline.log_source.walking import Chunk, Damage, Walk, find_batch
from splashdam.record.batch import stamp_crc
from splashdam.record.reader import Record
from splashdam.record.sealing import build_batch
from splashdam.record.stored import iter_stored_headers
from splashdam.storage.log import Log
from splashdam.storage.settings import LogSettings

pytest.importorskip("pyarrow", reason="needs splashdam[spark]")


@pytest.fixture
def log(tmp_path: Path) -> tuple[Path, list[Record]]:
    """Several segments with batches of every codec."""
    expected: list[Record] = []
    path = partition_on_disk(tmp_path / "data", lambda log: expected.extend(append_random(log, 11, 60)))
    return path, expected


def segments(path: Path) -> list[Path]:
    """The ``.log`` files of partition ``t-0``."""
    return sorted((path / "t-0").glob("*.log"))


def batches_in(file: Path) -> list[tuple[int, int, int]]:
    """Position, end and first offset of each batch."""
    return [
        (start, start + header.size_bytes, header.base_offset)
        for start, header in iter_stored_headers(file.read_bytes())
    ]


def hit(file: Path, position: int, what: bytes = b"\xff\xff\xff\xff\xff") -> None:
    """Writes over a file."""
    data = bytearray(file.read_bytes())
    data[position : position + len(what)] = what
    file.write_bytes(data)


def test_a_log_torn_at_any_byte_of_its_last_batch_is_read_up_to_it(tmp_path: Path) -> None:
    """With the index entry of the lost batch, and with zeros or noise instead of its end."""
    sent = [batch(b"%d" % n, b"x") for n in range(4)]
    path = partition_on_disk(tmp_path, lambda log: [log.append_as_leader(b, now_ms=NOW_MS) for b in sent])
    file = segments(path)[-1]
    whole = file.read_bytes()
    last = batches_in(file)[-1][0]
    file.with_suffix(".index").write_bytes(struct.pack(">ii", 7, last))
    for end in range(last, len(whole)):
        for rest in (b"", bytes(len(whole) - end), b"\x5a" * (len(whole) - end)):
            file.write_bytes(whole[:end] + rest)
            if file.read_bytes() != whole:
                found = records_in(slices_in(path, max_bytes=100))
                assert [each.offset for each in found] == list(range(6))


def test_a_torn_end_is_reported(log: tuple[Path, list[Record]], caplog: pytest.LogCaptureFixture) -> None:
    """File, position and how many bytes."""
    path, _ = log
    file = segments(path)[-1]
    last = batches_in(file)[-1][0]
    file.write_bytes(file.read_bytes()[:-1])
    with caplog.at_level(logging.WARNING, "splashdam.pipeline"):
        records_in(slices_in(path))
    assert f"{file.name}, position {last}" in caplog.text
    assert "torn end" in caplog.text


def test_zeros_behind_the_last_batch_are_no_damage(
    log: tuple[Path, list[Record]], caplog: pytest.LogCaptureFixture
) -> None:
    """A file that was preallocated has them, in a segment that was closed by a crash, too."""
    path, expected = log
    for file in segments(path):
        file.write_bytes(file.read_bytes() + bytes(5000))
    with caplog.at_level(logging.WARNING, "splashdam.pipeline"):
        assert records_in(slices_in(path, max_bytes=4000)) == expected
    assert caplog.text == ""


@pytest.mark.parametrize("at", [0, 8, 16, 17, 70], ids=["offset", "length", "magic", "checksum", "records"])
@pytest.mark.parametrize("has_index", [True, False], ids=["index", "no index"])
@pytest.mark.parametrize("max_bytes", [2000, 1 << 30])
def test_damage_in_the_middle_fails_or_is_left_out(
    log: tuple[Path, list[Record]], at: int, has_index: bool, max_bytes: int
) -> None:
    """Wherever a batch was hit; the error names file and position, and what to do."""
    path, expected = log
    file = segments(path)[1]
    batches = batches_in(file)
    start, _, offset = batches[1]
    behind = batches[2][2]
    hit(file, start + at)
    if not has_index:
        for each in file.parent.glob("*.index"):
            each.unlink()
    slices = slices_in(path, max_bytes=max_bytes)
    with pytest.raises(CorruptMessageError, match=rf"{file.name}, position {start}: .*onDamage"):
        records_in(slices)
    sound = [each for each in expected if not offset <= each.offset < behind]
    assert records_in(slices, fails=False) == sound


def test_the_end_of_a_closed_segment_is_no_torn_end(log: tuple[Path, list[Record]]) -> None:
    """The log goes on behind it, so records are missing."""
    path, expected = log
    file = segments(path)[0]
    start, _, offset = batches_in(file)[-1]
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CorruptMessageError, match=rf"{file.name}, position {start}: .*cut short"):
        records_in(slices_in(path))
    after = int(segments(path)[1].stem)
    found = records_in(slices_in(path), fails=False)
    assert found == [each for each in expected if each.offset < offset or each.offset >= after]


def test_records_damaged_behind_a_right_checksum_are_left_out_alone(tmp_path: Path) -> None:
    """A producer sealed nonsense; the batches beside it count."""
    broken = bytearray(build_batch([(NOW_MS, b"k", b"v", None)]))
    broken[61] = 0x7E  # the record's length
    stamp_crc(broken, 0, len(broken))

    def fill(log: Log) -> None:
        log.append_as_leader(batch(b"a"), now_ms=NOW_MS)
        log.append_as_coordinator(broken, now_ms=NOW_MS)
        log.append_as_leader(batch(b"b"), now_ms=NOW_MS)

    path = partition_on_disk(tmp_path, fill)
    position = batches_in(segments(path)[0])[1][0]
    with pytest.raises(CorruptMessageError, match=rf"position {position}: "):
        records_in(slices_in(path))
    assert [each.value for each in records_in(slices_in(path), fails=False)] == [b"a", b"b"]


def test_a_batch_in_a_value_is_not_taken_for_one(tmp_path: Path) -> None:
    """Behind damage the log is searched; what a record holds has an offset of before."""
    inner = batch(b"inner")

    def fill(log: Log) -> None:
        for value in (b"a", b"b", inner + inner, b"c"):
            log.append_as_leader(batch(value), now_ms=NOW_MS)

    path = partition_on_disk(tmp_path, fill)
    file = segments(path)[0]
    hit(file, batches_in(file)[2][0] + 8)
    assert [each.value for each in records_in(slices_in(path), fails=False)] == [b"a", b"b", b"c"]


def test_a_cut_that_no_batch_leads_to_is_an_error(log: tuple[Path, list[Record]]) -> None:
    """Two tasks would read the same records, or none of them would."""
    path, _ = log
    file = segments(path)[0]
    files, _ = location_of(str(path)).open()
    with files.open(str(file)) as opened:
        walk = Walk(opened, OffsetHints(lambda: (), opened))
        end = batches_in(file)[1][1]
        assert all(isinstance(each, Chunk) for each in walk.chunks(0, end, is_cut=True))
        with pytest.raises(CorruptMessageError, match="no batch begins at"):
            list(walk.chunks(0, end - 1, is_cut=True))


def test_batches_are_found_across_reads(
    log: tuple[Path, list[Record]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search looks at every byte, also where one read ends and the next begins."""
    path, _ = log
    file = segments(path)[0]
    starts = [start for start, _, _ in batches_in(file)]
    files, _ = location_of(str(path)).open()
    monkeypatch.setattr("splashdam.pipeline.log_source.walking.READ_BYTES", 100)
    with files.open(str(file)) as opened:
        for one, other in pairwise(starts):
            assert find_batch(opened, one + 1, opened.end, 0) == other
        assert find_batch(opened, starts[-1] + 1, opened.end, 0) is None


def test_a_file_that_is_gone_is_named(log: tuple[Path, list[Record]]) -> None:
    """Retention may remove a segment between planning and reading."""
    path, _ = log
    slices = slices_in(path)
    segments(path)[0].unlink()
    with pytest.raises(KafkaStorageError, match=r"00000000000000000000\.log does not exist.*retention"):
        records_in(slices)


def test_a_log_that_grows_is_read_as_far_as_it_was_planned(tmp_path: Path) -> None:
    """Records that a broker appends meanwhile are for the next query."""
    path = partition_on_disk(
        tmp_path, lambda log: log.append_as_leader(batch(b"a", b"b"), now_ms=NOW_MS), SMALL
    )
    slices = slices_in(path)
    file = segments(path)[0]
    more = bytearray(batch(b"c"))
    struct.pack_into(">q", more, 0, 2)
    file.write_bytes(file.read_bytes() + more)
    assert [each.value for each in records_in(slices)] == [b"a", b"b"]
    assert [each.value for each in records_in(slices_in(path))] == [b"a", b"b", b"c"]


def test_damage_has_the_known_fields_of_its_batch(log: tuple[Path, list[Record]]) -> None:
    """A wrong checksum leaves the header readable; zeros have none."""
    path, _ = log
    file = segments(path)[0]
    start, end, offset = batches_in(file)[0]
    hit(file, start + 70)
    files, _ = location_of(str(path)).open()
    with files.open(str(file)) as opened:
        damage = next(iter(Walk(opened, OffsetHints(lambda: (), opened)).chunks(0, opened.end)))
        assert isinstance(damage, Damage)
        assert damage.header is not None
        assert (damage.header.base_offset, damage.size_bytes) == (offset, end - start)
        assert not damage.is_tail


def test_a_damaged_marker_does_not_end_a_log_silently(tmp_path: Path) -> None:
    """Its transaction would count as open, and everything behind it as not to be read."""
    path = partition_on_disk(tmp_path, lambda log: append_transactions(log, 1, 30), LogSettings())
    for each in (path / "t-0").glob("*.snapshot"):
        each.unlink()
    file = segments(path)[0]
    headers = list(iter_stored_headers(file.read_bytes()))
    marker = next(start for start, header in headers if header.is_control)
    hit(file, marker + 70)
    with pytest.raises(CorruptMessageError, match=rf"position {marker}: .*onDamage"):
        slices_in(path, committed=True)
