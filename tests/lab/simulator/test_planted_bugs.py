"""A simulator that finds nothing proves nothing: bugs put in on purpose have to be found."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import pytest

from lab.simulator.planted_bugs import MOST_SEEDS, PLANTS, Plant, acknowledged_before_append
from lab.simulator.planted_replication_bugs import REPLICATION_PLANTS, high_watermark_runs_ahead_of_the_isr
from lab.simulator.simulation import simulate


def seeds(known: tuple[int, ...]) -> Iterator[int]:
    """Those that have found it, and those behind them."""
    return chain(known, range(known[-1] + 1, known[-1] + 1 + MOST_SEEDS))


EVERY_DAY = (acknowledged_before_append, high_watermark_runs_ahead_of_the_isr)
"""Found by the first seed there is; for the others a change of the simulator means a search for seeds."""


@pytest.mark.parametrize(
    "plant",
    [
        pytest.param(plant, id=plant.__name__, marks=() if plant in EVERY_DAY else pytest.mark.slow)
        for plant in (*PLANTS, *REPLICATION_PLANTS)
    ],
)
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
