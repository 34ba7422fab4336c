"""The library that fails system calls, on a small process, and what strace says beside it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from lab.failing_calls import library
from lab.failing_calls.library import Failure, NoLibraryError, calls_in, compiled, preloading
from lab.failing_calls.strace import Strace, seen_in, why_not

# Without `site`, a start of Python costs a hundredth of a second.
_PYTHON = (sys.executable, "-S", "-E", "-c")
_SCRIPT = """
import os, sys
data = sys.argv[1]
def attempt(call, *arguments):
    try:
        print(call.__name__, call(*arguments))
    except OSError as error:
        print(call.__name__, os.strerror(error.errno))
file = os.open(f"{data}/a", os.O_CREAT | os.O_RDWR)
attempt(os.pwritev, file, [b"hello ", b"world"], 0)
attempt(os.fdatasync, file)
attempt(os.write, file, b"0123456789")
attempt(os.posix_fallocate, file, 0, 20)
attempt(os.ftruncate, file, 10)
os.chdir(data)
attempt(os.replace, "a", "b")
attempt(os.mkdir, "d")
attempt(os.rmdir, "d")
other = os.open(f"{data}x", os.O_CREAT | os.O_WRONLY)
attempt(os.write, other, b"elsewhere")
attempt(os.unlink, "b")
"""
# With whole paths, or with descriptors of directories: strace does not print the working directory.
_TREE = """
import os, shutil, sys
data = sys.argv[1]
os.makedirs(f"{data}/a/b")
with open(f"{data}/a/b/c", "w") as file:
    file.write("x" * 100_000)
os.replace(f"{data}/a/b/c", f"{data}/a/b/d")
os.utime(f"{data}/a/b/d", ns=(1, 1))
shutil.rmtree(f"{data}/a")
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library."""
    try:
        return compiled(tmp_path_factory.mktemp("library"))
    except NoLibraryError as error:
        pytest.skip(str(error))


def run(built: Path, folder: Path, failure: Failure | None) -> tuple[list[str], int, Path]:
    """Run the script; return its lines, its status, and the log of calls."""
    data, log = folder / "data", folder / "calls"
    data.mkdir()
    done = subprocess.run(
        [*_PYTHON, _SCRIPT, str(data)],
        capture_output=True,
        text=True,
        check=False,
        env=preloading(built, data, log=log, failure=failure),
    )
    return done.stdout.splitlines(), done.returncode, log


def test_calls_below_the_directory_are_counted(built: Path, tmp_path: Path) -> None:
    """With descriptors, relative paths, both paths of a rename; but nothing that is beside the directory."""
    lines, status, log = run(built, tmp_path, None)
    assert (len(lines), status) == (10, 0)
    data = tmp_path / "data"
    assert [(call.name.replace("64", ""), call.path, call.new_path) for call in calls_in(log)] == [
        ("open", f"{data}/a", ""),
        ("pwritevv2", f"{data}/a", ""),
        ("fdatasync", f"{data}/a", ""),
        ("write", f"{data}/a", ""),
        ("posix_fallocate", f"{data}/a", ""),
        ("ftruncate", f"{data}/a", ""),
        ("rename", f"{data}/a", f"{data}/b"),
        ("mkdir", f"{data}/d", ""),
        ("rmdir", f"{data}/d", ""),
        ("unlink", f"{data}/b", ""),
    ]


def test_one_call_fails_and_the_next_ones_succeed(built: Path, tmp_path: Path) -> None:
    """EIO at the third call that matches; the others are made."""
    failure = Failure("EIO", at=3, match="(.*write.*|ftruncate.*):.*|rename:.*/b")
    lines, _, log = run(built, tmp_path, failure)
    assert lines[4:6] == ["ftruncate Input/output error", "replace None"]
    assert [call.name.replace("64", "") for call in calls_in(log)] == [
        "pwritevv2",
        "write",
        "ftruncate",
        "rename",
    ]


def test_calls_fail_for_good(built: Path, tmp_path: Path) -> None:
    """From the fourth on; the function that returns its error does so."""
    lines, _, _ = run(built, tmp_path, Failure("ENOSPC", at=4, times=None))
    full = "No space left on device"
    assert lines[1:6] == [
        "fdatasync None",
        f"write {full}",
        f"posix_fallocate {full}",
        f"ftruncate {full}",
        f"replace {full}",
    ]
    assert "write 9" in lines


def test_a_write_is_short(built: Path, tmp_path: Path) -> None:
    """Its first bytes are there; the first buffer of several is the one that is cut."""
    lines, _, _ = run(built, tmp_path, Failure("short", at=1, times=None, match=library.WRITES))
    assert lines[0] == "pwritev 3"
    assert lines[2] == "write 7"


@pytest.mark.parametrize(("match", "left"), [("pwritev.*:.*/a", b"hel"), ("fdatasync:.*", b"hello world")])
def test_the_process_is_killed(match: str, left: bytes, built: Path, tmp_path: Path) -> None:
    """In a write behind its first bytes, else before the call."""
    _, status, log = run(built, tmp_path, Failure("kill", at=1, match=match))
    assert status == -signal.SIGKILL
    assert len(calls_in(log)) == 1
    assert (tmp_path / "data" / "a").read_bytes() == left


def test_strace_sees_the_same(built: Path, tmp_path: Path) -> None:
    """And nothing else, where it is."""
    if obstacle := why_not():
        pytest.skip(obstacle)
    data, log = tmp_path / "data", tmp_path / "calls"
    data.mkdir()
    watched = Strace(tmp_path, data)
    subprocess.run(
        [*watched.prefix, *_PYTHON, _TREE, str(data)],
        check=True,
        capture_output=True,
        env=preloading(built, data, log=log),
    )
    assert watched.unseen(calls_in(log)) == []
    assert watched.unseen(calls_in(log)[1:]) == ["mkdir: 1 by the library, 2 by strace"]


def test_what_strace_has_seen() -> None:
    """Calls that the library cannot see count, too: maps and rings; data that looks like a path does not."""
    lines = [
        '12 openat(AT_FDCWD</w>, "/d/a", O_RDWR|O_CREAT, 0644) = 3</d/a>',
        '12 openat(AT_FDCWD</w>, "/d/a", O_RDONLY) = 3</d/a>',
        '13 pwritev2(3</d/a>, [{iov_base="x", iov_len=1}], 1, 0, 0 <unfinished ...>',
        "13 <... pwritev2 resumed>) = 1",
        '12 write(5</log>, "1\\topen64\\t/d/a\\n", 14) = 14',
        '12 rename("/d/a", "/elsewhere/b") = 0',
        '12 unlinkat(4</d>, "x", 0) = 0',
        "12 mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_SHARED, 3</d/a>, 0) = 0x7f",
        "12 mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, 3</d/a>, 0) = 0x7f",
        "12 io_uring_setup(8, 0x7f) = 6",
        "12 fsync(7</data/a>) = 0",
    ]
    assert seen_in(lines, "/d") == Counter(
        {"openat": 1, "pwritev": 1, "rename": 1, "unlinkat": 1, "mmap": 1, "io_uring_setup": 1}
    )


def test_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said by name what is missing."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoLibraryError, match="neither gcc nor cc is on the path"):
        compiled(tmp_path)
