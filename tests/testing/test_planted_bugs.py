"""A simulator that finds nothing proves nothing: bugs put in on purpose have to be found."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import pytest
from planted_bugs import MOST_SEEDS, PLANTS, Plant

from splashdam.testing.simulator.simulation import simulate


def seeds(known: tuple[int, ...]) -> Iterator[int]:
    """Those that have found it, and those behind them."""
    return chain(known, range(known[-1] + 1, known[-1] + 1 + MOST_SEEDS))


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some seed breaks a promise with the bug, and keeps all of them without it."""
    with monkeypatch.context() as patch:
        plant(patch)
        found = next((seed for seed in seeds(PLANTS[plant]) if simulate(seed).violations), None)
    assert found is not None, plant.__doc__
    assert simulate(found).violations == []
