"""``splashdam pipeline audit``: check a whole log directory with many workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from splashdam.cli.commands import OnceCommand
from splashdam.cli.exiting import file_failures_reported
from splashdam.cli.output import counted, print_line, write_file
from splashdam.cli.parameters import OutputPath, pairs
from splashdam.cli.pipeline.query_progress import print_summary, task_progress
from splashdam.cli.pipeline.spark import on_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from splashdam.pipeline.audit.report import AuditReport
    from splashdam.pipeline.plans import Plan


def _plan(
    *,
    directory: str,
    page_path: Path | None,
    compacted: Sequence[str],
    headers_only: bool,
    storage: dict[str, str],
    **_: Any,
) -> Plan:
    from splashdam.pipeline.plans.jobs import audit_plan

    is_local = "://" not in directory
    if storage and is_local:
        raise click.UsageError(
            f"--storage {next(iter(storage))} is for object storage, and {directory} is a folder on a disk"
        )
    if page_path and is_local and page_path.resolve().is_relative_to(Path(directory).resolve()):
        raise click.UsageError(
            f"--report {page_path} is inside {directory}, where nothing is changed: name a file elsewhere"
        )
    page = None if page_path is None else str(page_path)
    return audit_plan(
        directory, compacted=compacted, with_files=not headers_only, storage=storage, report=page
    )


def _there(_context: click.Context, _parameter: click.Parameter, directory: str) -> str:
    if "://" not in directory and not Path(directory).is_dir():
        raise click.BadParameter(f"{directory} is not a directory")
    return directory


def _without_broker_hints(command: Callable[..., None]) -> Callable[..., None]:
    """Report failures of files without hints about brokers: none is asked."""

    @wraps(command)
    def run(*args: Any, **arguments: Any) -> None:
        with file_failures_reported():
            command(*args, **arguments)

    return run


@click.command(
    cls=OnceCommand,
    example="splashdam pipeline audit ./data --report audit.html",
    short_help="Check a log directory of any size, with a report page.",
)
@click.argument("directory", metavar="DIR", callback=_there)
@click.option(
    "--report",
    "page_path",
    type=OutputPath(),
    help="Write a report with pictures to this file (HTML).",
)
@click.option(
    "--compacted",
    metavar="TOPIC",
    multiple=True,
    help="Compaction explains gaps in this topic. Repeatable. Default: the topics in the directory's "
    "cleaner-offset-checkpoint.",
)
@click.option(
    "--headers-only",
    is_flag=True,
    help="Do not check records within batches, indexes and other files, which is most of the work.",
)
@click.option(
    "--storage",
    "storage",
    metavar="NAME=VALUE",
    multiple=True,
    callback=pairs,
    help="A setting of object storage, for example endpoint_override=localhost:9000. Repeatable.",
)
@click.option("--quiet", is_flag=True, help="Print errors only, no notes.")
@_without_broker_hints
@on_spark(_plan)
def audit(
    spark: SparkSession,
    *,
    directory: str,
    page_path: Path | None,
    compacted: Sequence[str],
    headers_only: bool,
    storage: dict[str, str],
    quiet: bool,
) -> None:
    """Audit DIR, a data directory or that of one partition, on a disk or in object storage (s3://…).

    Finds gaps and duplicates in offsets, wrong checksums, wrong sequence numbers and epochs of producers,
    open transactions, and, on a disk, what verify-log finds in records, indexes and other files. Gaps that
    compaction explains and transaction markers are not findings. Nothing is changed. The status is 0 if all
    is sound, 1 if there are errors.
    """
    from splashdam.pipeline.audit.run import audit as run
    from splashdam.storage.inspect.verify import EmptyPartitions

    with task_progress(spark):
        report = run(spark, directory, compacted=compacted, with_files=not headers_only, storage=storage)
    empty = EmptyPartitions()
    for finding in report.findings:
        if not empty.takes(finding.level, finding.path, finding.text) and (finding.is_error or not quiet):
            print_line(str(finding))
    if str(empty) and not quiet:
        print_line(f"note: {empty}")
    if page_path is not None:
        from splashdam.pipeline.audit.page import page

        write_file(page_path, page(report))
    _summarize(report, page_path)
    if not report.is_sound:
        raise click.exceptions.Exit(1)


def _summarize(report: AuditReport, page_path: Path | None) -> None:
    from splashdam.pipeline.audit.page import size

    transactions = [partition.transactions for partition in report.partitions]
    rows: list[tuple[str, object]] = [
        ("partitions", len(report.partitions)),
        ("batches", report.batches),
        ("bytes", size(report.size_bytes)),
        ("producers", sum(len(partition.sequences.last) for partition in report.partitions)),
        (
            "transactions",
            f"{sum(each.committed for each in transactions):,} committed, "
            f"{sum(each.aborted for each in transactions):,} aborted, "
            f"{sum(len(each.open) for each in transactions):,} open",
        ),
        ("compacted away", sum(partition.offsets.compacted_offsets for partition in report.partitions)),
        ("seconds", f"{report.seconds:.1f}"),
    ]
    rows += [("skipped", text) for text in report.skipped]
    if page_path is not None:
        rows.append(("report", page_path))
    print_summary(rows)
    print_line(
        f"{counted(report.errors, 'error')}: {counted(report.records, 'record')}, "
        f"{counted(report.gaps, 'gap')}, {counted(report.duplicates, 'duplicate')}"
    )
