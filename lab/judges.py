"""Runs every check that `make test` leaves out, as one list that can be resumed: ``make judges``.

Each judge is a `make` target. Its closing line and status are stored in ``build/judges.json``, with the date,
the duration and the commit of the product's code. A run continues with the judges that have not passed on
that commit; a judge whose tools are missing is reported and not run. ``--list`` prints the table, ``--only
storm,fuzz`` runs some again, ``--page`` writes the last complete run into docs/reference/contract.md.

A status of 0 is no pass by itself: pytest returns it also if every test was skipped. A judge passes with its
closing line.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import attrs
from rich.console import Console
from rich.table import Table

from lab import ROOT
from lab.trial import CANNOT_RUN

STATE = ROOT / "build" / "judges.json"
PAGE = ROOT / "docs" / "reference" / "contract.md"
BEGIN, END = "<!-- judges: make judges -->\n", "<!-- end of judges -->\n"
PASSED, FAILED, NOT_HERE = "passed", "failed", "not possible here"
PYTEST = r"\d+ (passed|failed|error)"
REMEDIES = {
    "java": "a JDK, version 17 or later (Debian: openjdk-17-jdk-headless)",
    "javac": "a JDK, version 17 or later (Debian: openjdk-17-jdk-headless)",
    "mvn": "Maven (Debian: maven)",
    "gcc": "gcc (Debian: gcc)",
    "node": "Node.js (Debian: nodejs)",
    "npm": "npm (Debian: npm)",
    "go": "Go (Debian: golang-go)",
    "krb5-config": "Kerberos' headers (Debian: libkrb5-dev)",
    "krb5kdc": "a KDC of Kerberos (Debian: krb5-kdc krb5-admin-server krb5-user)",
}
"""What to install for a program that is not on the path."""
_KEPT_LINES = 200
_INTERRUPTED = 130


class Judge(NamedTuple):
    """One program that judges the product.

    Attributes:
        name: for ``--only``.
        about: what the product is tested with, or against.
        command: runs the judge; its exit status says whether the product passed.
        needs: programs that must be on the path.
        closing: pattern of the line that sums up the run: the last match is stored. Without a match the run
            judged nothing; its first line that says what was skipped is stored, or its last line.
    """

    name: str
    about: str
    command: Sequence[str]
    needs: Sequence[str] = ()
    closing: str = ""

    def missing(self) -> str:
        """Return why the judge cannot run on this machine; empty if it can."""
        lacking = [program for program in self.needs if shutil.which(program) is None]
        if not lacking:
            return ""
        remedies = dict.fromkeys(REMEDIES[program] for program in lacking if program in REMEDIES)
        install = f"; install {', '.join(remedies)}" if remedies else ""
        return f"{' and '.join(lacking)} not on the path{install}"


JUDGES = (
    Judge("test-rest", "slow tests and Spark's", ("make", "test-rest"), ("java",), PYTEST),
    Judge("kafka", "real Kafka 4.4, 4.3 and 3.9", ("make", "kafka"), ("java", "mvn"), PYTEST),
    Judge(
        "contract",
        "every behaviour, client and cluster",
        ("make", "contract"),
        ("java", "javac", "mvn", "node", "npm", "go"),
        r"^contract: ",
    ),
    Judge("spark-connector", "Spark's own connector", ("make", "spark-connector"), ("java", "mvn"), PYTEST),
    Judge("kerberos", "a KDC of MIT Kerberos", ("make", "kerberos"), ("krb5-config", "krb5kdc"), PYTEST),
    Judge("s3", "moto's object store", ("make", "s3"), (), PYTEST),
    Judge("sanitize", "gcc's sanitizers", ("make", "sanitize"), ("gcc",), r"inputs, "),
    Judge("simulate", "faults in virtual time", ("make", "simulate"), (), r"runs from .* failed"),
    Judge("storm", "three brokers under faults", ("make", "storm"), (), r"^storm: "),
    Judge("soak", "a cluster on small disks, for hours", ("make", "soak"), (), r"^soak: "),
    Judge(
        "every-write",
        "each write fails",
        ("make", "every-write"),
        (),
        r"^every-write: .* runs of a process",
    ),
    Judge("kill-points", "killed at single calls", ("make", "kill-points"), ("gcc",), r"^kill-points: \d"),
    Judge("endurance", "a broker killed every few seconds", ("make", "endurance"), (), r"^endurance: "),
    Judge("fuzz", "hostile requests", ("make", "fuzz"), (), r"rounds, [1-9]\d* requests"),
    Judge("chaos", "killed ingests", ("make", "pipeline-chaos"), ("java",), r"^(verified|violated): "),
    Judge(
        "cluster",
        "killed executors of a Spark cluster",
        ("make", "pipeline-cluster"),
        ("java",),
        r"^(verified|violated): ",
    ),
    Judge("suites", "kafka-python's own tests", ("make", "suites"), (), r"^suites: "),
    Judge("console", "the console in a Chromium", ("make", "console-test"), (), PYTEST),
)


@attrs.frozen
class Ruling:
    """The result of a judge's last run.

    Attributes:
        outcome: `PASSED`, `FAILED` or `NOT_HERE`, which is also said of a run that judged nothing.
        commit: of the product's code, with ``+`` if there were uncommitted changes.
        date: of the end, in UTC.
        seconds: its duration.
        closing: the line that sums it up, or why it cannot run.
    """

    outcome: str
    commit: str
    date: str
    seconds: float
    closing: str


class Court:
    """The judges and their last rulings.

    Args:
        judges: all judges, in their order.
        state: the file with the rulings.
        commit: of the product's code.
        console: for progress and the table.
    """

    def __init__(self, judges: Sequence[Judge], state: Path, commit: str, console: Console) -> None:
        self.judges = judges
        self.rulings = _read(state)
        self._state = state
        self._commit = commit
        self._console = console

    def run(self, only: Sequence[str] = ()) -> int:
        """Run the judges that have not passed on this commit, or those named.

        Returns:
            The status of the command: 1 if one fails, 2 if one that was named cannot run here.
        """
        wanted = [each for each in self.judges if each.name in only or not (only or self._has_passed(each))]
        for judge in wanted:
            self.rulings[judge.name] = self._rule(judge)
            self._keep()
        self.show()
        outcomes = {self.rulings[each.name].outcome for each in wanted}
        if FAILED in outcomes:
            return 1
        return CANNOT_RUN if only and NOT_HERE in outcomes else 0

    def show(self) -> None:
        """Print each judge's last ruling."""
        table = Table("judge", "outcome", "commit", "date", "seconds", "closing line", box=None)
        for judge in self.judges:
            ruling = self.rulings.get(judge.name)
            if ruling is None:
                table.add_row(judge.name, "has not run", "", "", "", judge.about)
                continue
            commit = ruling.commit if ruling.commit == self._commit else f"{ruling.commit} (old code)"
            row = (judge.name, ruling.outcome, commit, ruling.date, f"{ruling.seconds:,.0f}", ruling.closing)
            table.add_row(*row)
        self._console.print(table)

    def page(self) -> str:
        """Return the last complete run as a section of Markdown.

        Raises:
            ValueError: a judge has not run on this commit, or the code has no commit.
        """
        if self._commit.endswith("+"):
            raise ValueError("uncommitted code has no name: commit, then run make judges")
        left = [each.name for each in self.judges if not self._is_current(each)]
        if left:
            raise ValueError(f"not complete on {self._commit}: {', '.join(left)}; run `make judges`")
        rows = [(each, self.rulings[each.name]) for each in self.judges]
        lines = [
            f"The last complete run, on the code of commit {self._commit}:",
            "",
            "| judge | held against | outcome | date | seconds | closing line |",
            "|---|---|---|---|--:|---|",
            *(
                f"| {judge.name} | {judge.about} | {ruling.outcome} | {ruling.date} | {ruling.seconds:,.0f} |"
                f" {ruling.closing.replace('|', chr(92) + '|')} |"
                for judge, ruling in rows
            ),
        ]
        return "".join(f"{line}\n" for line in lines)

    def _is_current(self, judge: Judge) -> bool:
        ruling = self.rulings.get(judge.name)
        return ruling is not None and ruling.commit == self._commit

    def _has_passed(self, judge: Judge) -> bool:
        # Uncommitted code has no name of its own, so a pass on it does not count for the next run.
        return (
            self._is_current(judge)
            and not self._commit.endswith("+")
            and self.rulings[judge.name].outcome == PASSED
        )

    def _rule(self, judge: Judge) -> Ruling:
        why, began = judge.missing(), time.monotonic()
        if why:
            return Ruling(NOT_HERE, self._commit, _now(), 0.0, why)
        self._console.rule(judge.name)
        status, lines = _run(judge.command, self._state.with_name("judges") / f"{judge.name}.log")
        sums = [line for line in lines if re.search(judge.closing, line)]
        outcome = FAILED if status else PASSED if sums else NOT_HERE
        skipped = [line for line in lines if line.startswith("skipped ")]
        closing = [*lines, *skipped[:1], *sums][-1] if lines else ""
        return Ruling(outcome, self._commit, _now(), round(time.monotonic() - began, 1), closing)

    def _keep(self) -> None:
        self._state.parent.mkdir(parents=True, exist_ok=True)
        kept = {name: attrs.asdict(ruling) for name, ruling in self.rulings.items()}
        fresh = self._state.with_suffix(".new")
        fresh.write_text(json.dumps(kept, indent=1) + "\n")
        fresh.replace(self._state)


