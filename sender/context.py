"""The objects that all parts of a sender share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from splashdam.accumulator.accumulator import RecordAccumulator
from splashdam.net.clock import Clock
from splashdam.net.reentrant_lock import ReentrantLock
from splashdam.sender.metadata import Metadata
from splashdam.sender.settings import SenderSettings
from splashdam.sender.statistics import SenderCounters
from splashdam.sender.wakeup import SharedLoopWakeup, Wakeup


class SenderContext(NamedTuple):
    """See the arguments of ``Sender`` for their meaning."""

    settings: SenderSettings
    accumulator: RecordAccumulator
    metadata: Metadata
    clock: Clock
    guard: ReentrantLock
    wakeup: Wakeup | SharedLoopWakeup
    counters: SenderCounters
    random: Callable[[], float]
