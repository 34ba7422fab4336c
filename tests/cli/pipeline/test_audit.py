"""``splashdam pipeline audit``: output, status and page; what finds the errors is tested elsewhere."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from support.kafka.make_golden import GOLDEN
from support.running.patches import perhaps

pytest.importorskip("pyarrow", reason="needs splashdam[spark]")
from support.pipeline.audit_kit import audited

from splashdam.cli.commands import splashdam
from splashdam.cli.pipeline import spark as on_spark
from splashdam.pipeline.audit import run as auditing


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """No session is started, and what workers do is done here."""

    @contextmanager
    def session(**_: Any) -> Iterator[None]:
        yield None

    def audit(_spark: None, path: str, *, compacted: tuple[str, ...], **_: Any) -> Any:
        return audited(Path(path), compacted=compacted)

    because = "what is written wrongly is refused before"
    monkeypatch.setattr(on_spark, "session", perhaps(session, because=because))
    monkeypatch.setattr(auditing, "audit", perhaps(audit, because=because))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(splashdam, ["pipeline", "audit", *arguments])


def test_a_sound_directory(tmp_path: Path) -> None:
    """Notes, a summary, the page; status 0."""
    result = run(str(GOLDEN / "kafka-4.3.1"), "--report", str(tmp_path / "audit.html"))
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0].startswith("note: transaction: ")
    assert lines[-1] == "0 errors: 648 records, 0 gaps, 0 duplicates"
    assert "transactions    2 committed, 1 aborted, 1 open" in lines
    assert (tmp_path / "audit.html").read_text().startswith("<!DOCTYPE html>")


def test_empty_internal_partitions_are_one_line(tmp_path: Path) -> None:
    """As of verify-log; one of another topic stays a note of its own, and --quiet leaves out both."""
    shutil.copytree(GOLDEN / "kafka-4.3.1", tmp_path / "data")
    for name in ("__consumer_offsets-47", "__consumer_offsets-48", "__transaction_state-49", "orders-0"):
        (tmp_path / "data" / name).mkdir()
        (tmp_path / "data" / name / f"{0:020d}.log").touch()
    lines = run(str(tmp_path / "data")).output.splitlines()
    notes = [line.partition(": ")[2] for line in lines if " empty segment" in line or "note: empty" in line]
    assert notes == [
        f"file: {tmp_path}/data/orders-0/{0:020d}.log: an empty segment",
        "empty partitions: 2 of __consumer_offsets, 1 of __transaction_state",
    ]
    assert "empty partitions" not in run("--quiet", str(tmp_path / "data")).output


def test_a_damaged_one(tmp_path: Path) -> None:
    """Errors with file, byte and offset; status 1. --quiet leaves out the notes."""
    shutil.copytree(GOLDEN / "kafka-4.3.1", tmp_path / "data")
    (tmp_path / "data" / "codecs-0" / f"{100:020d}.log").unlink()
    result = run("--quiet", str(tmp_path / "data"))
    assert result.exit_code == 1
    behind = tmp_path / "data" / "codecs-0" / f"{150:020d}.log"
    assert f"error: gap: {behind}, byte 0: offset 150: no offsets from 100 to 149" in result.output
    assert "note: " not in result.output
    assert ", 1 gap, 0 duplicates" in result.output.splitlines()[-1]


def test_compacted_topics_are_named(tmp_path: Path) -> None:
    """Where no checkpoint tells of them."""
    shutil.copytree(GOLDEN / "kafka-4.3.1", tmp_path / "data")
    (tmp_path / "data" / "cleaner-offset-checkpoint").unlink()
    assert run(str(tmp_path / "data")).exit_code == 1
    assert run(str(tmp_path / "data"), "--compacted", "compacted").exit_code == 0


def test_directories_without_a_log(tmp_path: Path) -> None:
    """One message, status 1; a setting of storage without a value is wrong usage."""
    result = run(str(tmp_path))
    assert (result.exit_code, "neither a data directory" in result.output) == (1, True)
    assert run(str(tmp_path), "--storage", "region").exit_code == 2


def test_an_audit_gave_advice_about_a_broker(tmp_path: Path) -> None:
    """It asks none: the advice was to read the log of one, and to free its disk."""
    result = run(str(tmp_path), "--plan")
    assert result.exit_code == 1
    assert (
        result.output == f"Error: {tmp_path} is neither a data directory nor the directory of a partition\n"
    )


def test_a_report_replaced_a_segment_of_the_log(tmp_path: Path) -> None:
    """Also through a link; one beside the directory is fine."""
    log = tmp_path / "data" / "t-0" / "00000000000000000000.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"records")
    (tmp_path / "link").symlink_to(log.parent)
    for report in (log, tmp_path / "link" / "audit.html"):
        result = run(str(tmp_path / "data"), "--report", str(report))
        assert (result.exit_code, "where nothing is changed" in result.output) == (2, True), result.output
    assert log.read_bytes() == b"records"
    assert (
        "where nothing is changed"
        not in run(str(tmp_path / "data"), "--report", str(tmp_path / "audit.html"), "--plan").output
    )


def test_a_setting_of_storage_was_ignored_for_a_folder() -> None:
    """A misspelled address, and one that was forgotten, audited the folder of that name."""
    result = run(str(GOLDEN / "kafka-4.3.1"), "--storage", "nope=1", "--plan")
    assert result.exit_code == 2
    assert "--storage nope is for object storage, and" in result.output


@pytest.mark.parametrize(
    "arguments", [("gone",), (".", "--report", "gone/audit.html"), (".", "--memory", "1x")]
)
def test_wrong_arguments_are_reported_before_a_jvm_starts(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing directory, a page that could not be written after the audit, a heap that no JVM takes."""
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.output.splitlines()[-1].startswith("Error: Invalid value for ")
