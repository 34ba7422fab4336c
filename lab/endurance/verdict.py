"""What a run comes to: the books beside the logs, the directories verified, all of it in a table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import attrs
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from lab.endurance.checking import compare, empty_log, read_back

ISOLATIONS = ("read_committed", "read_uncommitted")


@attrs.frozen
class Verdict:
    """Promises that were broken, and figures by their names."""

    violations: list[str]
    facts: list[tuple[str, str]]


def compared_with_log(
    address: str, taken: dict[str, list[int]], folder: Path, isolation: str, console: Console
) -> Verdict:
    """Reads everything back with kafka-python and compares it with the ledgers.

    Args:
        address: where clients find the brokers.
        taken: how many records each stream sent to each partition.
        folder: of the ledgers.
        isolation: Kafka's isolation level.
        console: shows how far it is.
    """
    log = empty_log(taken)
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), console=console
    ) as bar:
        task = bar.add_task(isolation, total=sum(map(sum, taken.values())))
        violations = read_back(address, log, isolation, lambda count: bar.advance(task, count))
    violations += compare(log, isolation, sorted(folder.glob("*.ledger")))
    found = sum(sum(each.times) for each in log.values())
    return Verdict(violations, [(f"records found, {isolation}", f"{found:,}")])


def verified_directory(path: Path) -> Verdict:
    """What ``splashdam verify-log`` says of a data directory that nobody uses."""
    command = [sys.executable, "-m", "splashdam.cli", "verify-log", "--quiet", str(path)]
    verified = subprocess.run(command, capture_output=True, text=True, check=False)
    facts = [("verify-log", verified.stdout.strip().splitlines()[-1])]
    wrong = f"verify-log: {verified.stdout[-2000:]}{verified.stderr[-2000:]}"
    return Verdict([wrong] if verified.returncode else [], facts)


def summary(name: str, seed: int, verdict: Verdict, console: Console) -> int:
    """Prints everything; the status of the command."""
    table = Table(show_header=False, box=None)
    for fact in verdict.facts:
        table.add_row(*fact)
    console.print(table)
    for violation in verdict.violations:
        console.print(f"violated: {violation}", markup=False, highlight=False, soft_wrap=True)
    print(f"{name}: {len(verdict.violations)} promises broken (seed {seed})")
    return int(bool(verdict.violations))
