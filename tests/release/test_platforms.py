"""Where splashdam runs: Linux and macOS, Pythons with an interpreter lock; elsewhere it says so."""

from __future__ import annotations

import inspect
import re
import runpy
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from support.running.house_tree import PYPROJECT, ROOT, files
from tools.release import wheels


def test_windows_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by the first module that misses `fcntl`."""
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(ImportError) as refused:
        runpy.run_path(str(ROOT / "facade/__init__.py"))
    assert str(refused.value).startswith("splashdam does not run on Windows yet: ")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "source", [path for room in ("record", "net") for path in files(room, ".pyx")], ids=lambda path: path.stem
)
def test_compiled_twins_do_not_claim_to_work_without_the_interpreter_lock(source: Path) -> None:
    """docs/decisions/packaging.md says what would have to be proven first."""
    assert "# cython: freethreading_compatible=False\n" in source.read_text()


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="needs a free-threaded Python")
def test_a_free_threaded_python_enables_its_lock_for_the_compiled_twins() -> None:
    """Whatever it was started with, short of being forced."""
    script = "import sys, splashdam; print(splashdam.__impl__, sys._is_gil_enabled())"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], env={}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() in (["c", "True"], ["python", "False"])


def test_wheels_are_compiled_with_pythons_own_flags() -> None:
    """setuptools takes CFLAGS in their place; wheels of `CFLAGS=-g0` were small, and compiled without -O3."""
    assert "CFLAGS" not in str(PYPROJECT["tool"]["cibuildwheel"])
    assert "more=" not in inspect.getsource(wheels.build_wheel)


def test_wheels_are_built_for_what_the_classifiers_name() -> None:
    """In one list of cibuildwheel, in that of `make wheels`, and in the workflow that runs the tests."""
    classifiers = PYPROJECT["project"]["classifiers"]
    named = [each.rpartition(" ")[2] for each in classifiers if re.search(r":: Python :: 3\.\d+$", each)]
    assert PYPROJECT["tool"]["cibuildwheel"]["build"] == [f"cp{each.replace('.', '')}-*" for each in named]
    assert list(wheels.VERSIONS) == named
    for workflow in ("test", "release"):
        text = (ROOT / f".github/workflows/{workflow}.yml").read_text()
        assert sorted(set(re.findall(r"\b3\.\d\d\b", text))) == named
