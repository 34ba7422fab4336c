"""Pages of the documentation as tests read them: their fenced blocks, in the order in which they stand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from support.running.house_tree import ROOT

DOCS = ROOT / "docs"

_FENCED = re.compile(r"^```([\w{}-]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """A fenced block: its language, and its text."""

    language: str
    text: str


def blocks(page: str, *languages: str) -> list[Block]:
    """All blocks of a page below ``docs/``, or those in these languages."""
    found = [Block(*each) for each in _FENCED.findall((DOCS / page).read_text())]
    return [block for block in found if not languages or block.language in languages]


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """The commands of a ``console`` block, each with the lines that it is said to print."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, *printed = part.replace("\\\n", " ").splitlines()
        yield command, printed


def run(block: Block, page: str, names: dict[str, object] | None = None) -> dict[str, object]:
    """Run a Python block as the program that it is; return its names."""
    names = {"__name__": "__main__", **(names or {})}
    exec(compile(block.text, f"docs/{page}", "exec"), names)
    return names


def write_files(page: str, folder: Path) -> list[str]:
    """Write the Python blocks that begin with ``# name.py`` to files of that name."""
    written = []
    for block in blocks(page, "python"):
        if name := re.match(r"# (\w+\.py)\n", block.text):
            (folder / name[1]).write_text(block.text)
            written.append(name[1])
    return written
