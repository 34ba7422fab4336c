"""``make every-write``: some of its runs, one for each kind of failure."""

from __future__ import annotations

import pytest

from lab.every_write import KINDS, Runner, count_operations, run_once
from splashdam.storage.files.memory import MemoryFiles


@pytest.mark.slow
def test_workload_without_a_failure_breaks_no_promise() -> None:
    """And its operations are counted: the same number each time, or the runs would not be all of them."""
    assert count_operations() == count_operations() > 300


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("operation", [40, 170, 300])
def test_one_failure(kind: str, operation: int) -> None:
    """In the records, in a transaction, in the cleaner."""
    assert run_once(kind, operation) == []


def test_what_is_lost_doubled_or_half_there_is_said() -> None:
    """The books of a run, without a broker."""
    runner = Runner(MemoryFiles())
    sent = [b"%d" % number for number in range(6)]
    for topic in ("plain", "compacted"):
        runner.books.sent[topic], runner.books.acknowledged[topic] = sent, set(range(6))
    runner.books.committed = {0, 2}
    runner._compare("plain", sent[:4], is_power_cut=True)
    runner._compare("compacted", sent[3:], is_power_cut=False)
    runner._compare("transactions", [b"0 0", b"0 1", b"2 0", b"2 1"], is_power_cut=False)
    assert runner.violations == []
    runner._compare("plain", sent[:4], is_power_cut=False)
    runner._compare("plain", [*sent, sent[5]], is_power_cut=False)
    runner._compare("plain", [sent[0], sent[2]], is_power_cut=True)
    runner._compare("compacted", sent[2:5], is_power_cut=False)
    runner._compare("transactions", [b"0 0", b"0 1", b"2 0"], is_power_cut=False)
    runner._compare("transactions", [b"0 0", b"0 1"], is_power_cut=False)
    assert [text.partition(": ")[2] for text in runner.violations] == [
        "2 acknowledged records are gone, 4 is the first",
        "records [0, 1, 2, 3, 4, 5, 5]",
        "1 acknowledged records are gone, 1 is the first",
        "1 acknowledged records are gone, 5 is the first",
        "[b'0 0', b'0 1', b'2 0']",
        "[2] are gone",
    ]
