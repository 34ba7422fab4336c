"""Wait times of a producer's callers: memory, metadata, ``flush`` and transaction calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Protocol, TypeVar, cast

from splashdam.model.counters import WindowedCounters
from splashdam.net.clock import Clock
from splashdam.net.reentrant_lock import ReentrantLock


class CallerCounters(WindowedCounters):
    """Wait times in nanoseconds, as in Kafka; any thread may ``add``.

    Attributes:
        exhausted: records that found no memory within ``max_block_ms``.
        memory_ns: waits for memory.
        metadata_ns: waits for a topic's metadata.
        flush_ns: time in ``flush``.
        txn_init_ns, txn_begin_ns, txn_send_offsets_ns, txn_commit_ns, txn_abort_ns: time in the transaction
            calls.
    """

    exhausted: int = 0
    memory_ns: int = 0
    metadata_ns: int = 0
    flush_ns: int = 0
    txn_init_ns: int = 0
    txn_begin_ns: int = 0
    txn_send_offsets_ns: int = 0
    txn_commit_ns: int = 0
    txn_abort_ns: int = 0

    def __init__(self, samples: int) -> None:
        super().__init__(samples)
        self._guard = ReentrantLock()  # a signal handler may interrupt `add` and call it

    def add(self, name: str, amount: float) -> None:
        """Add to a wait time."""
        self._guard.run(self._add, name, int(amount))

    def _add(self, name: str, amount: int) -> None:
        setattr(self, name, getattr(self, name) + amount)


class HasCallerCounters(Protocol):
    """The part of a producer's intake that counts waits."""

    @property
    def caller_counters(self) -> CallerCounters: ...


class Measuring(Protocol):
    """The parts of a producer's core that a measurement needs."""

    @property
    def clock(self) -> Clock: ...
    @property
    def intake(self) -> HasCallerCounters: ...


F = TypeVar("F", bound=Callable[..., Any])


def timed(name: str) -> Callable[[F], F]:
    """Measure a producer's method, also if it raises; ``name`` is an attribute of ``CallerCounters``."""

    def decorate(method: F) -> F:
        @wraps(method)
        def measured(self: Any, *args: Any, **options: Any) -> Any:
            with _measuring(self._core, name):
                return method(self, *args, **options)

        return cast("F", measured)

    return decorate


def timed_async(name: str) -> Callable[[F], F]:
    """As ``timed``, for a coroutine function."""

    def decorate(method: F) -> F:
        @wraps(method)
        async def measured(self: Any, *args: Any, **options: Any) -> Any:
            with _measuring(self._core, name):
                return await method(self, *args, **options)

        return cast("F", measured)

    return decorate


@contextmanager
def _measuring(core: Measuring, name: str) -> Iterator[None]:
    since_ms = core.clock.now_ms()
    try:
        yield
    finally:
        core.intake.caller_counters.add(name, (core.clock.now_ms() - since_ms) * 1e6)
