"""Offset, time and transaction indexes: bytes, look-ups against a plain list, files of others."""

from __future__ import annotations

import errno
from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.storage.files.log_file import storage_errors
from splashdam.storage.files.memory import Fault, MemoryFiles
from splashdam.storage.segments.indexes import AbortedTransaction, OffsetIndex, TimeIndex, TransactionIndex

BASE = 1000
rising = st.lists(st.integers(0, 2**31 - 1), unique=True, max_size=30).map(sorted)
rising_times = st.lists(st.integers(0, 2**63 - 1), unique=True, max_size=30).map(sorted)


def offset_index(files: MemoryFiles, max_bytes: int = 10_485_760) -> OffsetIndex:
    return OffsetIndex(files, "/i.index", BASE, max_bytes)


def time_index(files: MemoryFiles, max_bytes: int = 10_485_760) -> TimeIndex:
    return TimeIndex(files, "/i.timeindex", BASE, max_bytes)


def test_an_offset_entry_is_kafkas_eight_bytes() -> None:
    """Offset 97 of segment 0 at position 5713, from a file of a real Kafka."""
    files = MemoryFiles()
    OffsetIndex(files, "/i", 0, 100).append(0x61, 0x1651)
    assert files.read_bytes("/i") == bytes.fromhex("0000006100001651")


def test_a_time_entry_is_kafkas_twelve_bytes() -> None:
    """From a file of a real Kafka."""
    files = MemoryFiles()
    TimeIndex(files, "/i", 0, 100).maybe_append(0x1A1FE0416BF, 0x18)
    assert files.read_bytes("/i") == bytes.fromhex("000001a1fe0416bf00000018")


def test_an_aborted_transaction_is_kafkas_34_bytes() -> None:
    """From a file of a real Kafka; a torn last entry is left out."""
    files = MemoryFiles()
    index = TransactionIndex(files, "/i")
    assert index.entries() == []
    assert files.read_bytes("/i") is None
    entry = AbortedTransaction(1, 2021, 2041, 2042)
    index.append(entry)
    data = files.read_bytes("/i")
    assert data == bytes.fromhex("0000000000000000000100000000000007e500000000000007f900000000000007fa")
    files.write_atomic("/i", data + data[:33])
    assert index.entries() == [entry]
    index.reset()
    assert files.read_bytes("/i") is None


@given(offsets=rising, targets=st.lists(st.integers(0, BASE + 2**31), min_size=1), reload=st.booleans())
def test_offset_lookup_is_the_largest_entry_at_or_below(
    offsets: list[int], targets: list[int], reload: bool
) -> None:
    """Against a plain bisection, from memory and from the file."""
    index = offset_index(MemoryFiles())
    for number, offset in enumerate(offsets):
        index.append(BASE + offset, 5000 * (number + 1))
    if reload:
        index.unload()
    assert len(index) == len(offsets)
    for target in targets:
        slot = bisect_right(offsets, target - BASE)
        assert index.lookup(target) == 5000 * slot


@given(
    timestamps=rising_times,
    targets=st.lists(st.integers(-1, 2**63 - 1), min_size=1),
    reload=st.booleans(),
)
def test_time_lookup_is_the_largest_entry_at_or_below(
    timestamps: list[int], targets: list[int], reload: bool
) -> None:
    """Compared with a plain bisection, in memory and from the file; only a later entry is added."""
    index = time_index(MemoryFiles())
    for number, timestamp in enumerate(timestamps):
        index.maybe_append(timestamp, BASE + number)
        index.maybe_append(timestamp, BASE + number + 5)
    if reload:
        index.unload()
    assert len(index) == len(timestamps)
    for target in targets:
        slot = bisect_right(timestamps, target)
        assert index.lookup(target) == BASE + max(0, slot - 1)


@given(offsets=rising.filter(bool), zeros=st.integers(0, 4000))
def test_preallocated_tails_are_cut(offsets: list[int], zeros: int) -> None:
    """Kafka's files are longer than their entries; an entry that itself ends in zero bytes stays whole."""
    files = MemoryFiles()
    written = offset_index(files)
    for number, offset in enumerate(offsets):
        written.append(BASE + offset, 256 * (number + 1))
    data = files.read_bytes("/i.index")
    assert data is not None
    files.write_atomic("/i.index", data + bytes(zeros))
    index = offset_index(files)
    assert len(index) == len(offsets)
    assert index.last_position == 256 * len(offsets)
    index.trim()
    assert files.read_bytes("/i.index") == data