def product_commit() -> str:
    """Return the commit that last changed the product's code, with ``+`` if it is changed since.

    Raises:
        ValueError: this is no checkout of git.
    """
    rooms = sorted(path.parent.name for path in ROOT.glob("*/__init__.py") if path.parent.name != "lab")
    paths = [*rooms, "pyproject.toml"]
    commit = _git("log", "-1", "--format=%h", "--", *paths)
    return f"{commit}+" if _git("status", "--porcelain", "--", *paths) else commit


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        said = error.stderr.strip() if isinstance(error, subprocess.CalledProcessError) else str(error)
        raise ValueError(f"the judges name the commit that they judge, and git says: {said}") from None
    return done.stdout.strip()


def _read(state: Path) -> dict[str, Ruling]:
    """Return the stored rulings.

    Raises:
        ValueError: the file is broken.
    """
    if not state.exists():
        return {}
    try:
        return {name: Ruling(**kept) for name, kept in json.loads(state.read_text()).items()}
    except (ValueError, TypeError, AttributeError):
        raise ValueError(f"{state} has no rulings of judges: remove it") from None


def _run(command: Sequence[str], log: Path) -> tuple[int, Sequence[str]]:
    """Run a command, show and log its output; return its status, and its last non-empty lines."""
    log.parent.mkdir(parents=True, exist_ok=True)
    lines: deque[str] = deque(maxlen=_KEPT_LINES)
    with (
        log.open("w") as kept,
        subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.write(line)
            kept.write(line)
            if line.strip() and not line.startswith("make["):  # a make within a make says where it is
                lines.append(line.strip())
    return process.returncode, lines


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M")


def main(
    arguments: Sequence[str] | None = None,
    judges: Sequence[Judge] = JUDGES,
    state: Path = STATE,
    page: Path = PAGE,
) -> int:
    """Run the command; return 1 if a judge failed, 2 if one cannot run or there is no page to write."""
    parser = argparse.ArgumentParser(prog="python -m lab.judges", description=__doc__)
    parser.add_argument("--list", action="store_true", help="print the table and run nothing")
    parser.add_argument("--only", metavar="NAME,…", help="run these judges, even if they have passed")
    parser.add_argument(
        "--page", action="store_true", help="write the last complete run into docs/reference/contract.md"
    )
    given = parser.parse_args(arguments)
    only = [name for name in (given.only or "").split(",") if name]
    if given.only is not None and not only:
        parser.error("--only names no judge")
    unknown = set(only) - {each.name for each in judges}
    if unknown:
        parser.error(
            f"no judge {', '.join(sorted(unknown))}; there are {', '.join(each.name for each in judges)}"
        )
    try:
        court = Court(judges, state, product_commit(), _console())
    except ValueError as error:
        parser.error(str(error))
    if given.list:
        court.show()
        return 0
    if given.page:
        try:
            _write(page, court.page())
        except ValueError as error:
            print(error, file=sys.stderr)
            return 2
        return 0
    try:
        return court.run(only)
    except KeyboardInterrupt:
        print("interrupted; `make judges` continues with the judges that have not passed", file=sys.stderr)
        return _INTERRUPTED


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else 200, markup=False, highlight=False)


def _write(page: Path, section: str) -> None:
    """Put a section between its marks, or at the end of a page without them."""
    text = page.read_text()
    if BEGIN not in text:
        text = f"{text.rstrip()}\n\n## The judges\n\n{BEGIN}{END}"
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    page.write_text(f"{before}{BEGIN}\n{section}\n{END}{after}")


if __name__ == "__main__":
    raise SystemExit(main())
