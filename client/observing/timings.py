"""What callers of a producer wait for: memory, metadata, ``flush`` and the steps of transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Protocol, TypeVar, cast

from splashdam.model.tally import Tally
from splashdam.net.clock import Clock
from splashdam.net.guard import Guard


class CallerTally(Tally):
    """Written by any thread, through ``add``. Times in nanoseconds, as Kafka has them.

    Attributes:
        exhausted: records for which there was no memory within ``max_block_ms``.
        memory_ns: waiting for memory.
        metadata_ns: waiting for a topic's metadata.
        flush_ns: in ``flush``.
        txn_init_ns, txn_begin_ns, txn_send_offsets_ns, txn_commit_ns, txn_abort_ns: in the methods of
            transactions.
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
        self._guard = Guard()  # a signal handler may come between, and wait, too

    def add(self, name: str, amount: float) -> None:
        """Adds to the figure of this name."""
        self._guard.run(self._add, name, int(amount))

    def _add(self, name: str, amount: int) -> None:
        setattr(self, name, getattr(self, name) + amount)


class HasTally(Protocol):
    """A producer's intake, as far as this file needs it."""

    @property
    def tally(self) -> CallerTally: ...


class Measuring(Protocol):
    """A producer's core, likewise."""

    @property
    def clock(self) -> Clock: ...
    @property
    def intake(self) -> HasTally: ...


F = TypeVar("F", bound=Callable[..., Any])


def timed(name: str) -> Callable[[F], F]:
    """Counts what a method of a producer takes, however it ends; ``name`` is a figure of ``CallerTally``."""

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
        core.intake.tally.add(name, (core.clock.now_ms() - since_ms) * 1e6)
