"""Files in memory: what they lose without a sync, torn writes, and errors on demand."""

from __future__ import annotations

import errno
from random import Random

import pytest

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.errors import IllegalStateError
from splashdam.storage.files.memory import Fault, MemoryFiles, PowerCutError


def filled(files: MemoryFiles) -> None:
    """``/d/a`` with ``safe`` synced, name and all, and ``lost`` behind it."""
    files.make_directory("/d")
    files.sync_directory("/")
    file = files.open_log("/d/a", create=True)
    file.append([b"safe"])
    file.sync_now()
    files.sync_directory("/d")
    file.append([b"lost"])


def test_a_kill_loses_nothing() -> None:
    """The operating system lives on."""
    files = MemoryFiles()
    filled(files)
    files.kill()
    assert files.read_bytes("/d/a") == b"safelost"


def test_a_crash_drops_unsynced_bytes() -> None:
    """Bytes and names alike."""
    files = MemoryFiles()
    filled(files)
    files.open_log("/d/b", create=True).sync_now()
    files.crash()
    assert files.read_bytes("/d/a") == b"safe"
    assert files.read_bytes("/d/b") is None


def test_a_crash_left_to_chance_keeps_any_prefix_and_tears() -> None:
    """Over many crashes every length occurs, and tails of zeros; the synced part is always there."""
    seen = set()
    for seed in range(200):
        files = MemoryFiles()
        filled(files)
        files.crash(Random(seed))
        data = files.read_bytes("/d/a")
        assert data is not None
        assert data.startswith(b"safe")
        seen.add(data[4:])
    assert {b"", b"l", b"lo", b"los", b"lost", b"\0\0\0\0", b"lo\0\0"} <= seen


def test_a_file_in_a_directory_that_was_lost_is_lost() -> None:
    """Syncing a directory does not make its own name durable."""
    files = MemoryFiles()
    files.make_directory("/d")
    files.write_atomic("/d/a", b"1")
    files.crash()
    assert files.read_bytes("/d/a") is None


def test_faults_wait_strike_and_end() -> None:
    """``after`` operations pass, ``times`` fail, then all is well."""
    files = MemoryFiles()
    file = files.open_log("/a", create=True)
    files.inject(Fault(errno.EIO, after=1, times=2, landed_bytes=1))
    file.append([b"1"])
    with pytest.raises(KafkaStorageError, match="Input/output"):
        file.append([b"22"])  # the write fails, and so does cutting off what has landed
    assert files.read_bytes("/a") == b"12"
    file.append([b"3"])
    assert files.read_bytes("/a") == b"13"


def test_without_power_nothing_works_until_the_restart() -> None:
    """A power cut is no error that code could handle."""
    files = MemoryFiles()
    file = files.open_log("/a", create=True)
    files.inject(Fault(None, landed_bytes=2))
    for _ in range(2):
        with pytest.raises(PowerCutError):
            file.append([b"1234"])
    assert files.read_bytes("/a") == b"12"
    files.kill()
    assert files.read_bytes("/a") == b"12"


def test_a_full_disk_takes_the_bytes_that_fit() -> None:
    """The rest is an error; space that was freed can be used."""
    files = MemoryFiles(capacity_bytes=10)
    file = files.open_log("/a", create=True)
    file.append([b"12345678"])
    with pytest.raises(KafkaStorageError, match="append to /a: No space left"):
        file.append([b"abc"])
    file.append([b"ab"])
    with pytest.raises(KafkaStorageError, match="No space left"):
        file.append([b"c"])
    file.truncate(0)
    file.append([b"c"])


def test_a_full_disk_never_puts_half_a_file_in_the_place_of_a_whole_one() -> None:
    """A replaced file stays if its successor does not fit; else a broker could not start again."""
    files = MemoryFiles()
    files.write_atomic("/topics", b"before")
    files.capacity_bytes = files.used_bytes + 4
    with pytest.raises(KafkaStorageError, match="No space left"):
        files.write_atomic("/topics", b"after it")
    assert files.read_bytes("/topics") == b"before"


def test_a_lock_is_exclusive_and_ends_with_the_process() -> None:
    """As on disk."""
    files = MemoryFiles()
    files.make_directory("/d")
    lock = files.lock("/d")
    with pytest.raises(IllegalStateError, match="in use"):
        files.lock("/d")
    lock.release()
    files.lock("/d")
    files.kill()
    files.lock("/d").release()


def test_a_write_in_the_middle_keeps_the_bytes_after_it() -> None:
    """As on a disk, also where it fails half way."""
    files = MemoryFiles()
    files.write_atomic("/x", b"abcdef")
    inode = files._names.files["/x"]
    assert files.write(inode, (b"XY",), 1) == 2
    assert files.read_bytes("/x") == b"aXYdef"
    files.inject(Fault(errno.EIO, landed_bytes=1))
    with pytest.raises(OSError, match="Input/output"):
        files.write(inode, (b"123",), 2)
    assert files.read_bytes("/x") == b"aX1def"


def test_a_file_that_is_not_there_cannot_be_renamed() -> None:
    """It is an error, as on a disk."""
    files = MemoryFiles()
    with pytest.raises(KafkaStorageError, match="No such file"):
        files.rename("/x", "/y")


def test_a_killed_process_makes_nothing_durable() -> None:
    """A power cut afterwards takes unsynced bytes; files that the dead process holds open reach no reader."""
    files = MemoryFiles()
    log = files.open_log("/x", create=True)
    log.append((b"synced",))
    log.sync_now()
    files.sync_directory("/")
    log.append((b" not",))
    files.open_log("/y", create=True)
    files.kill()
    log.append((b" dead",))
    assert files.read_bytes("/x") == b"synced not"
    assert files.read_bytes("/y") == b""
    files.crash()
    assert files.read_bytes("/x") == b"synced"
    assert files.read_bytes("/y") is None
