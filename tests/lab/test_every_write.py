"""``make every-write``: some of its runs, one for each kind of failure."""

from __future__ import annotations

import signal
from pathlib import Path

import attrs
import pytest

from lab.every_write import in_process
from lab.every_write.in_memory import KINDS, count_operations, run_once
from lab.every_write.in_process import broken_words, points_of
from lab.every_write.workload import Books
from lab.failing_calls.library import Call, Failure, NoLibraryError, compiled


@pytest.mark.slow
def test_workload_without_a_failure_breaks_no_promise() -> None:
    """And its operations are counted: the same number each time, or the runs would not be all of them."""
    assert count_operations() == count_operations() > 400


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("operation", [40, 200, 430])
def test_one_failure(kind: str, operation: int) -> None:
    """In the records, in a transaction, in the cleaner."""
    assert run_once(kind, operation) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", in_process.KINDS)
def test_one_failure_of_a_process(kind: str, tmp_path: Path) -> None:
    """In the records of ``splashdam broker``."""
    try:
        library = compiled(tmp_path)
    except NoLibraryError as error:
        pytest.skip(str(error))
    run = in_process.run_once(library, tmp_path, attrs.evolve(in_process.KINDS[kind], at=85))
    assert run.violations == []
    assert run.failed is not None


def test_what_is_lost_doubled_or_half_there_is_said() -> None:
    """The books of a run, without a broker."""
    books = Books()
    sent = [b"%d" % number for number in range(24)]
    for topic in ("plain", "compacted", "retained"):
        books.sent[topic], books.acknowledged[topic] = sent, set(range(6))
    books.acknowledged["retained"] = set(range(24))
    books.committed = {0, 2}
    books.compare("plain", sent[:4], is_power_cut=True)
    books.compare("compacted", sent[3:6], is_power_cut=False)
    books.compare("retained", sent[12:], is_power_cut=False)
    books.compare("transactions", [b"0 0", b"0 1", b"2 0", b"2 1"], is_power_cut=False)
    assert books.violations == []
    books.compare("plain", sent[:4], is_power_cut=False)
    books.compare("plain", [*sent[:6], sent[5]], is_power_cut=False)
    books.compare("plain", [sent[0], sent[2]], is_power_cut=True)
    books.compare("compacted", sent[2:5], is_power_cut=False)
    books.compare("retained", sent[12:20], is_power_cut=False)
    books.compare("retained", [], is_power_cut=False)
    books.compare("transactions", [b"0 0", b"0 1", b"2 0"], is_power_cut=False)
    books.compare("transactions", [b"0 0", b"0 1"], is_power_cut=True)
    assert [text.partition(": ")[2] for text in books.violations] == [
        "2 acknowledged records are gone, 4 is the first",
        "records [0, 1, 2, 3, 4, 5, 5]",
        "1 acknowledged records are gone, 1 is the first",
        "1 acknowledged records are gone, 5 is the first",
        "4 acknowledged records are gone, 20 is the first",
        "10 acknowledged records are gone, 14 is the first",
        "[b'0 0', b'0 1', b'2 0']",
        "[2] are gone",
    ]


_FAILURE = Failure("EIO", at=1)
_CALL = Call(1, "fsync", "/data/plain-0/0.log", "")
_TOLD = "cannot append: /data/plain-0/0.log: Input/output error"


@pytest.mark.parametrize(
    ("failure", "status", "output", "refusals"),
    [
        (None, 0, "", []),
        (_FAILURE, 0, "", []),
        (_FAILURE, 0, _TOLD, ["refused"]),
        (_FAILURE, 0, "", [_TOLD]),
        (_FAILURE, 1, f"Error: {_TOLD}", []),
        (Failure("kill", at=1), -signal.SIGKILL, "", ["the connection broke"]),
    ],
)
def test_an_end_that_is_documented(
    failure: Failure | None, status: int, output: str, refusals: list[str]
) -> None:
    """The broker goes on, or says why it cannot."""
    assert broken_words(failure, _CALL if failure else None, status, output, refusals) == []


@pytest.mark.parametrize(
    ("failure", "status", "output", "refusals"),
    [
        (None, 0, "checkpointing failed", []),
        (None, 0, "", ["refused"]),
        (None, None, "", []),
        (_FAILURE, 0, "", ["refused"]),
        (_FAILURE, 0, "Traceback (most recent call last)", []),
        (_FAILURE, 1, _TOLD, []),
        (_FAILURE, 1, "Error: the disk fails", []),
        (_FAILURE, -signal.SIGSEGV, _TOLD, []),
        (Failure("kill", at=1), 0, "", []),
    ],
)
def test_an_end_that_is_not(
    failure: Failure | None, status: int | None, output: str, refusals: list[str]
) -> None:
    """Each of these is one broken promise."""
    assert len(broken_words(failure, _CALL if failure else None, status, output, refusals)) == 1


def test_each_call_has_a_run_for_each_kind() -> None:
    """Only a call with data can be short."""
    calls = [Call(1, "open64", "/a", ""), Call(2, "pwritev64v2", "/a", ""), Call(3, "rename", "/a", "/b")]
    points = points_of(calls)
    assert len(points) == 3 * (len(in_process.KINDS) - 1) + 1
    assert ("a short write", 1) in points
    assert ("EIO once", 3) in points
