"""Kills brokers at single system calls of compaction, moves and reassignments: ``make kill-points``.

A library that is preloaded into the process sends it SIGKILL at a call that the action makes: a rename of the
cleaner's swap, a write to the copy of a log that moves to another data directory, a line of the cluster's
journal. First each action runs without a kill, and its calls are noted. Then the process is killed at the
first calls of each class, in random order; it is started again, and must complete the action if it had
accepted it. Producers send all the time. In the end each acknowledged record must be in the log once, in
order, at its offset, and a compacted topic must have the newest version of each key.

Half of the time goes to one broker with two data directories, half to three brokers in one process. The exit
status is 1 if a promise is broken. Needs Linux and a C compiler.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import attrs
from rich.console import Console

from lab.broker_process import Broker, BrokerDied
from lab.failing_calls.library import NoLibraryError, compiled
from lab.kill_points import one_broker
from lab.kill_points.killing import Action, Killing, Victim
from lab.kill_points.one_broker import CompactedOnce, Compaction, Move
from lab.kill_points.reassignments import Brokers, Reassignment, ReassignmentWithoutOne
from lab.ledger import ISOLATIONS, compared_with_log
from lab.producers.process import Producers
from lab.soak.cluster_process import BROKERS
from lab.trial import (
    Verdict,
    add_minutes,
    need_linux,
    run_trial,
    shown_for,
    trial_parser,
    verified_directory,
)

_COMPACTED_RATE = 200
_END_SECONDS = 300


def kill_points(options: argparse.Namespace, folder: Path, console: Console) -> Verdict:
    """Run the trial, from an empty folder to the verdict."""
    try:
        library = compiled(folder)
    except NoLibraryError as error:
        return Verdict(closing=f"kill-points: not possible here ({error})")
    trial = KillPoints(options, library, folder, console)
    parts = {"one-broker": trial.one_broker, "three-brokers": trial.three_brokers}
    trial.seconds = options.minutes * 60 / (1 if options.only else len(parts))
    for name, part in parts.items():
        try:
            if options.only in (None, name):
                part()
        except BrokerDied as error:
            trial.verdict.violations.append(f"a broker did not start: {error}")
    kills = ", ".join(f"{count} kills in {name}" for name, count in trial.kills.items())
    broken = len(trial.verdict.violations)
    trial.verdict.closing = f"kill-points: {kills}, {broken} promises broken (seed {options.seed})"
    return trial.verdict


@attrs.define
class KillPoints:
    """Both parts of the trial, and their results.

    Attributes:
        options: of the command.
        library: see `lab.failing_calls.library.compiled`.
        folder: for all files.
        console: for progress.
        seconds: time for the kills of one part.
        verdict: the result.
        kills: their number by action.
    """

    options: argparse.Namespace
    library: Path
    folder: Path
    console: Console
    seconds: float = 0.0
    verdict: Verdict = attrs.field(factory=Verdict)
    kills: Counter[str] = attrs.field(factory=Counter)

    def one_broker(self) -> None:
        """Kill during compaction and moves between data directories."""
        mine = self.folder / "one-broker"
        mine.mkdir()
        broker = Broker(mine / "data", mine / "broker.log", one_broker.PROPERTIES)
        versions = CompactedOnce(broker.address, _COMPACTED_RATE, self.options.seed)
        with ExitStack() as running:
            running.callback(self._include_versions, versions)
            running.callback(broker.kill)
            broker.start()
            running.callback(versions.ending.set)
            versions.start()
            producers = Producers(broker.address, mine, rate=self.options.rate, seed=self.options.seed)
            running.callback(producers.kill)
            self._kill(broker, (Compaction(broker, versions), Move(broker, self._dice())), producers)
            versions.ending.set()
            versions.join(_END_SECONDS)
            versions.compare()
            self._compare(broker.address, producers, mine)
            if status := broker.terminate():
                self.verdict.violations.append(f"the broker ended with status {status} on SIGTERM")
        for path in one_broker.directories_of(broker.data):
            self.verdict.include(verified_directory(path))
        self._look_for_tracebacks(broker.output())

    def three_brokers(self) -> None:
        """Kill during reassignments."""
        mine = self.folder / "three-brokers"
        mine.mkdir()
        brokers = Brokers(mine / "data", mine / "brokers.log")
        with ExitStack() as running:
            running.callback(brokers.kill)
            brokers.start()
            brokers.create_topic()
            actions = (Reassignment(brokers, self._dice()), ReassignmentWithoutOne(brokers, self._dice()))
            producers = Producers(brokers.address, mine, rate=self.options.rate, seed=self.options.seed)
            running.callback(producers.kill)
            self._kill(brokers, actions, producers)
            self._compare(brokers.address, producers, mine)
            if status := brokers.terminate():
                self.verdict.violations.append(f"the cluster ended with status {status}")
        for node in range(1, BROKERS + 1):
            self.verdict.include(verified_directory(brokers.data / f"broker-{node}"))
        self._look_for_tracebacks((mine / "brokers.log").read_text())

    def _dice(self) -> random.Random:
        return random.Random(self.options.seed)

    def _kill(self, victim: Victim, actions: Sequence[Action], producers: Producers) -> None:
        """Kill at points of these actions, while the producers send."""
        names = [each.name for each in actions]

        def status() -> str:
            kills = sum(killing.counts[name] for name in names)
            return f"{producers.acknowledged:,} acknowledged, {kills} kills"

        with shown_for(self.seconds, self.console, status) as show:
            killing = Killing(victim, self.library, self._dice(), show)
            victim.kill()
            try:
                killing.learn(actions)
                killing.run(actions, self.seconds)
            finally:  # what was found counts, also if a broker could not start
                self._include(killing, names)

    def _include_versions(self, versions: CompactedOnce) -> None:
        self.verdict.violations += versions.violations
        self.verdict.facts += [
            (f"{versions.name}: {what}", f"{count:,}") for what, count in versions.counts.items()
        ]

    def _include(self, killing: Killing, names: Sequence[str]) -> None:
        self.verdict.violations += killing.violations
        for name in names:
            self.kills[name] = killing.counts.pop(name, 0)
            tried = f"{killing.tried[name]} of {killing.points.get(name, 0)}"
            self.verdict.facts.append((f"{name}: points tried", tried))
        if not any(self.kills[name] for name in names):
            self.verdict.violations.append(f"nothing was killed during {' or '.join(names)}")
        self.verdict.facts += [(name, f"{count:,}") for name, count in killing.counts.items()]

    def _compare(self, address: str, producers: Producers, folder: Path) -> None:
        self.verdict.violations += producers.finish()
        self.verdict.facts += producers.facts
        if (taken := producers.last.get("taken")) is not None:
            for isolation in ISOLATIONS:
                self.verdict.include(compared_with_log(address, taken, folder, isolation, self.console))

    def _look_for_tracebacks(self, output: str) -> None:
        """Report a traceback; other output is fine, for a broker logs its recovery after a kill."""
        before, found, after = output.partition("Traceback")
        if found:
            self.verdict.violations.append(f"the process wrote: {before[-500:]}{found}{after[:2000]}")


def main() -> int:
    """Run the command; return 1 if a promise was broken."""
    parser = trial_parser("kill_points", __doc__, rate=300)
    add_minutes(parser, 10)
    parser.add_argument("--only", choices=("one-broker", "three-brokers"), help="all the time for this part")
    options = parser.parse_args()
    need_linux(parser)
    return run_trial("kill_points", kill_points, options)


if __name__ == "__main__":
    raise SystemExit(main())
