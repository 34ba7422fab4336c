"""Directories that no broker has written: nothing waits for ever, or takes all memory, or is passed over."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from support.pipeline.log_source_kit import WHERE, offline, partition_on_disk, records_in, slices_in
from support.storage.logs import NOW_MS, batch

from splashdam.model.broker_errors import CorruptMessageError, KafkaStorageError
from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.log_source.directories import PartitionLog, Segment
from splashdam.pipeline.log_source.filesystems import Location, location_of
from splashdam.pipeline.log_source.slices import Piece, slices_of
from splashdam.record.batch import BatchHeader, parse_header
from splashdam.storage.log import Log

pytest.importorskip("pyarrow", reason="needs splashdam[spark]")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A data directory with five records in five batches."""

    def fill(log: Log) -> None:
        for value in (b"a", b"b", b"c", b"d", b"e"):
            log.append_as_leader(batch(value), now_ms=NOW_MS)

    return partition_on_disk(tmp_path, fill)


def first_log(path: Path) -> Path:
    """The only segment."""
    return path / "t-0" / f"{0:020d}.log"


def test_an_unfinished_compaction_is_refused_with_its_first_segment_there(path: Path) -> None:
    """A later one that the copy replaces may be gone, and no name tells."""
    shutil.copy(first_log(path), f"{first_log(path)}.swap")
    with pytest.raises(KafkaStorageError, match=r"0\.log\.swap.*not finished.*start a broker once"):
        slices_in(path)


def test_a_name_beyond_every_offset_is_refused(path: Path) -> None:
    """Twenty digits may be more than 64 bits hold."""
    (path / "t-0" / f"{'9' * 20}.log").write_bytes(b"x")
    with pytest.raises(KafkaStorageError, match=r"9{20}\.log: its name is larger than any offset"):
        slices_in(path)


def test_a_sparse_file_of_a_terabyte_is_refused(path: Path) -> None:
    """Reading its zeros would take hours."""
    os.truncate(first_log(path), 1 << 40)
    with pytest.raises(KafkaStorageError, match=r"0\.log has 1,099,511,627,776 bytes.*move it away"):
        slices_in(path)


def test_indexes_of_ten_gigabytes_of_zeros_take_no_memory(path: Path) -> None:
    """No more of an index is read than the segment can have batches."""
    for suffix in (".index", ".timeindex", ".txnindex"):
        file = first_log(path).with_suffix(suffix)
        file.touch()
        os.truncate(file, 10 << 30)
    first_log(path).with_suffix(".txnindex").unlink()
    assert [each.value for each in records_in(slices_in(path, max_bytes=100))] == [
        b"a",
        b"b",
        b"c",
        b"d",
        b"e",
    ]
    assert offline(path).offsets("t", [0], NOW_MS) == {0: 0}


def test_a_checkpoint_of_gigabytes_is_refused(path: Path) -> None:
    """It is read as a whole, and no such file is that large."""
    (path / "log-start-offset-checkpoint").touch()
    os.truncate(path / "log-start-offset-checkpoint", 10 << 30)
    with pytest.raises(KafkaStorageError, match=r"log-start-offset-checkpoint has more than"):
        slices_in(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
@pytest.mark.parametrize("name", ["log-start-offset-checkpoint", f"t-0/{5:020d}.snapshot"])
def test_a_pipe_is_not_waited_for(path: Path, name: str) -> None:
    """Nobody writes into it, so that opening it would never end."""
    (path / name).unlink(missing_ok=True)
    os.mkfifo(path / name)
    with pytest.raises(KafkaStorageError, match=f"{Path(name).name}: it is not a regular file"):
        slices_in(path, committed=True)


def test_links_in_a_circle_end(path: Path) -> None:
    """A directory in itself, and a file that links to itself."""
    (path / "t-0" / "loop").symlink_to(path, target_is_directory=True)
    (path / "u-0").symlink_to(path / "u-0")
    assert len(records_in(slices_in(path))) == 5


def test_many_segments_in_a_slice_are_not_added_up_again_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred thousand small ones would be planned for hours."""
    asked = 0

    def size_bytes(piece: Piece) -> int:
        nonlocal asked
        asked += 1
        return piece.end - piece.start

    monkeypatch.setattr(Piece, "size_bytes", property(size_bytes))
    location = location_of("/none")
    segments = tuple(Segment(f"/none/{n:020d}", n, 100, {}) for n in range(1001))
    log = PartitionLog(WHERE, location, "/none", segments, (), 0)
    slices = list(slices_of(log, location.open()[0], 0, 1000, max_bytes=1 << 30))
    assert (len(slices), len(slices[0].pieces)) == (1, 1000)
    assert asked <= 3000


def headers(path: Path) -> list[tuple[int, BatchHeader]]:
    """The batches of the only segment."""
    data, at, found = first_log(path).read_bytes(), 0, []
    while at < len(data):
        found.append((at, parse_header(data, at)))
        at += found[-1][1].size_bytes
    return found


def test_a_duplicate_batch_is_not_read_twice(path: Path) -> None:
    """An error with file and position; where damage is reported the first one counts."""
    data, (start, header) = first_log(path).read_bytes(), headers(path)[2]
    end = start + header.size_bytes
    first_log(path).write_bytes(data[:end] + data[start:end] + data[end:])
    with pytest.raises(CorruptMessageError, match=rf"0\.log, position {end}: .*does not follow offset 2"):
        records_in(slices_in(path))
    assert [each.offset for each in records_in(slices_in(path), fails=False)] == [0, 1, 2, 3, 4]


def test_offsets_that_go_back_are_not_left_out_silently(path: Path) -> None:
    """A reader would pass over records that are there."""
    data, (start, header) = first_log(path).read_bytes(), headers(path)[3]
    swapped = data[start : start + header.size_bytes] + data[:start] + data[start + header.size_bytes :]
    first_log(path).write_bytes(swapped)
    with pytest.raises(CorruptMessageError, match="does not follow offset 3"):
        records_in(slices_in(path))


@pytest.mark.parametrize("max_bytes", [1, 1 << 30])
def test_segments_that_overlap_do_not_give_records_twice(path: Path, max_bytes: int) -> None:
    """Those of the later segment count, in whatever slices the two are."""
    start, _ = headers(path)[3]
    first_log(path).with_name(f"{3:020d}.log").write_bytes(first_log(path).read_bytes()[start:])
    slices = slices_in(path, max_bytes=max_bytes)
    with pytest.raises(CorruptMessageError, match=rf"0\.log, position {start}: .*segment that begins at 3"):
        records_in(slices)
    assert [each.offset for each in records_in(slices, fails=False)] == [0, 1, 2, 3, 4]


def test_keys_in_a_uri_are_in_no_message() -> None:
    """Neither in errors nor where a location is shown."""
    location = Location("s3://me:hush@bucket/logs?secret_key=hush", (("secret_key", "hush"),))
    assert "hush" not in repr(location)
    with pytest.raises(KafkaConfigurationError, match="cannot open") as caught:
        Location("nowhere://me:hush@host/logs?key=hush").open()
    assert "hush" not in str(caught.value)
