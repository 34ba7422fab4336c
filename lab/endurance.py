"""Sends for minutes while a broker is killed, stopped and restarted; then compares the log with the ledgers.

Records are numbered by stream and partition. Each acknowledged record must be in the log once, in order, at
its offset; a record that was never sent must not be there; read_committed consumers see all records of a
transaction or none. Every future must be resolved, buffer memory free, the processes' memory flat, and no
descriptor or thread left. The status is 1 if a promise is broken. Needs Linux (/proc).
"""

from __future__ import annotations

import argparse
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from lab.broker_process import Broker, BrokerDied
from lab.ledger import ISOLATIONS, compared_with_log
from lab.memory import BROKER_MAY_GROW_BYTES, Curve
from lab.producers.process import Producers
from lab.trial import (
    Verdict,
    add_minutes,
    need_linux,
    pause_range,
    run_trial,
    shown_for,
    trial_parser,
    verified_directory,
    wait,
)


def endurance(options: argparse.Namespace, folder: Path, console: Console) -> Verdict:
    """Run the trial, from an empty folder to the verdict."""
    broker, memory = (
        Broker(folder / "data", folder / "broker.log"),
        Curve("memory of the broker", BROKER_MAY_GROW_BYTES),
    )
    verdict = Verdict()
    curves = [memory]
    try:
        with ExitStack() as running:
            running.callback(broker.kill)
            broker.start()
            producers = Producers(broker.address, folder, rate=options.rate, seed=options.seed)
            running.callback(producers.kill)
            curves.insert(0, producers.curve)
            _send(broker, producers, memory, options=options, verdict=verdict, console=console)
            verdict.violations += producers.finish()
            verdict.facts += [*producers.facts, ("memory of the broker", memory.drawn())]
            if "taken" in producers.last:
                _check(broker, producers.last["taken"], folder, verdict, console)
    except BrokerDied as error:
        verdict.violations.append(f"the broker ended by itself: {error}")
    output = broker.last_output()
    if output:
        verdict.violations.append(f"the broker wrote: {output}")
    verdict.violations += [text for curve in curves for text in curve.violations()]
    return verdict


def _send(
    broker: Broker,
    producers: Producers,
    memory: Curve,
    *,
    options: argparse.Namespace,
    verdict: Verdict,
    console: Console,
) -> None:
    seconds, started_at, sampled_at = options.minutes * 60, time.monotonic(), 0.0

    def status() -> str:
        return f"{producers.acknowledged:,} acknowledged, {faults.counts['SIGKILL']} kills"

    with shown_for(seconds, console, status) as show:

        def step() -> None:
            nonlocal sampled_at
            now = time.monotonic() - started_at
            if now - sampled_at >= 1:
                sampled_at = now
                memory.add(now, broker.resident_bytes())
            show()

        faults = ProcessFaults(broker, random.Random(options.seed), pause_range(options.pause), step)
        faults.run(seconds)
    verdict.facts += [(f"{name} of the broker", f"{count:,}") for name, count in faults.counts.items()]


def _check(
    broker: Broker, taken: dict[str, list[int]], folder: Path, verdict: Verdict, console: Console
) -> None:
    for isolation in ISOLATIONS:
        verdict.include(compared_with_log(broker.address, taken, folder, isolation, console))
    status = broker.terminate()
    if status:
        verdict.violations.append(f"the broker ended with status {status} on SIGTERM")
    verdict.include(verified_directory(folder / "data"))


class ProcessFaults:
    """Kills, freezes and restarts one broker; it runs before the first fault and after the last.

    Args:
        broker: a running broker.
        dice: chooses faults and times.
        pause_seconds: the shortest and the longest pause between two faults.
        on_step: called ten times a second, also while the broker is down.

    Attributes:
        counts: signals sent, by name.
    """

    def __init__(
        self,
        broker: Broker,
        dice: random.Random,
        pause_seconds: tuple[float, float],
        on_step: Callable[[], None],
    ) -> None:
        self._broker = broker
        self._dice = dice
        self._pause_seconds = pause_seconds
        self._on_step = on_step
        self.counts: Counter[str] = Counter()

    def run(self, seconds: float) -> None:
        """Cause faults for some seconds; afterwards the broker runs."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            wait(self._dice.uniform(*self._pause_seconds), self._on_step)
            self._broker.check()
            if self._dice.random() < 0.25:
                self._freeze()
            else:
                self._restart()

    def _freeze(self) -> None:
        self._broker.signal(signal.SIGSTOP)
        self.counts["SIGSTOP"] += 1
        wait(self._dice.uniform(0.3, 2.5), self._on_step)
        if self._dice.random() < 0.5:
            self._broker.signal(signal.SIGCONT)
            self.counts["SIGCONT"] += 1
        else:
            self._restart()

    def _restart(self) -> None:
        self._broker.kill()
        self.counts["SIGKILL"] += 1
        wait(self._dice.choice((0, self._dice.uniform(0, 1.5))), self._on_step)
        self._broker.start()


def main() -> int:
    """Run the command; return 1 if a promise was broken."""
    parser = trial_parser(
        "endurance", __doc__, rate=2000, pause=3, pause_help="mean seconds between two faults"
    )
    add_minutes(parser, 10)
    options = parser.parse_args()
    need_linux(parser, "it reads memory and descriptors from /proc")
    return run_trial("endurance", endurance, options)


if __name__ == "__main__":
    raise SystemExit(main())
