"""`make` finds an interpreter by itself, or says what it looked for."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path

import pytest
from support.running.house_tree import ROOT

MAKE = shutil.which("make")
pytestmark = pytest.mark.skipif(MAKE is None, reason="needs make")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The Makefile with empty sources, and an empty folder `bin` for the interpreters of a test."""
    for name in (
        "pyproject.toml",
        "record/kernel/_kernel_c.pyx",
        "net/connection/_writing_c.pyx",
        "bin/.keep",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    shutil.copy(ROOT / "Makefile", tmp_path)
    return tmp_path


def interpreter(checkout: Path, name: str, *, accepted: bool) -> None:
    """A program that says of itself whether it is a Python of the right version, as an interpreter would."""
    program = checkout / "bin" / name
    program.write_text(f"#!/bin/sh\nexit {0 if accepted else 1}\n")
    program.chmod(0o755)


def make(checkout: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    assert MAKE is not None
    for tool in ("sh", "test", "echo", "mkdir"):
        found = shutil.which(tool)
        if found is not None and not (checkout / "bin" / tool).exists():
            (checkout / "bin" / tool).symlink_to(found)
    environment = {"PATH": str(checkout / "bin"), **more}
    command = [MAKE, *arguments]
    return subprocess.run(
        command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=500, check=False
    )


def test_without_a_python_one_sentence_names_what_was_looked_for(checkout: Path) -> None:
    """No interpreter, or one that is too old: the remedy is in the message, and nothing was made."""
    interpreter(checkout, "python3", accepted=False)
    done = make(checkout, "demo")
    assert done.returncode == 2
    assert "looked on the PATH for python3." in done.stderr
    assert "make PYTHON=/path/to/python3.12" in done.stderr
    assert not (checkout / ".venv").exists()


def test_a_wrong_python_left_an_environment_behind_that_no_later_make_could_use(checkout: Path) -> None:
    """Its venv was made before pip said that the version is too old; one that does not exist is told, too."""
    interpreter(checkout, "python3.9", accepted=False)
    for name in ("python3.9", "python9"):
        done = make(checkout, "demo", PYTHON=name)
        assert done.returncode == 2
        assert f"PYTHON={name} does not run, or is no Python 3.11 to 3.14" in done.stderr
        assert "setting up" not in done.stdout


def test_the_newest_python_that_works_is_taken(checkout: Path) -> None:
    """A name on the path that does not run (a shim without its version) is passed over."""
    interpreter(checkout, "python3.13", accepted=False)
    interpreter(checkout, "python3.12", accepted=True)
    interpreter(checkout, "python3.11", accepted=True)
    assert "python3.12 -m venv --without-pip .venv" in make(checkout, "-n", "demo").stdout
    assert "mine -m venv --without-pip .venv" in make(checkout, "-n", "demo", "PYTHON=mine").stdout


def test_the_demonstration_installs_what_it_needs_alone(checkout: Path) -> None:
    """Neither Spark nor the tools of the tests."""
    interpreter(checkout, "python3.12", accepted=True)
    lines = make(checkout, "-n", "demo").stdout.splitlines()
    installed = [line for line in lines if " install " in line]
    assert any("--no-deps --editable ." in line for line in installed)
    assert any("--requirement .venv/needs.txt --group demo" in line for line in installed)
    assert not any("dev" in line.split() for line in installed)
    assert any("--group dev" in line for line in make(checkout, "-n", "test").stdout.splitlines())


def test_what_the_demonstration_needs_is_read_from_pyproject(checkout: Path) -> None:
    """The extension is built beside pip's downloads, so pip cannot find the dependencies by itself."""
    interpreter(checkout, "python3.12", accepted=True)
    (line,) = [each for each in make(checkout, "-n", "demo").stdout.splitlines() if "tomllib" in each]
    words = shlex.split(line)
    command = words[words.index("-c") : words.index(">")]
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=500, check=True
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [project["optional-dependencies"][name] for name in ("cli", "compression", "console")]
    assert done.stdout.splitlines() == [*project["dependencies"], *chain.from_iterable(extras)]


def test_what_make_test_leaves_out_is_what_make_test_rest_runs(checkout: Path) -> None:
    """Together they are `make test-all`; CI runs them one after the other.

    Nothing runs twice but the tests that hypothesis draws examples for: everybody's run draws fewer.
    """
    interpreter(checkout, "python3.12", accepted=True)

    def marks(target: str) -> list[str]:
        lines = make(checkout, "-n", target).stdout.splitlines()
        runs = [shlex.split(line) for line in lines if " -m pytest " in line and "--collect-only" not in line]
        return [words[words.index("-m", words.index("pytest")) + 1] for words in runs]

    (everybodys,) = marks("test")
    assert marks("test-rest") == [f"not ({everybodys})", f"hypothesis and ({everybodys})"]
    assert marks("test-all") == [everybodys, *marks("test-rest")]
    commands = (ROOT / ".ci/run").read_text().splitlines()
    assert [line for line in commands if line.startswith("make ")] == [
        "make check",
        "make test",
        "make test-rest",
        "make console-test",
    ]
    (twins,) = (line for line in commands if "SPLASHDAM_PURE=1" in line)
    assert "$PYTEST_ARGS" in twins  # the commit's order


def test_only_a_chromium_needs_what_drives_it(checkout: Path) -> None:
    """Without one the tests say that they are skipped; nothing large is fetched for them."""
    interpreter(checkout, "python3.12", accepted=True)

    def driver(**variables: str) -> list[str]:
        assignments = [f"{name}={value}" for name, value in variables.items()]
        lines = make(checkout, "-n", "console-test", *assignments).stdout.splitlines()
        return [line for line in lines if "playwright" in line and not line.startswith('test -z ""')]

    assert driver(CHROMIUM="") == []
    assert len(driver(CHROMIUM="/usr/bin/chromium")) == 1


def test_compiled_files_are_kept(checkout: Path) -> None:
    """Where the environment forbids it, every worker and child would compile everything again."""
    interpreter(checkout, "python3.12", accepted=True)
    (checkout / "bin/env").symlink_to(shutil.which("env") or "/usr/bin/env")
    done = make(checkout, "--eval", "show: ; @env", "show", PYTHONDONTWRITEBYTECODE="1", OTHER="1")
    assert "OTHER=1" in done.stdout
    assert "PYTHONDONTWRITEBYTECODE" not in done.stdout
