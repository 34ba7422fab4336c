"""Lets tests import the scripts of benchmarks/, which are no package."""

from __future__ import annotations

import pytest
from support.running.house_tree import ROOT


@pytest.fixture(autouse=True)
def the_benchmarks_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    monkeypatch.syspath_prepend(ROOT / "tests/benchmarks")
