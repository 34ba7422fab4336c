"""What the README shows works: its Python blocks run, its make targets and commands exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.running.house_tree import ROOT

README = (ROOT / "README.md").read_text()
PYTHON_BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.parametrize("code", PYTHON_BLOCKS, ids=lambda code: code.splitlines()[0][:40])
def test_python_block_runs(code: str, tmp_path: Path) -> None:
    """Each Python block is a whole program; it runs in an empty folder, with warnings as errors."""
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_python_blocks_of_the_page_on_security_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """One once lacked its imports. A producer connects to nobody before it is used."""
    monkeypatch.setenv("CLIENT_SECRET", "secret")
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/security.md").read_text(), flags=re.DOTALL)
    assert len(blocks) >= 2
    for code in blocks:
        names: dict[str, object] = {"__name__": "page"}
        exec(compile(code, "docs/security.md", "exec"), names)
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


def test_links_lead_somewhere() -> None:
    """Relative links of the pages that lead to others name files that exist."""
    pages = (
        "README.md",
        "CONTRIBUTING.md",
        "benchmarks/README.md",
        "docs/performance.md",
        "docs/pipeline.md",
        "docs/pipeline-cluster.md",
        "docs/pipeline-guarantees.md",
        "docs/pipeline-comparison.md",
        "docs/decisions/README.md",
    )
    for page in map(ROOT.joinpath, pages):
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_readme_fits_a_screen_or_two() -> None:
    """Long stories belong to the docs."""
    assert len(README.splitlines()) <= 150


def test_every_decision_is_in_the_index() -> None:
    """A page that nobody finds is not read."""
    index = (ROOT / "docs/decisions/README.md").read_text()
    pages = {path.name for path in (ROOT / "docs/decisions").glob("*.md")} - {"README.md"}
    assert [page for page in sorted(pages) if f"]({page})" not in index] == []
