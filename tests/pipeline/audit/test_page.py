"""The report page: one file with everything in it, readable as XML, and no text of a log taken for markup."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from support.kafka.make_golden import GOLDEN
from support.pipeline.audit_kit import WHERE, audited, batch, stretch

from splashdam.model.values import TopicPartition
from splashdam.pipeline.audit.figures import FINEST_MS, MOST_BARS, BytesOverTime, power_of_two
from splashdam.pipeline.audit.page import SHOWN_FINDINGS, moment, page, size
from splashdam.pipeline.audit.report import AuditReport, report_of


def pictures(text: str) -> list[ElementTree.Element]:
    """All SVG pictures of a page, parsed."""
    return [ElementTree.fromstring(each) for each in re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL)]


def test_page_of_a_sound_directory() -> None:
    """Totals, five pictures, a row for each partition, and nothing fetched from elsewhere."""
    text = page(audited(GOLDEN / "kafka-4.3.1"))
    assert "Sound: no errors" in text
    assert len(pictures(text)) == 5
    for name in ("appended-0", "codecs-0", "compacted-0", "transactions-0"):
        assert f"<td>{name}</td>" in text
    assert not re.search(r"<script|<link|src=|href=|url\(", text)
    assert "prefers-color-scheme: dark" in text


def test_findings_are_shown() -> None:
    """In the table, and in red on the map."""
    text = page(report_of("data", [stretch(batch(0, 5), batch(8), batch(8))], []))
    assert '<p class="verdict bad">2 errors</p>' in text
    assert "no offsets from 5 to 7" in text
    (loss, again) = (each for each in pictures(text)[0] if each.get("class") == "loss")
    assert "missing" in "".join(loss.itertext())
    assert "again" in "".join(again.itertext())


def test_names_are_no_markup() -> None:
    """A path is shown as it is written."""
    whole = stretch(batch(0), batch(5, path="<b>&.log"))
    text = page(report_of("<i>", [whole], []))
    assert "<b>&" not in text.replace('<div class="tile">', "")
    assert "&lt;b&gt;&amp;.log" in text
    assert "<i>" not in text


def test_many_findings() -> None:
    """The page stays small; how many more there are is said."""
    whole = stretch(*(batch(number * 2) for number in range(SHOWN_FINDINGS + 11)))
    assert "and 10 more" in page(report_of("data", [whole], []))


def test_nothing_to_show() -> None:
    """An empty directory is a page, too; what was skipped stands on it."""
    text = page(AuditReport("empty", [], [], skipped=["the indexes"]))
    assert "Not checked: the indexes." in text
    assert page(report_of("one", [stretch()], [])).count("<td>t-0</td>") == 1


def test_partitions_are_in_order() -> None:
    """By topic and number, whatever order their parts came in."""
    parts = [stretch(batch(0)), stretch()]
    parts[1].where = TopicPartition("s", 3)
    assert [part.where for part in report_of("x", parts, []).partitions] == [("s", 3), WHERE]


def test_bars_become_coarser() -> None:
    """However long the time is, the bars are few and hold every byte."""
    over_time = BytesOverTime()
    for number in range(5000):
        over_time.add(number * FINEST_MS, 10)
    over_time.add(-1, 7)
    other = BytesOverTime()
    other.add(0, 1)
    other.merge(over_time)
    assert other.bars.total() == 50_001
    assert len(other.bars) <= MOST_BARS
    assert other.untimed_bytes == 7
    assert other.width_ms == over_time.width_ms > FINEST_MS


@pytest.mark.parametrize(("number", "power"), [(0, 0), (1, 0), (2, 1), (8192, 13), (8193, 14)])
def test_powers(number: int, power: int) -> None:
    """The least power of two that is not below."""
    assert power_of_two(number) == power


def test_words() -> None:
    """Bytes and times as people read them, whatever stands in a batch."""
    assert [size(1023), size(1536), size(1 << 30)] == ["1,023 bytes", "1.5 KiB", "1.0 GiB"]
    assert moment(0) == "1970-01-01 00:00"
    assert moment(1 << 62) == f"{1 << 62} ms"


def test_source_is_named(tmp_path: Path) -> None:
    """The title says what was audited."""
    assert f"<title>Audit of {tmp_path}</title>" in page(AuditReport(str(tmp_path), [], []))
