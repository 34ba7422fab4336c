"""The documentation as a site: each page is reached, each path that code names exists, docstrings parse."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.running.doc_pages import DOCS, blocks
from support.running.house_tree import ROOMS, ROOT, files

import splashdam

SECTIONS = {"Args", "Returns", "Yields", "Raises", "Attributes"}
API = "\n".join(page.read_text() for page in sorted((DOCS / "reference/api").glob("*.md")))


def below(page: Path) -> Iterator[Path]:
    """What the toctrees of a page name; the README of a folder names all pages beside it."""
    for block in blocks(str(page.relative_to(DOCS)), "{toctree}"):
        for line in block.text.splitlines():
            if line and not line.startswith(":"):
                yield page.parent / f"{line}.md"
    if page.name == "README.md":
        yield from page.parent.glob("*.md")


def test_every_page_is_reached_from_the_index() -> None:
    """By toctrees, so that the site's side bar shows it; what they name exists."""
    seen: set[Path] = set()
    left = [DOCS / "index.md"]
    while left:
        page = left.pop()
        if page not in seen:
            seen.add(page)
            left += below(page)
    assert seen == set(DOCS.rglob("*.md"))


def test_no_page_leads_to_a_decision_for_a_how() -> None:
    """Decisions say why. A link with the text "how" leads to a guide."""
    pages = [ROOT / "README.md", *(page for page in DOCS.rglob("*.md") if page.parent.name != "decisions")]
    links = re.compile(r"\[(how[^\]]*|example[^\]]*)\]\([^)]*decisions/(?!README)", re.IGNORECASE)
    assert [(page.name, found) for page in pages for found in links.findall(page.read_text())] == []


@pytest.mark.parametrize("folder", [*ROOMS, "lab", "tools", "benchmarks", "examples"])
def test_pages_that_code_names_are_there(folder: str) -> None:
    """Docstrings, comments and messages that say ``docs/…`` name a page, from the root of the repository."""
    named = re.compile(r"\bdocs/[\w/-]+\.(?:md|svg|json)\b")
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in files(folder, ".py", ".pyx", ".pxi", ".sh")
        for name in named.findall(path.read_text())
        if not (ROOT / name).exists()
    }
    assert found == set()


def public() -> dict[str, object]:
    """All that the API pages document, by dotted name."""
    found: dict[str, object] = {f"splashdam.{name}": getattr(splashdam, name) for name in splashdam.__all__}
    module = "splashdam"
    for line in API.splitlines():
        if line.startswith(".. currentmodule:: "):
            module = line.split()[-1]
        elif match := re.match(r"\.\. auto(?:class|function|exception):: ([\w.]+)(\(.*)?$", line):
            name = match[1] if match[1].startswith("splashdam.") else f"{module}.{match[1]}"
            owner, _, attribute = name.rpartition(".")
            found[name] = getattr(importlib.import_module(owner), attribute)
    return found


def test_every_public_name_is_on_a_page() -> None:
    """Modules have pages of their own, and dunder names need none."""
    named = set(re.findall(r"\.\. auto\w+:: (\w+)$", API, flags=re.MULTILINE))
    assert {name for name in splashdam.__all__ if not name.startswith("__")} - named == {"errors"}
    assert ".. automodule:: splashdam.errors" in API


def documented() -> dict[str, str]:
    """The docstrings of the public names and of their public methods."""
    found = {}
    for name, value in public().items():
        members = {name: value}
        if inspect.isclass(value):
            members |= {f"{name}.{each}": getattr(value, each) for each in dir(value) if each[0] != "_"}
        for each, member in members.items():
            if callable(member) and (text := getattr(member, "__doc__", None)):
                found[each] = inspect.cleandoc(text)
    return found


def faults_of(text: str) -> Iterator[str]:
    """What Sphinx would stumble over, or show as something else than was meant."""
    prose = re.sub(r"``[^`]+``|`[^`\s][^`]*`", "", re.sub(r"::\n\n(?:[ ].*\n|\n)+", "\n\n", text + "\n"))
    if "`" in prose:
        yield "a backquote without its partner"
    section = None
    for before, line in zip(["", *text.splitlines()], text.splitlines(), strict=False):
        if header := re.fullmatch(r"([A-Z]\w+):", line):
            section = header[1]
            if section not in SECTIONS:
                yield f"{section}: is no section of Google's style"
            if before:
                yield f"no empty line before {section}:"
        elif section and line and not line.startswith("    "):
            if before:
                yield f"{line!r} in {section}: is not indented"
            section = None  # what follows an empty line is prose again
        elif section in {"Args", "Attributes"} and re.match(r"    \S", line) and ":" not in line:
            yield f"{line!r} in {section}: has no colon"


def test_public_docstrings_parse() -> None:
    """The rules that the site's build depends on, without Sphinx; `make docs` has the rest."""
    texts = documented()
    assert len(texts) > 150
    found = [f"{name}: {fault}" for name, text in texts.items() for fault in faults_of(text)]
    assert found == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("Ends with ``code`.", "a backquote without its partner"),
        ("Does it.\nArgs:\n    a: it.", "no empty line before Args:"),
        ("Does it.\n\nArguments:\n    a: it.", "Arguments: is no section of Google's style"),
        ("Does it.\n\nArgs:\n    a thing.", "'    a thing.' in Args: has no colon"),
        ("Does it.\n\nRaises:\n  ValueError: no.", "'  ValueError: no.' in Raises: is not indented"),
    ],
)
def test_docstrings_that_do_not_parse(text: str, fault: str) -> None:
    """Each rule can fail."""
    assert list(faults_of(text)) == [fault]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("furo") is None, reason="needs furo")
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """As `make docs` does it; links to files of the repository lead to pages of the site."""
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--quiet", "-c", "docs/site", "docs"]
    done = subprocess.run([*command, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert 'href="source/client/producer.py.html"' in (tmp_path / "concepts.html").read_text()
    assert "KafkaProducer" in (tmp_path / "source/client/producer.py.html").read_text()
