"""The simulator: the same seed is the same run, hundreds of seeds pass, a failing one can be replayed."""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
import sys
from collections import Counter
from multiprocessing import forkserver

import pytest
from support.running import leftovers

from lab.simulator import __main__ as runner
from lab.simulator.scenario import FAULTS, scenario
from lab.simulator.simulation import Outcome, simulate

_PARTS = 10
_SEEDS_IN_A_PART = 15

_DIGESTS = """
import hashlib
from lab.simulator.simulation import simulate
for seed in range(3, 9):
    print(hashlib.sha256(simulate(seed).trace.encode()).hexdigest())
"""


@functools.cache
def once(seed: int) -> Outcome:
    """The run of a seed, which several tests look at."""
    return simulate(seed)


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, _PARTS))]
)
def test_seeds(part: int) -> None:
    """Whatever goes wrong, every promise is kept; ``make simulate`` runs as many as you like."""
    first = part * _SEEDS_IN_A_PART
    for seed in range(first, first + _SEEDS_IN_A_PART):
        outcome = once(seed)
        assert outcome.violations == [], runner.replay_line(runner.Run(seed, False))


def test_the_same_seed_is_the_same_run() -> None:
    """Byte for byte, one after the other in one process."""
    for seed in (5, 17, 42):
        first, second = once(seed), simulate(seed)
        assert first.trace == second.trace
        assert first == second


def test_the_same_seed_is_the_same_run_in_another_process() -> None:
    """Nothing rests on addresses or on the hashes of texts, which are others in each process."""
    found = subprocess.run(
        [sys.executable, "-c", _DIGESTS],
        env={**os.environ, "PYTHONHASHSEED": "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    here = [hashlib.sha256(once(seed).trace.encode()).hexdigest() for seed in range(3, 9)]
    assert found.stdout.split() == here


def test_seeds_differ() -> None:
    """Other numbers, other runs; every kind of fault is drawn."""
    assert once(1).trace != once(2).trace
    kinds = {fault.kind for seed in range(300) for fault in scenario(seed).faults}
    assert kinds == set(FAULTS)


def test_a_calm_run_delivers_everything() -> None:
    """Without faults nothing fails but records that are too large, and nothing is written twice.

    Nothing is sent twice, either, where no batch is too large for its topic. Behind one that is split a batch
    may be: the broker refuses it (45) until the parts of that one are there.
    """
    calm = [seed for seed in range(400) if scenario(seed).is_calm][:7]
    unsplit = 0
    for seed in calm:
        outcome = simulate(seed)
        assert outcome.violations == []
        if outcome.counts["splits"]:
            assert outcome.counts["retries"] <= outcome.counts["splits"]
        else:
            unsplit += 1
            assert not outcome.counts["retries"]
        assert not outcome.counts["batches recognised as repeats"]
    assert unsplit == 5


def test_a_commit_whose_marker_a_full_disk_refused_is_seen_when_the_marker_was_tried_again() -> None:
    """The decision is the answer; a reader that looks before the next try does not see the records yet."""
    assert simulate(8403).violations == []


def test_a_failing_seed_is_printed_with_its_replay(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The runner prints which seed failed, and one line that runs it alone."""
    outcome = Outcome(7, ["a promise was broken"], Counter(records=3), "trace", 1.0)
    monkeypatch.setattr(runner, "simulate", lambda _seed, replicated: outcome)
    run = runner.Run(7, False)
    assert runner.run_chunk([run]) == (1, [runner.Failure(run, "a promise was broken")], Counter(records=3))
    assert runner.replay(run) == 1
    assert capsys.readouterr().out == "trace\nviolated: a promise was broken\n"
    assert runner.replay_line(run).endswith(" -m lab.simulator --replay 7")
    assert runner.replay_line(runner.Run(7, True)).endswith(" --replay 7 --replicated")


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """Counts of what was exercised come at the end."""
    with leftovers.kept():  # from Python 3.14 on its processes come from one that stays
        forkserver.ensure_running()
    assert runner.run_all([runner.Run(3, False), runner.Run(4, True)], processes=1) == 0
    assert "2 runs from seed 3 to seed 4 replicated: 0 failed" in capsys.readouterr().out
