"""Counts the turns that a broker has used up."""

from __future__ import annotations

import pytest

from splashdam.embedded_broker.broker import Broker
from splashdam.embedded_broker.serving import dispatch


def count_turns(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Return a list that grows with each turn; nothing is decoded beside the loop from now on."""
    monkeypatch.setattr(dispatch, "TURN_ELEMENTS", 1 << 30)
    monkeypatch.setattr(dispatch, "TURN_BYTES", 1 << 30)
    turns: list[None] = []
    begin = broker.turns.begin

    def counted() -> None:
        if broker.turns.left <= 0:
            turns.append(None)
        begin()

    monkeypatch.setattr(broker.turns, "begin", counted)
    return turns
