"""Runs one seed: everything in one trio loop in virtual time, and all randomness comes from the seed."""

from __future__ import annotations

import gc
import logging
import random as random_module
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from random import Random

import attrs
import trio
from trio.testing import MockClock

from lab.simulator.append_errors import AppendErrors
from lab.simulator.checker import Checker
from lab.simulator.cluster import Parts, SimulatedCluster
from lab.simulator.faults import FaultMaker
from lab.simulator.network import SimulatedNetwork
from lab.simulator.replica_scenario import ReplicaFaultMaker, replicated_scenario
from lab.simulator.replicas import ReplicatedCluster
from lab.simulator.report import RunRecord
from lab.simulator.scenario import Scenario, scenario
from lab.simulator.single_replicas import SingleReplicaCluster
from lab.simulator.workload import Workload
from lab.trio_runs import first_of
from splashdam.storage.files.memory import PowerCutError
from splashdam.testing.clock import VirtualClock

_SORTS = "_ALLOW_DETERMINISTIC_SCHEDULING"
_LONGEST_S = 3_600.0
"""Virtual time; a run that is not over by then hangs."""


@attrs.frozen
class Outcome:
    """The result of a run.

    Attributes:
        seed: of the run.
        violations: broken promises, in the order in which they were noticed.
        counts: how often each thing was exercised.
        trace: its events, a line each; the same seed gives the same text.
        virtual_s: its duration in virtual time.
    """

    seed: int
    violations: list[str]
    counts: Counter[str]
    trace: str
    virtual_s: float


def simulate(seed: int, *, replicated: bool = False) -> Outcome:
    """Run a seed, and return the result; broken promises are in ``violations`` and are not raised.

    Args:
        seed: decides everything.
        replicated: whether brokers replicate.
    """
    plan, record = replicated_scenario(seed) if replicated else scenario(seed), RunRecord()
    with deterministic(seed), _errors_logged(record):
        simulation = Simulation(plan, record)
        try:
            trio.run(simulation.run, clock=simulation.mock_clock)
        except Exception as error:  # any exception that reaches this line is a finding
            record.violations.append(f"the run ended with {first_of(error)!r}")
    return Outcome(seed, record.violations, record.counts, "\n".join(record.lines), simulation.ended_at_s)


class Simulation:
    """The parts of one run."""

    def __init__(self, plan: Scenario, record: RunRecord) -> None:
        self.mock_clock = MockClock(autojump_threshold=0)
        self.ended_at_s = 0.0
        self._plan = plan
        self._record = record
        clock = VirtualClock(self.mock_clock)
        self._network = SimulatedNetwork(
            Random(f"network {plan.seed}"),
            record,
            capacity_bytes=plan.capacity_bytes,
            distance_ms=plan.distance_ms,
        )
        # The name of the stream stays: known seeds of planted bugs depend on it.
        self._append_errors = AppendErrors(Random(f"troubles {plan.seed}"), record, plan.append_errors)
        parts = Parts(
            plan.nodes,
            plan.topics,
            network=self._network,
            clock=clock,
            random=Random(f"disks {plan.seed}"),
            record=record,
            append_errors=self._append_errors,
            sync_ms=plan.sync_ms,
        )
        self._cluster, self._faults = self._made_of(parts)
        self._checker = Checker(self._cluster, record, calm=plan.is_calm)
        self._workloads = [
            Workload(
                each,
                seed=plan.seed,
                topics=plan.topics,
                network=self._network,
                bootstrap_servers=self._cluster.bootstrap_servers,
                clock=clock,
                record=record,
                on_delivery=partial(self._checker.delivered, each.options["acks"]),
            )
            for each in plan.producers
        ]

    def _made_of(self, parts: Parts) -> tuple[SimulatedCluster, FaultMaker]:
        if self._plan.replication is None:
            cluster = SingleReplicaCluster(parts)
            return cluster, FaultMaker(self._plan, cluster, self._network, self._record)
        replicas = ReplicatedCluster(parts, self._plan.replication, Random(f"placement {self._plan.seed}"))
        return replicas, ReplicaFaultMaker(self._plan, replicas, self._network, self._record)

    async def run(self) -> None:
        """Run from the first broker's start to the last check."""
        self._record.note("scenario", repr(self._plan))
        with trio.move_on_after(_LONGEST_S) as scope:
            async with trio.open_nursery() as nursery:
                await nursery.start(self._cluster.run)
                await self._play()
                await self._cluster.settle()
                self._checker.check(self._workloads)
                self._check_tasks(nursery)
                self.ended_at_s = trio.current_time()
                nursery.cancel_scope.cancel()
        if scope.cancelled_caught:
            self._record.violated(f"the run was not over after {_LONGEST_S} s")

    async def _play(self) -> None:
        async with trio.open_nursery() as nursery:
            for workload in self._workloads:
                nursery.start_soon(workload.run)
            await self._faults.run()
            self._append_errors.active = False
            for workload in self._workloads:
                workload.calm.set()

    def _check_tasks(self, nursery: trio.Nursery) -> None:
        """Check that the brokers' task is the only one left."""
        left = sorted(task.name for task in nursery.child_tasks)
        if len(left) != 1:
            self._record.violated(f"tasks are left: {left}")


@contextmanager
def deterministic(seed: int) -> Iterator[None]:
    """Make the block deterministic: seed Python's and trio's random numbers, stop garbage collection."""
    run = trio._core._run
    of_trio = vars(run)  # trio's plugin for Hypothesis sets the same switches
    before, trios_before = random_module.getstate(), run._r.getstate()
    sorts_before, collects = of_trio[_SORTS], gc.isenabled()
    random_module.seed(seed)
    run._r.seed(seed)
    of_trio[_SORTS] = True
    gc.disable()
    try:
        yield
    finally:
        random_module.setstate(before)
        run._r.setstate(trios_before)
        of_trio[_SORTS] = sorts_before
        if collects:
            gc.enable()


@contextmanager
def _errors_logged(record: RunRecord) -> Iterator[None]:
    """Note errors that are logged with a traceback as violations, except power cuts; silence the log."""

    class Watch(logging.Handler):
        def emit(self, line: logging.LogRecord) -> None:
            error = line.exc_info[1] if line.exc_info else None
            if error is not None and not isinstance(first_of(error), PowerCutError):
                record.violated(f"{line.name} logged {line.getMessage()}: {first_of(error)!r}")

    logger, watch = logging.getLogger("splashdam"), Watch(logging.WARNING)
    propagated, level = logger.propagate, logger.level
    logger.addHandler(watch)
    logger.propagate = False
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.removeHandler(watch)
        logger.propagate = propagated
        logger.setLevel(level)
