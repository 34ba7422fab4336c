"""The score of a suite that others wrote: a failure counts unless its reason is known."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lab import aiokafka_suite, suites
from lab.suites import DIFFERS, score


def test_the_score_names_unexpected_failures(tmp_path: Path) -> None:
    """Errors in a fixture are failures, too."""
    known = next(iter(DIFFERS))
    (tmp_path / "report.xml").write_text(
        "<testsuites><testsuite>"
        "<testcase name='good'/><testcase name='left'><skipped/></testcase>"
        f"<testcase name='{known}'><failure/></testcase>"
        "<testcase name='bad'><failure/></testcase><testcase name='worse'><error/></testcase>"
        "</testsuite></testsuites>"
    )
    counts, surprises = score(tmp_path / "report.xml", DIFFERS, 1)
    assert counts == {"passed": 1, "skipped": 1, "known to differ": 1, "failed": 2}
    assert surprises == ["bad", "worse"]


def test_a_suite_whose_tests_were_all_skipped_had_passed(tmp_path: Path) -> None:
    """kafka-python's skip themselves where they do not find the broker's version."""
    (tmp_path / "report.xml").write_text("<testsuite><testcase name='left'><skipped/></testcase></testsuite>")
    assert score(tmp_path / "report.xml", DIFFERS, 0)[1] == ["no test has passed"]


def test_a_suite_that_pytest_did_not_end_had_passed(tmp_path: Path) -> None:
    """pytest reports the tests that ran before it stopped; for a wrong argument it writes no report."""
    report = tmp_path / "report.xml"
    assert score(report, DIFFERS, 4)[1] == ["pytest ended with status 4"]
    report.write_text("<testsuite><testcase name='good'/></testsuite>")
    assert score(report, DIFFERS, 3) == ({"passed": 1}, ["pytest ended with status 3"])


@pytest.mark.parametrize(("argument", "status"), [("--help", 0), ("--fast", 2)])
def test_a_question_started_the_suite(
    argument: str, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Any argument did."""
    monkeypatch.setattr(sys, "argv", ["suites", argument])
    with pytest.raises(SystemExit) as end:
        suites.main()
    assert end.value.code == status
    with pytest.raises(SystemExit) as end:
        aiokafka_suite.main([argument])
    assert end.value.code == status
    assert "usage: python -m lab.aiokafka_suite" in "".join(capsys.readouterr())


def test_a_checkout_that_is_none_was_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    """The sentence names the first file that is missing."""
    with pytest.raises(SystemExit) as end:
        aiokafka_suite.main(["/nope"])
    assert end.value.code == 2
    assert (
        "error: no checkout of aiokafka: /nope/tests/test_producer.py is missing" in capsys.readouterr().err
    )
