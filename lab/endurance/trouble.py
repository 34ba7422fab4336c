"""What is done to the broker while others send: killed, stopped and continued, away for a moment."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable

from lab.endurance.broker import Broker

_STEP_SECONDS = 0.25


class Trouble:
    """Makes trouble for one broker, which runs before and after.

    Args:
        broker: running.
        dice: decide what and when.
        pause_seconds: between two troubles, at least and at most.
        on_step: called every now and then, also while the broker is away.

    Attributes:
        counts: how often what was done.
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
        """For so long; the broker runs afterwards."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._wait(self._dice.uniform(*self._pause_seconds))
            self._broker.check()
            if self._dice.random() < 0.25:
                self._freeze()
            else:
                self._restart()

    def _freeze(self) -> None:
        self._broker.signal(signal.SIGSTOP)
        self.counts["SIGSTOP"] += 1
        self._wait(self._dice.uniform(0.3, 2.5))
        if self._dice.random() < 0.5:
            self._broker.signal(signal.SIGCONT)
            self.counts["SIGCONT"] += 1
        else:
            self._restart()

    def _restart(self) -> None:
        self._broker.kill()
        self.counts["SIGKILL"] += 1
        self._wait(self._dice.choice((0, self._dice.uniform(0, 1.5))))
        self._broker.start()

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._on_step()
            time.sleep(min(left, _STEP_SECONDS))
