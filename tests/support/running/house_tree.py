"""The checkout as the tests of the house see it: its rooms, its files, its pyproject.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGE_DIR: dict[str, str] = PYPROJECT["tool"]["setuptools"]["package-dir"]
ROOMS = sorted(PACKAGE_DIR.values())
"""Folders at the root that install as packages, `facade` included."""


def files(folder: str, *suffixes: str) -> Iterator[Path]:
    """Files with one of the suffixes below a folder of the checkout, sorted, caches left out."""
    for path in sorted((ROOT / folder).rglob("*")):
        if path.suffix in suffixes and "__pycache__" not in path.parts:
            yield path
