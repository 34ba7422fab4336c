"""The score of a suite that others wrote: a failure counts unless its reason is known."""

from __future__ import annotations

from pathlib import Path

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
    counts, surprises = score(tmp_path / "report.xml", DIFFERS)
    assert counts == {"passed": 1, "skipped": 1, "known to differ": 1, "failed": 2}
    assert surprises == ["bad", "worse"]


def test_a_suite_whose_tests_were_all_skipped_had_passed(tmp_path: Path) -> None:
    """kafka-python's skip themselves where they do not find the broker's version."""
    (tmp_path / "report.xml").write_text("<testsuite><testcase name='left'><skipped/></testcase></testsuite>")
    assert score(tmp_path / "report.xml", DIFFERS)[1] == ["no test has passed"]
