"""A simulator that finds nothing proves nothing: bugs put in on purpose have to be found."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import pytest
from planted_bugs import MOST_SEEDS, PLANTS, Plant
from planted_replication_bugs import REPLICATION_PLANTS

from splashdam.testing.simulator.simulation import simulate


def seeds(known: tuple[int, ...]) -> Iterator[int]:
    """Those that have found it, and those behind them."""
    return chain(known, range(known[-1] + 1, known[-1] + 1 + MOST_SEEDS))


@pytest.mark.parametrize("plant", [*PLANTS, *REPLICATION_PLANTS], ids=lambda plant: plant.__name__)
def test_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some seed breaks a promise with the bug, and keeps all of them without it."""
    replicated = plant in REPLICATION_PLANTS
    known = REPLICATION_PLANTS[plant] if replicated else PLANTS[plant]
    with monkeypatch.context() as patch:
        plant(patch)
        tried = ((seed, simulate(seed, replicated=replicated)) for seed in seeds(known))
        found = next((seed for seed, outcome in tried if outcome.violations), None)
    assert found is not None, plant.__doc__
    assert simulate(found, replicated=replicated).violations == []
