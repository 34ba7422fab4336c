"""The seam to the file system, on disk and in memory: all of an append or nothing, and slices that last."""

from __future__ import annotations

import errno
import gc
import os
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from support.running.alone import files_open_below

from splashdam.model.broker_errors import CorruptMessageError, KafkaStorageError
from splashdam.model.values import Buffer
from splashdam.storage.files.disk import SENDFILE_MIN_BYTES, DiskFiles, DiskLogFile, Files
from splashdam.storage.files.log_file import LogFile, OversizedFileError
from splashdam.storage.files.memory import Fault, MemoryFiles
from splashdam.storage.files.watched import WatchedFiles


@pytest.fixture(params=["disk", "memory"])
def files(request: pytest.FixtureRequest) -> Files:
    """Both kinds of files."""
    return DiskFiles() if request.param == "disk" else MemoryFiles()


@pytest.fixture
def directory(files: Files, tmp_path: Path) -> str:
    """A directory that exists in them."""
    files.make_directory(str(tmp_path))
    return str(tmp_path)


class FailingFile(DiskLogFile):
    """A file on disk whose writes and truncations fail on demand."""

    taken_bytes: int | None = None
    write_error: int | None = None
    truncate_error: int | None = None

    def _write_at(self, buffers: Sequence[Buffer], position: int) -> int:
        data = b"".join(buffers)[: self.taken_bytes]
        written = os.pwrite(self._descriptor, data, position)
        if self.write_error is not None:
            raise OSError(self.write_error, os.strerror(self.write_error))
        return written

    def _truncate_to(self, end: int) -> None:
        if self.truncate_error is not None:
            raise OSError(self.truncate_error, os.strerror(self.truncate_error))
        super()._truncate_to(end)


@pytest.fixture
def failing(tmp_path: Path) -> FailingFile:
    """A failing file that holds ``start``."""
    descriptor = os.open(tmp_path / "f.log", os.O_RDWR | os.O_CREAT)
    file = FailingFile(descriptor, str(tmp_path / "f.log"))
    file.append([b"start"])
    return file


def test_appends_follow_each_other(files: Files, directory: str) -> None:
    """Buffers of one append stand in order behind what was there."""
    file = files.open_log(f"{directory}/a.log", create=True)
    file.append([b"one", bytearray(b"two")])
    file.append([memoryview(b"three")])
    assert (file.end, file.read(0, 100), file.read(3, 3)) == (11, b"onetwothree", b"two")
    file.close()
    again = files.open_log(f"{directory}/a.log")
    assert again.end == 11
    again.close()


def test_a_missing_file_is_an_error_that_names_it(files: Files, directory: str) -> None:
    """open_log without ``create`` wants the file to be there."""
    with pytest.raises(KafkaStorageError, match=r"open .*/missing\.log: No such file"):
        files.open_log(f"{directory}/missing.log")


def test_truncation_moves_the_end(files: Files, directory: str) -> None:
    """Truncated bytes are gone, and the next append takes their place."""
    file = files.open_log(f"{directory}/a.log", create=True)
    file.append([b"onetwo"])
    file.truncate(3)
    file.append([b"3"])
    assert file.read(0, 10) == b"one3"
    file.close()


def test_a_slice_outlives_the_file(files: Files, directory: str) -> None:
    """Small and large slices are whole after the file was closed and removed."""
    data = os.urandom(SENDFILE_MIN_BYTES + 10)
    file = files.open_log(f"{directory}/a.log", create=True)
    file.append([data])
    large, small = file.slice(5, len(data) - 5), file.slice(0, 5)
    file.close()
    files.unlink(f"{directory}/a.log")
    assert (large.size_bytes, small.size_bytes) == (len(data) - 5, 5)
    assert small.read() + large.read() == data
    for piece in (large, small):
        piece.close()
        piece.close()


def test_a_large_slice_on_disk_has_a_descriptor_for_sendfile(tmp_path: Path) -> None:
    """The descriptor is the slice's own, and closing the slice closes it."""
    file = DiskFiles().open_log(str(tmp_path / "a.log"), create=True)
    file.append([bytes(SENDFILE_MIN_BYTES + 7)])
    piece = file.slice(7, SENDFILE_MIN_BYTES)
    descriptor = piece.fileno()
    assert descriptor is not None
    assert piece.position == 7
    assert os.fstat(descriptor).st_size == SENDFILE_MIN_BYTES + 7
    piece.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    file.close()


