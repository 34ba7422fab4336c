"""Rules that no linter knows: lazy imports, no clock in the kernel, nothing left half done."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.running.house_tree import PYPROJECT, ROOMS, ROOT, files

HEAVY = {"trio", "pyspark", "pyarrow", "lz4", "zstandard", "cramjam", "click", "rich", "asyncio", "kafka"}
"""What `import splashdam` must not pull in: importing trio alone costs as much as all of kafka-python."""

LEFT_OVERS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|pragma: no " + "cover")


def imported_by(statement: str) -> set[str]:
    """Top-level modules that a fresh interpreter holds after the statement."""
    code = f"{statement}\nimport sys\nprint(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_import_is_light() -> None:
    """`import splashdam` pulls in neither trio nor pyspark, pyarrow or a compressor."""
    assert imported_by("import splashdam") & HEAVY == set()


def test_command_shows_its_help_without_the_heavy_modules() -> None:
    """`splashdam --help` answers without loading trio."""
    assert "trio" not in imported_by("import splashdam.cli")


def test_each_connection_read_the_files_of_the_distribution() -> None:
    """The version that a client names was looked for in them: a millisecond for each connection."""
    readers = {
        path.relative_to(ROOT).parts[0]
        for room in ROOMS
        for path in files(room, ".py")
        if "importlib.metadata" in path.read_text() or "import metadata" in path.read_text()
    }
    assert readers <= {"cli", "testing"}  # which name the versions of other clients


def test_ctrl_c_is_raised_only_where_a_loop_waits() -> None:
    """In the main thread `run_in_trio` runs the loops; the broker's Ctrl-C ends the process at once."""
    elsewhere = {"cli/broker/broker.py", "pipeline/trio_thread.py"}
    found = {
        str(path.relative_to(ROOT))
        for room in ("cli", "testing", "pipeline")
        for path in files(room, ".py")
        if "trio.run(" in path.read_text()
    }
    assert found == elsewhere


@pytest.mark.parametrize("path", list(files("record", ".pyx", ".pxi")), ids=lambda path: path.name)
def test_kernel_reads_no_clock(path: Path) -> None:
    """Time is an argument in the compiled twin too; the import linter cannot look into it."""
    text = re.sub(r'"{3}.*?"{3}|#[^\n]*', "", path.read_text(), flags=re.DOTALL)
    forbidden = (
        r"\b(c?import\s+(time|datetime|threading|random|socket|trio)|clock_gettime|gettimeofday|time\()"
    )
    assert re.search(forbidden, text) is None


@pytest.mark.parametrize("folder", [*ROOMS, "tests", "examples", "benchmarks", "tools", "lab"])
def test_nothing_is_left_half_done(folder: str) -> None:
    """No reminders instead of work, and no line excused from coverage."""
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files(folder, ".py", ".pyx", ".pxi", ".c", ".sh", ".go", ".java", ".js")
        if path.name not in ("test_house_rules.py", "_kernel_c.c", "_writing_c.c")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if LEFT_OVERS.search(line)
    ]
    assert found == []


def test_every_contract_between_the_rooms_is_there() -> None:
    """The layers of the design are linted; `make check` runs them."""
    names = [contract["name"] for contract in PYPROJECT["tool"]["importlinter"]["contracts"]]
    assert "rooms are layered" in names
    assert "no I/O and no clock in the pure rooms" in names
    assert "lint-imports" in (ROOT / "Makefile").read_text()
