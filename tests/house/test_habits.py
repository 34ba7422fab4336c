"""The ways into the house: `make help`, CONTRIBUTING, hooks and CI name the same commands."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from support.running.house_tree import ROOT

MAKEFILE = (ROOT / "Makefile").read_text()


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_help_lists_every_target_in_its_group() -> None:
    """One line each, without making anything."""
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    listed = set(re.findall(r"^  make ([\w-]+) +\S", done.stdout, re.MULTILINE))
    (phony,) = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert listed == set(phony.split())
    assert "\nTest\n" in done.stdout


def test_contributing_names_every_target() -> None:
    """In its table, or beside the target of which it is a part."""
    (phony,) = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    named = set(re.findall(r"`make ([\w-]+)", (ROOT / "CONTRIBUTING.md").read_text()))
    assert set(phony.split()) <= named


def test_hooks_are_commands_of_make_check() -> None:
    """What a commit is refused for locally is what continuous integration refuses."""
    hooks = re.findall(r"entry: \.venv/bin/(.+)", (ROOT / ".pre-commit-config.yaml").read_text())
    (check,) = re.findall(r"^check: .*\n((?:\t.+\n)+)", MAKEFILE, re.MULTILINE)
    assert hooks
    assert set(hooks) <= set(re.findall(r"\$\(BIN\)/(.+)", check))
