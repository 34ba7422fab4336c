"""One broker per data directory, told apart by the operating system."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from support.storage.logs import NOW_MS

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.errors import IllegalStateError
from splashdam.storage.files.disk import DiskFiles
from splashdam.storage.files.lock import DirectoryLock, lock_directory
from splashdam.storage.manager.log_manager import LogManager

OPEN_AND_WAIT = """
import sys
from splashdam.storage.files.disk import DiskFiles
from splashdam.storage.manager.log_manager import LogManager
manager = LogManager.open(DiskFiles(), sys.argv[1], now_ms=0)
print("open", flush=True)
sys.stdin.read()
"""


def start_holder(directory: Path) -> subprocess.Popen[str]:
    """A process that holds the directory until its stdin ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", OPEN_AND_WAIT, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    return process


def test_a_second_process_learns_the_first_ones_pid(tmp_path: Path) -> None:
    """It can have the directory as soon as the first process is gone, killed or not."""
    with start_holder(tmp_path) as holder:
        with pytest.raises(
            IllegalStateError, match=f"{tmp_path} is in use by another broker, process {holder.pid}"
        ):
            LogManager.open(DiskFiles(), str(tmp_path), now_ms=NOW_MS)
        holder.kill()
        holder.wait()
        LogManager.open(DiskFiles(), str(tmp_path), now_ms=NOW_MS).close()


def test_the_same_process_twice(tmp_path: Path) -> None:
    """Also through another path; the refused attempt does not weaken the lock."""
    manager = LogManager.open(DiskFiles(), str(tmp_path / "data"), now_ms=NOW_MS)
    (tmp_path / "link").symlink_to(tmp_path / "data")
    for path in ("data", "link"):
        with pytest.raises(
            IllegalStateError, match=f"another broker of this process \\(pid {os.getpid()}\\)"
        ):
            LogManager.open(DiskFiles(), str(tmp_path / path), now_ms=NOW_MS)
    assert record_lock_holder(tmp_path / "data") == os.getpid()
    manager.close()
    assert record_lock_holder(tmp_path / "data") is None
    LogManager.open(DiskFiles(), str(tmp_path / "data"), now_ms=NOW_MS).close()


def record_lock_holder(directory: Path) -> int | None:
    """The holder of the record lock that a real Kafka would take, seen from another process."""
    code = (
        "import fcntl, struct, sys\n"
        "with open(sys.argv[1], 'r+b') as file:\n"
        "    request = struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0, 0, 0)\n"
        "    kind, _, _, _, pid = struct.unpack('hhqqi4x', fcntl.fcntl(file, fcntl.F_GETLK, request))\n"
        "    print(pid if kind != fcntl.F_UNLCK else -1)\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code, str(directory / ".lock")], capture_output=True, text=True, check=True
    )
    pid = int(answer.stdout)
    return None if pid < 0 else pid


def test_a_directory_that_a_real_kafka_holds_is_refused(tmp_path: Path) -> None:
    """Kafka takes a record lock on an empty file; it names nobody."""
    code = (
        "import fcntl, sys\n"
        "file = open(sys.argv[1], 'w')\n"
        "fcntl.lockf(file, fcntl.LOCK_EX)\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / ".lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as kafka:
        assert kafka.stdout is not None
        assert kafka.stdout.readline() == "held\n"
        with pytest.raises(IllegalStateError, match="a real Kafka"):
            lock_directory(str(tmp_path))
        kafka.kill()


def test_a_stale_lock_file_means_nothing(tmp_path: Path) -> None:
    """Only the lock counts, and it ends with its process."""
    (tmp_path / ".lock").write_text("1\n")
    lock = lock_directory(str(tmp_path))
    assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n"
    lock.release()
    lock.release()


def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    """While it lives on, the directory is free once the parent lets go; and it cannot take it before."""
    lock = lock_directory(str(tmp_path))
    ready_read, ready_write = os.pipe()
    end_read, end_write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            lock_directory(str(tmp_path))
            os.write(ready_write, b"taken")
        except IllegalStateError as error:
            os.write(ready_write, str(error).encode())
        os.close(end_write)
        os.read(end_read, 1)
        os._exit(0)
    os.close(end_read)
    assert f"process {os.getpid()}" in os.read(ready_read, 1000).decode()
    lock.release()
    with open(tmp_path / ".lock", "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(end_write)
    os.waitpid(child, 0)
    for descriptor in (ready_read, ready_write):
        os.close(descriptor)


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    """The manager makes it first; the lock alone does not."""
    with pytest.raises(KafkaStorageError, match=r"could not open .*\.lock"):
        lock_directory(str(tmp_path / "missing"))


def test_threads_that_take_one_directory_at_once(tmp_path: Path) -> None:
    """One of them gets it, and the others' refusals do not take it away from that one."""
    barrier = threading.Barrier(8)
    taken: list[DirectoryLock] = []

    def take() -> None:
        barrier.wait()
        with suppress(IllegalStateError):
            taken.append(lock_directory(str(tmp_path)))

    for turn in range(20):
        threads = [threading.Thread(target=take) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(taken) == 1
        assert turn or record_lock_holder(tmp_path) == os.getpid()
        taken.pop().release()
