"""Lets tests import `endurance`, which is a tool and not installed."""

from __future__ import annotations

import pytest
from support.running.house_tree import ROOT


@pytest.fixture(autouse=True)
def endurance_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "tools")
