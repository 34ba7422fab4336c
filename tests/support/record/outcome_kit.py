"""What tests of outcomes share: outcomes in each state, and waiters that say that they were called."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from splashdam.model.errors import KafkaError
from splashdam.model.values import TopicPartition
from splashdam.record.kernel import FAILED, SPLIT, SUCCEEDED

TP = TopicPartition("t", 3)
ERROR = KafkaError("no")


def outcome_in(kernel: ModuleType, state: int) -> Any:
    outcome = kernel.BatchOutcome(TP)
    if state == SUCCEEDED:
        outcome.succeed(100, -1)
    elif state == FAILED:
        outcome.fail(ERROR)
    elif state == SPLIT:
        outcome.split([0, 5], [kernel.BatchOutcome(TP)])
    return outcome


class Calls(list[str]):
    """Makes waiters that note their name when called."""

    def waiter(self, name: str) -> Callable[[], None]:
        return lambda: self.append(name)