def test_a_slice_nobody_closed_gives_its_descriptor_back(tmp_path: Path) -> None:
    """A connection that dies must not cost a descriptor."""
    file = DiskFiles().open_log(str(tmp_path / "a.log"), create=True)
    file.append([bytes(SENDFILE_MIN_BYTES)])
    assert files_open_below(tmp_path) == ["a.log"]
    for _ in range(20):
        file.slice(0, SENDFILE_MIN_BYTES)
    assert files_open_below(tmp_path) == ["a.log"]
    file.close()


def test_a_file_cut_behind_our_back_is_an_error(tmp_path: Path) -> None:
    """A read that finds fewer bytes than there should be does not return fewer."""
    file = DiskFiles().open_log(str(tmp_path / "a.log"), create=True)
    file.append([b"x" * 100])
    os.truncate(tmp_path / "a.log", 50)
    with pytest.raises(KafkaStorageError, match="50 of 100 bytes at 0 are missing"):
        file.read(0, 100)
    file.close()


@pytest.mark.parametrize("taken", [1, 4])
def test_a_short_write_goes_on_with_the_rest(failing: FailingFile, taken: int) -> None:
    """A disk may take a part and have nothing to complain of."""
    failing.taken_bytes = taken
    failing.append([b"12", b"345"])
    assert failing.read(0, 20) == b"start12345"
    failing.close()


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "No space left on device; make room on this disk"),
        (errno.EDQUOT, "Disk quota exceeded; raise the quota"),
        (errno.EIO, "Input/output error; the disk fails"),
        (errno.EROFS, "Read-only file system; find out why"),
    ],
    ids=["ENOSPC", "EDQUOT", "EIO", "EROFS"],
)
def test_a_short_write_names_the_disks_error(
    failing: FailingFile, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    """It takes a part of the first write, and says why with the second: once the cause was lost."""
    write, calls = failing._write_at, 0

    def fill(buffers: Sequence[Buffer], position: int) -> int:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise OSError(number, os.strerror(number))
        return write([b"".join(buffers)[:3]], position)

    monkeypatch.setattr(failing, "_write_at", fill)
    with pytest.raises(KafkaStorageError, match=rf"append to .*f\.log: {remedy}") as caught:
        failing.append([b"12345"])
    assert isinstance(caught.value.__cause__, OSError)
    assert (failing.end, os.stat(failing.path).st_size) == (5, 5)
    failing.close()


def test_a_write_that_takes_nothing_is_an_error_and_leaves_nothing(failing: FailingFile) -> None:
    """The tail is cut off again and the next append stands where the failed one did."""
    failing.taken_bytes = 0
    with pytest.raises(KafkaStorageError, match="0 bytes were taken, 5 were not"):
        failing.append([b"12345"])
    assert (failing.end, os.stat(failing.path).st_size) == (5, 5)
    failing.taken_bytes = None
    failing.append([b"12345"])
    assert failing.read(0, 20) == b"start12345"
    failing.close()


def test_a_full_disk_is_an_error_and_leaves_nothing(failing: FailingFile) -> None:
    """ENOSPC after some bytes have landed."""
    failing.taken_bytes, failing.write_error = 3, errno.ENOSPC
    with pytest.raises(KafkaStorageError, match=r"append to .*f\.log: No space left"):
        failing.append([b"12345"])
    assert (failing.end, os.stat(failing.path).st_size) == (5, 5)
    failing.close()


def test_a_tail_that_could_not_be_cut_is_cut_before_the_next_append(failing: FailingFile) -> None:
    """While it cannot be cut nothing is appended; no reader ever sees it."""
    failing.taken_bytes, failing.write_error, failing.truncate_error = 3, errno.EIO, errno.EIO
    with pytest.raises(KafkaStorageError):
        failing.append([b"12345"])
    failing.taken_bytes = failing.write_error = None
    assert os.stat(failing.path).st_size == 8
    assert failing.read(0, 100) == b"start"
    with pytest.raises(KafkaStorageError, match="truncate"):
        failing.append([b"6"])
    failing.truncate_error = None
    failing.append([b"6"])
    assert failing.read(0, 100) == b"start6"
    assert os.stat(failing.path).st_size == 6
    failing.close()


async def test_a_file_knows_whether_it_is_synced(files: Files, directory: str) -> None:
    """A file is in need of a sync from its first append on, and again after a truncation."""
    file = files.open_log(f"{directory}/a.log", create=True)
    assert file.is_synced
    file.append([b"one"])
    assert not file.is_synced
    await file.sync()
    assert file.is_synced
    file.truncate(1)
    assert not file.is_synced
    file.sync_now()
    assert file.is_synced
    file.close()


async def test_a_failed_sync_is_an_error() -> None:
    """The bytes count as not synced."""
    files = MemoryFiles()
    file: LogFile = files.open_log("/a.log", create=True)
    file.append([b"one"])
    files.inject(Fault(errno.EIO, times=2))
    with pytest.raises(KafkaStorageError, match=r"sync /a\.log: Input/output error"):
        await file.sync()
    with pytest.raises(KafkaStorageError, match="sync"):
        file.sync_now()
    assert not file.is_synced


def test_names(files: Files, directory: str) -> None:
    """Atomic replacement, listing, renaming and removal."""
    files.make_directory(f"{directory}/d/e")
    assert files.read_bytes(f"{directory}/d/x") is None
    assert files.size_bytes(f"{directory}/d/x") is None
    files.write_atomic(f"{directory}/d/x", b"1")
    files.write_atomic(f"{directory}/d/x", b"22")
    assert (files.read_bytes(f"{directory}/d/x"), files.size_bytes(f"{directory}/d/x")) == (b"22", 2)
    assert files.list_directory(f"{directory}/d") == [("e", True), ("x", False)]
    files.rename(f"{directory}/d", f"{directory}/f")
    assert files.list_directory(f"{directory}/d") == []
    assert files.read_bytes(f"{directory}/f/x") == b"22"
    files.unlink(f"{directory}/f/x")
    files.unlink(f"{directory}/f/x")
    files.remove_tree(f"{directory}/f")
    files.remove_tree(f"{directory}/f")
    assert files.list_directory(directory) == []


def test_a_rename_of_nothing_is_an_error_on_disk(tmp_path: Path) -> None:
    """Failures of names are told like those of bytes."""
    with pytest.raises(KafkaStorageError, match=r"rename .*/a: No such file"):
        DiskFiles().rename(str(tmp_path / "a"), str(tmp_path / "b"))


def test_a_named_pipe_in_a_data_directory_hung_the_broker(tmp_path: Path) -> None:
    """Opening one waits until somebody writes to it; it is refused by name instead."""
    files, pipe = DiskFiles(), tmp_path / "partition.metadata"
    os.mkfifo(pipe)
    with pytest.raises(KafkaStorageError, match=r"partition\.metadata is not a regular file"):
        files.read_bytes(str(pipe))
    with pytest.raises(KafkaStorageError, match=r"partition\.metadata is not a regular file"):
        files.open_log(str(pipe))
    os.mkfifo(tmp_path / "f.tmp")
    with pytest.raises(KafkaStorageError, match=r"could not write .*f\.tmp"):
        files.write_atomic(str(tmp_path / "f"), b"x")


def test_a_sparse_file_of_3_gib_was_read_whole(tmp_path: Path) -> None:
    """A damaged length filled the memory; the file is refused by name instead."""
    path = tmp_path / "meta.properties"
    with path.open("wb") as file:
        file.truncate(3 << 30)
    with pytest.raises(OversizedFileError, match=r"meta\.properties has 3,221,225,472 bytes, too many for"):
        DiskFiles().read_bytes(str(path))


def test_a_file_of_the_largest_size_is_read(files: Files, directory: str) -> None:
    """One that is larger by a byte is refused, on disk and in memory."""
    path = f"{directory}/f"
    files.write_atomic(path, b"12345")
    assert files.read_bytes(path, 5) == b"12345"
    with pytest.raises(OversizedFileError, match="/f has 5 bytes"):
        files.read_bytes(path, 4)


def test_a_file_that_is_cut_while_it_is_read_is_no_failure_of_the_disk(tmp_path: Path) -> None:
    """A follower truncates a log while the cleaner reads it: once the whole data directory went offline."""
    failures: list[str] = []
    files = WatchedFiles(DiskFiles(), lambda path, _: failures.append(path))
    log = files.open_log(str(tmp_path / "log"), create=True)
    log.append([bytes(100)])
    reader = files.open_log(log.path)
    log.truncate(50)
    with pytest.raises(KafkaStorageError, match="50 of 100 bytes at 0 are missing"):
        reader.read(0, 100)
    assert failures == []
    reader.close()
    log.close()


class _Unpacked:
    """What a frame holds."""


async def test_an_error_beside_the_loop_kept_what_had_been_unpacked_there() -> None:
    """250 refused requests of 3 KB held 4 GB: error and frames kept each other, for the garbage collector."""
    held: list[weakref.ref[_Unpacked]] = []

    def work() -> None:
        unpacked = _Unpacked()
        held.append(weakref.ref(unpacked))
        try:
            int("seven")
        except ValueError as error:
            raise CorruptMessageError("the batch is damaged") from error

    gc.collect()
    gc.disable()
    try:
        with suppress(CorruptMessageError):
            await DiskFiles().run(work)
        assert held[0]() is None
    finally:
        gc.enable()
