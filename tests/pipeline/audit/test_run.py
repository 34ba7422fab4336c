"""The audit by Spark's workers: what it finds is what one process finds."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.kafka.make_golden import GOLDEN

pytest.importorskip("pyarrow", reason="needs splashdam[spark]")
from support.pipeline.audit_kit import audited

from splashdam.pipeline.audit.checks import Stretch
from splashdam.pipeline.audit.run import ONLY_ON_DISK, audit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def totals(partitions: list[Stretch]) -> list[tuple[object, ...]]:
    """Figures of each partition."""
    return [(each.where, each.figures, each.offsets, each.transactions.open) for each in partitions]


@pytest.mark.spark
def test_workers_and_one_process_find_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """Damage in batches and in an index, compaction, transactions: the same report."""
    root = tmp_path / "data"
    shutil.copytree(GOLDEN / "kafka-4.3.1", root)
    path = root / "codecs-0" / f"{50:020d}.log"
    data = bytearray(path.read_bytes())
    data[90] ^= 1
    path.write_bytes(data)
    (root / "codecs-0" / f"{100:020d}.log").unlink()
    (root / "appended-0" / f"{7:020d}.index").touch()
    report, expected = audit(spark, str(root)), audited(root)
    assert report.findings == expected.findings
    assert totals(list(report.partitions)) == totals(list(expected.partitions))
    assert (report.errors > 3, report.gaps, report.skipped) == (True, 1, [])


@pytest.mark.spark
def test_files_are_not_checked_in_object_storage(spark: SparkSession, tmp_path: Path) -> None:
    """The batches are audited, and the report lists what was skipped."""
    shutil.copytree(GOLDEN / "kafka-4.3.1", tmp_path / "data")
    report = audit(spark, f"local://{tmp_path / 'data'}")
    assert (report.records, report.gaps, report.skipped) == (648, 0, [ONLY_ON_DISK])
