"""The sdist builds a wheel by itself, and the wheel holds the whole tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from support.running.house_tree import PACKAGE_DIR, PYPROJECT, ROOT, files

HOOK = """
import sys
from setuptools import build_meta
print(getattr(build_meta, sys.argv[1])(sys.argv[2]))
"""

SAFE: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # from 3.11.4 on


def build(hook: str, tree: Path, into: Path) -> Path:
    """Calls setuptools' own hook as pip would, without a compiler and without isolation (no network)."""
    environment = {**os.environ, "CC": "/bin/false"}
    command = [sys.executable, "-c", HOOK, hook, str(into)]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return into / done.stdout.splitlines()[-1]


def copy_of_the_tree(target: Path) -> Path:
    """The files an sdist needs, without build products: those of an earlier build would hide a loss."""
    target.mkdir()
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "CHANGELOG.md", "LICENSE"):
        shutil.copy(ROOT / name, target)
    products = shutil.ignore_patterns("__pycache__", "*.so", "_*_c.c")
    for room in (*PACKAGE_DIR.values(), "lab", "tests", "docs"):
        shutil.copytree(ROOT / room, target / room, ignore=products)
    return target


@pytest.mark.slow
def test_wheel_from_sdist_holds_every_module(tmp_path: Path) -> None:
    """A wheel from the sdist, built without a compiler, holds the modules of all rooms and no more."""
    sdist = build("build_sdist", copy_of_the_tree(tmp_path / "tree"), tmp_path)
    with tarfile.open(sdist) as archive:
        assert not [member.name for member in archive if member.issym()]
        parts = ("record/kernel/building/buffer.pxi", "net/connection/_writing_c.pyx", "setup.py")
        for part in (
            *parts,
            "tests/conftest.py",
            "tests/record/kernel/reading/corpus.txt",
            "docs/decisions/columns.md",
        ):
            assert any(member.name.endswith(part) for member in archive), part
        archive.extractall(tmp_path / "unpacked", **SAFE)
    (source,) = (tmp_path / "unpacked").iterdir()
    wheel = zipfile.ZipFile(build("build_wheel", source, tmp_path))
    expected = {
        "/".join([*package.split("."), *path.relative_to(ROOT / folder).parts])
        for package, folder in PACKAGE_DIR.items()
        for path in files(folder, ".py", ".pyi")
    }
    expected |= {
        "/".join([*package.split("."), *path.relative_to(ROOT / PACKAGE_DIR[package]).parts])
        for package, patterns in PYPROJECT["tool"]["setuptools"]["package-data"].items()
        if package != "*"
        for pattern in patterns
        for path in (ROOT / PACKAGE_DIR[package]).glob(pattern)
    }
    names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == expected | {"splashdam/py.typed"}
