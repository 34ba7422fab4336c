"""Small files, small functions: what nobody can read in one go is a defect."""

from __future__ import annotations

import ast
import statistics
from pathlib import Path

import pytest
from house_tree import ROOMS, ROOT, files

MAX_FUNCTION_LINES = 70
MAX_FILE_LINES = 450
"""400 is where a file should be cut; up to here it may wait for a good place to cut."""
MAX_MEDIAN_FILE_LINES = 250

LARGER_FILES: dict[str, str] = {}
"""Files that may be larger, each with the reason why cutting them would make them worse."""

FOLDERS = [*ROOMS, "tests", "examples", "benchmarks", "tools"]


def line_count(path: Path) -> int:
    return len(path.read_text().splitlines())


def functions(path: Path) -> list[tuple[str, int]]:
    """Name and lines (docstring and decorators included) of all functions of a file."""
    return [
        (f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", (node.end_lineno or 0) - node.lineno + 1)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


@pytest.mark.parametrize("folder", FOLDERS)
def test_files_are_short(folder: str) -> None:
    """No file above the limit, but for those that say why."""
    counts = {
        str(path.relative_to(ROOT)): line_count(path)
        for path in files(folder, ".py", ".pyx", ".pxi", ".c", ".sh")
    }
    generated = {"record/_kernel_c.c", "net/_writing_c.c"}
    too_long = {
        name: lines
        for name, lines in counts.items()
        if lines > MAX_FILE_LINES and name not in LARGER_FILES.keys() | generated
    }
    assert too_long == {}


def test_reasons_are_still_needed() -> None:
    """A file that was cut loses its place in the list."""
    assert [name for name in LARGER_FILES if line_count(ROOT / name) <= MAX_FILE_LINES] == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_functions_are_short(folder: str) -> None:
    """No function above the limit."""
    assert [
        (name, lines)
        for path in files(folder, ".py")
        for name, lines in functions(path)
        if lines > MAX_FUNCTION_LINES
    ] == []


def test_the_usual_file_is_short() -> None:
    """Half of the files stay well below the limit."""
    counts = [line_count(path) for room in ROOMS for path in files(room, ".py")]
    assert statistics.median(counts) < MAX_MEDIAN_FILE_LINES
