"""Kills a process at one system call of an action, starts it again, and waits for the end of the action."""

from __future__ import annotations

import random
import signal
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Protocol

from lab.broker_process import BrokerDied
from lab.failing_calls.library import calls_in, preloading
from lab.kill_points.points import Point, points_of
from lab.trial import wait
from splashdam.model.errors import KafkaError

_REACHED_SECONDS = 10
_DONE_SECONDS = 90
_SETTLED_SECONDS = 0.5
"""Time for calls that follow the end of an action: the removal of old files, checkpoints."""
_STEP_SECONDS = 0.05


class Victim(Protocol):
    """A process with brokers."""

    @property
    def data(self) -> Path:
        """The directory with all their files."""
        ...

    @property
    def status(self) -> int | None:
        """The status of the last process: None before its end, negative after a signal."""
        ...

    def start(self, environment: Mapping[str, str] | None = None) -> None:
        """Start a process, and return when its brokers listen.

        Raises:
            BrokerDied: it ended instead.
        """
        ...

    def kill(self) -> None:
        """Kill the process with SIGKILL; do nothing if it has ended."""
        ...

    def terminate(self) -> int:
        """Stop the brokers in order, and return the status of the process."""
        ...


class Action(ABC):
    """An action of several system calls, which must survive a kill between any two of them.

    Attributes:
        patterns: ``CALL:PATH`` of the calls that may belong to it, for fnmatch.
        is_kept: whether the next process must complete it if the broker had accepted it; else it is begun
            again.
        is_accepted: whether the broker has accepted it.
    """

    name: ClassVar[str]
    patterns: ClassVar[Sequence[str]]
    is_kept: ClassVar[bool] = True
    is_accepted = False

    @abstractmethod
    def begin(self) -> None:
        """Request the action; set ``is_accepted``.

        Raises:
            KafkaError: there was no answer, or the broker refused.
        """

    @abstractmethod
    def is_done(self) -> bool:
        """Return whether the action is complete.

        Raises:
            KafkaError: there was no answer.
        """

    def check(self) -> None:
        """Look at what the next process serves, once the action has ended there."""
        return


class Killing:
    """Kills at the points of actions, and counts.

    Args:
        victim: must not run before `learn`; runs after `run`.
        library: see `lab.failing_calls.library.compiled`.
        dice: draws the points.
        on_step: called often during waits.

    Attributes:
        counts: kills by action, and other events.
        points: number of points by action.
        tried: number of points tried, by action.
        violations: the promises that were broken.
    """

    def __init__(
        self, victim: Victim, library: Path, dice: random.Random, on_step: Callable[[], None]
    ) -> None:
        self._victim = victim
        self._library = library
        self._log = victim.data.with_name("calls")
        self._dice = dice
        self._on_step = on_step
        self._left: dict[str, list[Point]] = {}
        self.counts: Counter[str] = Counter()
        self.points: dict[str, int] = {}
        self.tried: Counter[str] = Counter()
        self.violations: list[str] = []

    def learn(self, actions: Sequence[Action]) -> None:
        """Complete each action once without a kill, and note its calls."""
        self._log.unlink(missing_ok=True)
        self._victim.start(preloading(self._library, self._victim.data, log=self._log))
        for action in actions:
            known = len(calls_in(self._log))
            self._finish(action, "without a kill")
            points = points_of(calls_in(self._log)[known:], action.patterns)
            if not points:
                self.violations.append(f"{action.name}: it made no call at which it could be killed")
            self._dice.shuffle(points)
            self._left[action.name], self.points[action.name] = points, len(points)
        self._victim.kill()

    def run(self, actions: Sequence[Action], seconds: float) -> None:
        """Kill at one point of each action in turn, until the time is up or no point is left."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and any(self._left.values()):
            for action in actions:
                if self._left[action.name]:
                    self._kill_at(action, self._left[action.name].pop())
        self._victim.kill()
        self._victim.start()

    def _kill_at(self, action: Action, point: Point) -> None:
        action.is_accepted = False
        self.tried[action.name] += 1
        try:
            self._victim.start(preloading(self._library, self._victim.data, failure=point.failure()))
        except BrokerDied:
            self.counts["kills during a start"] += 1
        else:
            self._drive(action, _REACHED_SECONDS)
        status = self._victim.status
        if status is None:
            self.counts[f"{action.name}: points not reached"] += 1
            self._victim.kill()
        elif status == -signal.SIGKILL:
            self.counts[action.name] += 1
        else:
            self.violations.append(f"{action.name}, {point}: the process ended with status {status}")
        self._victim.start()  # a broker that cannot start ends the trial
        action.is_accepted &= action.is_kept
        self._finish(action, str(point))
        action.check()
        if self._dice.random() < 0.5:
            self._victim.kill()
        elif status := self._victim.terminate():
            self.violations.append(f"{action.name}, {point}: the next process ended with status {status}")

    def _finish(self, action: Action, when: str) -> None:
        """Complete the action in a process that is not to be killed."""
        if why := self._drive(action, _DONE_SECONDS):
            self.violations.append(f"{action.name}, {when}: no end within {_DONE_SECONDS} s: {why}")

    def _drive(self, action: Action, seconds: float) -> str:
        """Begin the action unless a broker has accepted it, and wait for its end or that of the process.

        Returns:
            Why it has not ended; empty if it has.
        """
        deadline, why = time.monotonic() + seconds, ""
        while self._victim.status is None:
            try:
                if not action.is_accepted:
                    action.begin()
                if action.is_done():
                    why = ""
                    break
                why = "it goes on"
            except (KafkaError, ChildProcessError) as error:
                why = str(error)
            if time.monotonic() > deadline:
                return why
            wait(_STEP_SECONDS, self._on_step)
        settled_at = time.monotonic() + _SETTLED_SECONDS
        while self._victim.status is None and time.monotonic() < settled_at:
            wait(_STEP_SECONDS, self._on_step)
        return why