def test_a_time_index_of_one_zero_entry_was_empty() -> None:
    """Time 0 at the base offset is twelve zeros, which were cut like those of a preallocated file."""
    files = MemoryFiles()
    time_index(files).maybe_append(0, BASE)
    assert files.read_bytes("/i.timeindex") == bytes(12)
    index = time_index(files)
    assert (len(index), index.last_timestamp, index.last_offset) == (1, 0, BASE)
    index.maybe_append(0, BASE + 5)
    index.maybe_append(7, BASE + 9)
    assert files.read_bytes("/i.timeindex") == bytes(12) + bytes.fromhex("0000000000000007 00000009")
    files.write_atomic("/i.timeindex", bytes(24))
    assert len(time_index(files)) == 0  # preallocated


def test_a_torn_entry_is_left_out_and_cut_off() -> None:
    """A file that ends in the middle of an entry."""
    files = MemoryFiles()
    written = offset_index(files)
    written.append(BASE + 5, 4097)
    written.append(BASE + 9, 9000)
    data = files.read_bytes("/i.index")
    assert data is not None
    files.write_atomic("/i.index", data[:-3])
    index = offset_index(files)
    assert (len(index), index.last_offset, index.last_position) == (1, BASE + 5, 4097)
    index.trim()
    assert files.read_bytes("/i.index") == data[:8]


def test_full_is_one_entry_earlier_for_the_time_index() -> None:
    """It keeps a slot for the forced entry of a closed segment."""
    offsets, times = offset_index(MemoryFiles(), 24), time_index(MemoryFiles(), 36)
    for number in range(1, 3):
        assert not offsets.is_full
        assert not times.is_full
        offsets.append(BASE + number, number)
        times.maybe_append(number, BASE + number)
    assert times.is_full
    assert not offsets.is_full
    offsets.append(BASE + 3, 3)
    assert offsets.is_full


def test_an_entry_that_the_disk_refuses_is_written_with_the_next() -> None:
    """The index in memory is complete all the time, the file as soon as the disk allows."""
    files = MemoryFiles()
    index = offset_index(files)
    index.append(BASE + 1, 10)
    files.inject(Fault(errno.ENOSPC, landed_bytes=3))
    index.append(BASE + 2, 20)
    assert index.lookup(BASE + 2) == 20
    assert files.size_bytes("/i.index") == 8
    index.append(BASE + 3, 30)
    index.unload()
    assert [index.lookup(BASE + n) for n in (1, 2, 3)] == [10, 20, 30]


def test_settling_fails_while_the_disk_refuses() -> None:
    """Before a sync or a close the file must be complete."""
    files = MemoryFiles()
    index = offset_index(files)
    files.inject(Fault(errno.ENOSPC, times=None))
    index.append(BASE + 2, 20)
    with pytest.raises(KafkaStorageError, match="No space left"):
        index.file.write_pending()
    files.heal()
    file = index.file.write_pending()
    assert file is not None
    assert not file.is_synced
    assert files.size_bytes("/i.index") == 8


def test_trimming_writes_held_back_entries() -> None:
    """A trim never lengthens a file with zeros in place of entries."""
    files = MemoryFiles()
    index = offset_index(files)
    index.append(BASE + 1, 10)
    files.inject(Fault(errno.ENOSPC))
    index.append(BASE + 2, 20)
    index.trim()
    index.unload()
    assert (len(index), index.lookup(BASE + 2)) == (2, 20)


def test_dropping_time_entries_behind_an_offset() -> None:
    """In memory and in the file."""
    files = MemoryFiles()
    index = time_index(files)
    for number in (1, 2, 3):
        index.maybe_append(number * 10, BASE + number)
    index.drop_after(BASE + 2)
    assert (index.last_timestamp, index.last_offset) == (20, BASE + 2)
    assert files.size_bytes("/i.timeindex") == 24
    index.drop_after(BASE)
    assert (index.last_timestamp, index.last_offset) == (-1, BASE)


def test_an_index_that_was_removed_is_created_again() -> None:
    """What was read of the removed file does not stand for the new one."""
    files = MemoryFiles()
    index = offset_index(files)
    index.reset()
    index.unload()
    assert len(index) == 0
    index.file.discard()
    files.unlink("/i.index")
    index.reset()
    assert files.size_bytes("/i.index") == 0


def test_an_entry_that_was_refused_and_dropped_is_not_written_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """No descriptor was left to open the file; after the log was cut, the entry came back."""
    files = MemoryFiles()
    index = time_index(files)
    for number in (1, 2):
        index.maybe_append(number, BASE + number)
    index.unload()
    assert len(index) == 2

    def refuse(path: str, *, create: bool = False) -> None:
        with storage_errors("open", path):
            raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as exhausted:
        exhausted.setattr(files, "open_log", refuse)
        index.maybe_append(3, BASE + 3)
        with pytest.raises(KafkaStorageError):
            index.drop_after(BASE + 1)
        assert index.sample(10)[-1] == (3, BASE + 3)
    index.drop_after(BASE + 1)
    index.maybe_append(5, BASE + 5)
    index.file.write_pending()
    index.unload()
    assert index.sample(10) == [(1, BASE + 1), (5, BASE + 5)]
