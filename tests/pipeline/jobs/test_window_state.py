"""What a window query keeps beside its checkpoint."""

from __future__ import annotations

from typing import Any

import pytest

from splashdam.pipeline.jobs import window
from splashdam.pipeline.jobs.window import WindowState


class MemoryFolder:
    """A folder whose entries are names; a removal can be made to fail."""

    def __init__(self, _spark: Any, _place: str) -> None:
        self.entries: dict[str, str] = {}
        self.removals_left = 1 << 30

    def names(self) -> list[str]:
        return list(self.entries)

    def write(self, name: str, text: str) -> None:
        self.entries[name] = text

    def remove(self, name: str) -> None:
        if not self.removals_left:
            raise OSError("the driver is killed")
        self.removals_left -= 1
        del self.entries[name]


@pytest.mark.parametrize("removals", range(4))
def test_state_that_a_killed_driver_had_half_removed_stayed_for_ever(
    removals: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record of its batch, by which it is found, went first."""
    monkeypatch.setattr(window, "HadoopFolder", MemoryFolder)
    state = WindowState(None, "checkpoint", "shape")  # type: ignore[arg-type]  # `MemoryFolder` uses no Spark session
    folder: Any = state._folder
    folder.entries = dict.fromkeys(("0.closing", "0.closed", "state-0", "0.json", "state-1", "1.json"), "")
    folder.removals_left = removals
    with pytest.raises(OSError, match="killed"):
        state.finish(2, None, "query")
    folder.removals_left = 9
    state.finish(3, None, "query")
    assert sorted(folder.entries) == ["2.json", "3.json"]
