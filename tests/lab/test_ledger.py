"""Ledgers and comparison find every fault that is put into the log or into the ledgers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.ledger import Fate, Ledger, add_record, compare, empty_log, fate_of, value_of
from lab.memory import Curve
from splashdam.model.errors import (
    KafkaConnectionError,
    KafkaTimeoutError,
    PurgedError,
    TransactionAbortedError,
)

COUNT = 5
"""Records in partition 0; what is true of them, or not, is put into number 2."""

Numbers = list[int]


def ledger_of(folder: Path, fates: dict[int, str], **offsets: int) -> Path:
    """A ledger: all acknowledged, but for ``fates``; offsets only where they are given as ``at_<number>``."""
    ledger = Ledger(folder, "one")
    for number in range(COUNT):
        assert ledger.take(0) == number
        if number in fates and not fates[number]:
            continue
        ledger.note(0, number, Fate[fates.get(number, "ACKNOWLEDGED")], offsets.get(f"at_{number}", -1))
    ledger.close()
    return folder / "one.ledger"


def found(
    numbers: Numbers, ledger: Path, isolation: str, spoil: Callable[[bytes], bytes] = bytes
) -> list[str]:
    """The violations of a log that holds these numbers."""
    log = empty_log({"one": [COUNT, 0, 0, 0]})
    for offset, number in enumerate(numbers):
        add_record(log, 0, offset, spoil(value_of("one", 0, number)))
    return compare(log, isolation, [ledger])


ALL = list(range(COUNT))
WITHOUT = [0, 1, 3, 4]
TWICE = [0, 1, 2, 2, 3, 4]
BOTH = ("read_committed", "read_uncommitted")


@pytest.mark.parametrize("isolation", BOTH)
@pytest.mark.parametrize(
    ("fate", "numbers", "words"),
    [
        ("ACKNOWLEDGED", ALL, None),
        ("ACKNOWLEDGED", WITHOUT, "acknowledged, but missing in the log: 1"),
        ("ACKNOWLEDGED", TWICE, "acknowledged, but in the log more than once: 1"),
        ("ACKNOWLEDGED", [0, 2, 1, 3, 4], "records out of order: 1"),
        ("ACKNOWLEDGED", [*ALL, COUNT], "records that nobody sent: 1"),
        ("PERHAPS_WRITTEN", ALL, None),
        ("PERHAPS_WRITTEN", WITHOUT, None),
        ("PERHAPS_WRITTEN", TWICE, "perhaps written, but in the log more than once: 1"),
        ("NOT_WRITTEN", WITHOUT, None),
        ("NOT_WRITTEN", ALL, "not written, but in the log: 1"),
        ("ABORTED", WITHOUT, None),
        ("", ALL, "futures that nobody resolved: 1"),
    ],
)
def test_lies_are_found(
    tmp_path: Path, isolation: str, fate: str, numbers: Numbers, words: str | None
) -> None:
    """A true claim is no violation."""
    complaints = found(numbers, ledger_of(tmp_path, {2: fate}), isolation)
    assert len(complaints) == (words is not None), complaints
    assert words is None or complaints[0].endswith(words)


def test_aborted_records_are_seen_by_readers_of_everything_alone(tmp_path: Path) -> None:
    """Readers of committed data must not see them."""
    ledger = ledger_of(tmp_path, {2: "ABORTED"})
    assert found(ALL, ledger, "read_uncommitted") == []
    assert found(ALL, ledger, "read_committed") == ["read_committed: one: records aborted, but in the log: 1"]


def test_offsets_and_contents_are_compared(tmp_path: Path) -> None:
    """The offset of the result, and every byte."""
    ledger = ledger_of(tmp_path, {}, at_2=2, at_3=7)
    assert "another offset" in found(ALL, ledger, "read_committed")[0]
    spoilt = found(ALL, ledger, "read_uncommitted", lambda value: value + b"!")
    assert "changed value: 5" in spoilt[0]


def test_a_record_with_two_results_is_found(tmp_path: Path) -> None:
    """A callback that runs again."""
    ledger = ledger_of(tmp_path, {})
    ledger.write_bytes(ledger.read_bytes() + ledger.read_bytes()[:14])
    assert found(ALL, ledger, "read_committed") == [
        "read_committed: one: records with more than one result: 1"
    ]


@pytest.mark.parametrize(
    ("error", "fate"),
    [
        (TransactionAbortedError("t"), "NOT_WRITTEN"),
        (PurgedError("3 records for t-0 were purged; they were not sent"), "NOT_WRITTEN"),
        (PurgedError("3 records for t-0 were purged; they may have been written"), "PERHAPS_WRITTEN"),
        (KafkaTimeoutError("not within 5 ms, 0 attempts failed; last failure: none"), "NOT_WRITTEN"),
        (
            KafkaTimeoutError("0 attempts failed; the broker has not answered the last one; "),
            "PERHAPS_WRITTEN",
        ),
        (KafkaTimeoutError("not within 5 ms, 10 attempts failed; last failure: none"), "PERHAPS_WRITTEN"),
        (KafkaConnectionError("lost"), "PERHAPS_WRITTEN"),
    ],
)
def test_fates_by_errors(error: Any, fate: str) -> None:
    """Whether a record may be there."""
    assert fate_of(error).name == fate


def test_growing_memory_is_a_violation() -> None:
    """Growth is the slope of the best fit after the warm-up; a peak is no violation."""
    mib = 1 << 20
    flat, growing, short = (Curve(name, 8 * mib) for name in ("flat", "growing", "short"))
    for second in range(600):
        flat.add(second, (20 * mib if second < 100 else 50 * mib) + second % 7 * mib)
        growing.add(second, 50 * mib + second * mib // 40)
    for second in range(60):
        short.add(second, second * mib)
    assert flat.violations() == []
    assert short.violations() == []
    assert growing.violations() == ["growing grew by 11.2 MiB, 8.0 MiB are allowed"]
    assert "too short to judge" in short.drawn()
