"""``splashdam verify-log``: check a data directory, or one partition of it, for damage."""

from __future__ import annotations

import click

from splashdam.cli.commands import OnceCommand
from splashdam.cli.exiting import file_failures_reported
from splashdam.cli.output import bytes_read, counted, print_line
from splashdam.storage.inspect.verify import (
    EmptyPartitions,
    Finding,
    Level,
    Totals,
    cleaning_notes,
    log_bytes,
    partition_directories,
    verify_partition,
    verify_root,
)


@click.command("verify-log", cls=OnceCommand, example="splashdam verify-log ./data --quiet")
@click.argument("directory", metavar="DIR", type=click.Path())
@click.option(
    "--contiguous", is_flag=True, help="Report a gap between offsets as an error; compaction leaves gaps."
)
@click.option("--quiet", is_flag=True, help="Print errors only, no notes.")
def verify_log(directory: str, contiguous: bool, quiet: bool) -> None:
    """Check a data directory, or the directory of one partition: every batch and record, checksums, indexes,
    snapshots, checkpoints, and files that do not belong.

    Nothing is changed. The status is 0 if all is sound, 1 if there is damage. Preallocated zeros, empty
    segments and gaps between offsets are notes; so is how far a partition is compacted.
    """
    errors = notes = 0
    empty = EmptyPartitions()
    totals = Totals()
    with file_failures_reported():
        partitions = partition_directories(directory)
        with bytes_read(log_bytes(partitions)) as on_bytes:
            # Lists of generators: the work is done below, under the progress bar, and findings are printed as
            # they come.
            found = [verify_root(directory)] if partitions != [directory] else []
            found += [
                verify_partition(partition, totals, contiguous=contiguous, on_bytes=on_bytes)
                for partition in partitions
            ]
            found.append(cleaning_notes(partitions))
            for findings in found:
                for finding in findings:
                    if empty.takes(finding.level, finding.path, finding.text):
                        continue
                    errors += finding.level is Level.ERROR
                    notes += finding.level is Level.NOTE
                    if finding.level is Level.ERROR or not quiet:
                        print_line(_line(finding))
    if str(empty):
        notes += 1
        if not quiet:
            print_line(f"note: {empty}")
    print_line(
        f"{counted(errors, 'error')}, {counted(notes, 'note')} in {counted(totals.partitions, 'partition')}: "
        f"{counted(totals.segments, 'segment')}, {totals.batches:,} "
        f"{'batch' if totals.batches == 1 else 'batches'}, {counted(totals.records, 'record')}"
    )
    if errors:
        raise click.exceptions.Exit(1)


def _line(finding: Finding) -> str:
    where = finding.path if finding.position is None else f"{finding.path}, byte {finding.position}"
    return f"{finding.level.value}: {where}: {finding.text}"
