"""The simulator on brokers that replicate: what was committed stays, whatever happens to a minority."""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
import sys

import pytest

from lab.simulator.__main__ import Run, replay_line
from lab.simulator.replica_scenario import REPLICA_FAULTS, replicated_scenario
from lab.simulator.scenario import FAULTS
from lab.simulator.simulation import Outcome, simulate

_PARTS = 6
_SEEDS_IN_A_PART = 4

_DIGESTS = """
import hashlib
from lab.simulator.simulation import simulate
for seed in (1, 4):
    print(hashlib.sha256(simulate(seed, replicated=True).trace.encode()).hexdigest())
"""


@functools.cache
def once(seed: int) -> Outcome:
    """The run of a seed, which two tests look at."""
    return simulate(seed, replicated=True)


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, _PARTS))]
)
def test_seeds(part: int) -> None:
    """Whatever goes wrong, every promise is kept."""
    first = part * _SEEDS_IN_A_PART
    for seed in range(first, first + _SEEDS_IN_A_PART):
        assert once(seed).violations == [], replay_line(Run(seed, True))


def test_the_same_seed_is_the_same_run_in_another_process() -> None:
    """Nothing rests on addresses or on the hashes of texts, which are others in each process."""
    found = subprocess.run(
        [sys.executable, "-c", _DIGESTS],
        env={**os.environ, "PYTHONHASHSEED": "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    here = [hashlib.sha256(once(seed).trace.encode()).hexdigest() for seed in (1, 4)]
    assert found.stdout.split() == here


def test_every_kind_of_fault_is_drawn() -> None:
    """Those between brokers, too."""
    kinds = {fault.kind for seed in range(300) for fault in replicated_scenario(seed).faults}
    assert kinds == {*FAULTS, *REPLICA_FAULTS}
