"""How much of what all tests run `make test` runs alone: lines and branches, without pipeline/.

``python -m support.running.coverage_share TEST REST`` reads two files of coverage.py's: of `make test`, and
of what it leaves out. It prints both figures, and fails below 98 %. What tests run in child processes counts
in neither.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from coverage import Coverage

from support.running.house_tree import ROOT

LEAST_SHARE = 0.98


class Covered(NamedTuple):
    """Lines and branches together, as coverage.py counts them."""

    run: int
    all: int


def covered(files: Sequence[str], root: Path) -> Covered:
    """What the runs behind the files have run together."""
    coverage = Coverage(data_file=None, config_file=str(root / "pyproject.toml"))
    with tempfile.TemporaryDirectory() as folder:
        coverage.combine(files, keep=True)
        report = Path(folder) / "report.json"
        # Tests add modules to our packages that stand elsewhere, and are gone by now.
        coverage.json_report(outfile=str(report), include=[str(root / "*")], omit=[str(root / "pipeline/*")])
        totals = json.loads(report.read_text())["totals"]
    return Covered(
        totals["covered_lines"] + totals.get("covered_branches", 0),
        totals["num_statements"] + totals.get("num_branches", 0),
    )


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Prints the figures; 1 below `LEAST_SHARE`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("test")
    parser.add_argument("rest")
    given = parser.parse_args(arguments)
    test, everything = covered([given.test], root), covered([given.test, given.rest], root)
    for name, each in (("make test", test), ("make test-all", everything)):
        print(f"{name:<13} {each.run:>6} of {each.all} lines and branches: {each.run / each.all:.2%}")
    share = test.run / everything.run
    print(f"make test runs {share:.2%} of what make test-all runs; at least {LEAST_SHARE:.0%} is wanted")
    return int(share < LEAST_SHARE)


if __name__ == "__main__":
    sys.exit(main())
