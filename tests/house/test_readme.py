"""What README and docs show works: Python blocks run; make targets, links and paths exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.running.house_tree import ROOT

README = (ROOT / "README.md").read_text()
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
FOLDERS = "|".join(
    each.name for each in sorted(ROOT.iterdir()) if each.is_dir() and not each.name.startswith((".", "build"))
)
PYTHON_BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.parametrize("code", PYTHON_BLOCKS, ids=lambda code: code.splitlines()[0][:40])
def test_python_block_runs(code: str, tmp_path: Path) -> None:
    """Each Python block is a whole program; it runs in an empty folder, with warnings as errors."""
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_python_blocks_of_the_page_on_security_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """One once lacked its imports. A producer connects to nobody before it is used."""
    monkeypatch.setenv("CLIENT_SECRET", "secret")
    blocks = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs/how-to/security.md").read_text(), flags=re.DOTALL
    )
    assert len(blocks) >= 2
    for code in blocks:
        names: dict[str, object] = {"__name__": "page"}
        exec(compile(code, "docs/how-to/security.md", "exec"), names)
        if "producer" in names:
            names["producer"].close()  # type: ignore[attr-defined]


def test_blocking_trio_and_asyncio_are_shown() -> None:
    """One example for each way to use the producer."""
    together = "\n".join(PYTHON_BLOCKS)
    assert "KafkaProducer(" in together
    assert "trio.run(" in together
    assert "asyncio.run(" in together


def test_make_targets_exist() -> None:
    """Every `make` target named in README and CONTRIBUTING is in the Makefile."""
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"\bmake ([a-z][\w-]*)", README + (ROOT / "CONTRIBUTING.md").read_text()))
    targets = set(re.findall(r"^([\w-]+):", makefile, flags=re.MULTILINE))
    assert named
    assert named <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_paths_lead_somewhere(page: Path) -> None:
    """Relative links, and paths in backticks that begin with a folder of the repository, name what exists."""
    text = page.read_text()
    links = [page.parent / link for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text)]
    paths = [ROOT / path for path in re.findall(rf"`((?:{FOLDERS})/[\w./-]*)`", text)]
    assert [str(each) for each in links + paths if not each.exists()] == []


def test_readme_fits_a_screen_or_two() -> None:
    """Long stories belong to the docs."""
    assert len(README.splitlines()) <= 150


def test_every_decision_is_in_the_index() -> None:
    """A page that nobody finds is not read."""
    index = (ROOT / "docs/decisions/README.md").read_text()
    pages = {path.name for path in (ROOT / "docs/decisions").glob("*.md")} - {"README.md"}
    assert [page for page in sorted(pages) if f"]({page})" not in index] == []


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.parent.name == "decisions" and page.name != "README.md"],
    ids=lambda page: page.stem,
)
def test_a_decision_stands_at_the_top(page: Path) -> None:
    """What was decided is said first; reasons follow."""
    first = page.read_text().splitlines()[:6]
    assert any(line.startswith("**Decided**: ") for line in first)


def test_contributing_lists_the_rooms() -> None:
    """Every room, and no other folder."""
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("## Rooms")[2].partition("## Style")[0]
    rooms = {each.parent.name for each in ROOT.glob("*/__init__.py")}
    assert set(re.findall(r"^\| `(\w+)/` \|", table, flags=re.MULTILINE)) == rooms
