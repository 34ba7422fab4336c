"""A simulator that finds nothing proves nothing: bugs put in on purpose have to be found."""

from __future__ import annotations

import pytest
from planted_bugs import MOST_SEEDS, PLANTS, Plant

from splashdam.testing.simulator.simulation import simulate


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some seed of the next hundred breaks a promise."""
    plant(monkeypatch)
    first = PLANTS[plant]
    assert any(simulate(seed).violations for seed in range(first, first + MOST_SEEDS)), plant.__doc__
