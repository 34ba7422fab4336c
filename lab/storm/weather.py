"""What is done to three brokers while others send."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Literal

from lab.endurance.records import PARTITIONS, TOPIC
from splashdam import EmbeddedCluster
from splashdam.model.broker_errors import BrokerResponseError

_STEP_SECONDS = 0.1
_IN_SYNC_SECONDS = 30.0


class Weather:
    """Makes bad weather for a cluster, which is whole before and after.

    Args:
        cluster: running.
        dice: decide what and when.
        pause_seconds: between two troubles, at least and at most.
        on_step: called every now and then.

    Attributes:
        counts: how often what was done.
    """

    def __init__(
        self,
        cluster: EmbeddedCluster,
        dice: random.Random,
        pause_seconds: tuple[float, float],
        on_step: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._dice = dice
        self._pause_seconds = pause_seconds
        self._on_step = on_step
        self.counts: Counter[str] = Counter()

    def run(self, seconds: float) -> None:
        """For so long; afterwards all brokers run and are in sync.

        Raises:
            KafkaTimeoutError: they are not.
        """
        troubles = [self._kill, self._restart, self._move, self._prefer, self._delay, self._drop]
        often = [30, 15, 25, 5, 20, 5]
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.wait(self._dice.uniform(*self._pause_seconds))
            self._dice.choices(troubles, often)[0]()
        self._cluster.faults.clear()
        self._cluster.wait_in_sync(_IN_SYNC_SECONDS)

    def _kill(self) -> None:
        """One, and now and then a second one behind it: then nobody can acknowledge for all."""
        nodes = self._dice.sample(self._cluster.nodes, 2 if self._dice.random() < 0.15 else 1)
        for node in nodes:
            self._cluster.kill(node)
            self.counts["kills"] += 1
            self.wait(self._dice.choice((0, self._dice.uniform(0, 1))))
        self.counts["times that two were down"] += len(nodes) - 1
        for node in nodes:
            self._cluster.start(node)

    def _restart(self) -> None:
        node = self._dice.choice(self._cluster.nodes)
        self._cluster.stop(node)
        self.wait(self._dice.uniform(0, 0.5))
        self._cluster.start(node)
        self.counts["restarts"] += 1

    def _move(self) -> None:
        for partition in self._dice.sample(range(PARTITIONS), self._dice.randint(1, PARTITIONS)):
            try:
                self._cluster.move_leader(TOPIC, partition, self._dice.choice(self._cluster.nodes))
            except BrokerResponseError:
                self.counts["moves to brokers that are not in sync yet"] += 1
            else:
                self.counts["leader moves"] += 1

    def _prefer(self) -> None:
        self._cluster.elect_preferred_leaders()
        self.counts["preferred elections"] += 1

    def _delay(self) -> None:
        faults, node = self._cluster.faults, self._dice.choice(self._cluster.nodes)
        slow = self._dice.choice((faults.produce, faults.fetch, faults.any_request))
        delay_ms, chance = self._dice.uniform(20, 400), self._dice.choice((0.2, 1.0))
        with slow(delay_ms=delay_ms, broker=node, probability=chance, from_brokers=True):
            self.wait(self._dice.uniform(0.3, 2))
        self.counts["times that a broker was slow"] += 1

    def _drop(self) -> None:
        """Connections end before or after a request is handled."""
        moments: tuple[Literal["before", "after"], ...] = ("before", "after")
        when = self._dice.choice(moments)
        node = self._dice.choice(self._cluster.nodes)
        self._cluster.faults.produce(drop=when, broker=node, times=self._dice.randint(1, 5))
        self.counts["times that connections broke"] += 1

    def wait(self, seconds: float) -> None:
        """So long, and tells whoever wants to know."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._on_step()
            time.sleep(min(left, _STEP_SECONDS))
