"""What one turn of the broker's loop does for its clients; the rest comes in later turns, or beside the loop.

No request keeps the loop for long, whatever is in it. Two rules see to that:

- Work is counted in units of about 30 µs, which is a small request. A turn has 256 of them; then the others
  have theirs. Handlers that loop over what a client named, or over a log, are generators: ``yield None``
  counts a unit, and says that the turn may end here.
- What a stranger packed is unpacked here only where that is little: 256 KiB at most, and no word of the
  bytes about their own size is believed. All else runs beside the loop (``Files.run``: a thread on disk;
  inline in memory, so that virtual time stays true), one batch of a request at a time and few at once.

A handler may also yield a `Work`, whose result it is sent or whose error it is thrown. Its connection waits
meanwhile, as for any parked answer, and no other one does. Between two steps anything may happen: a handler
looks up again whatever it knew of topics, logs and leaders.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar, cast

import trio

from splashdam.embedded_broker.registry import Answer, Parked
from splashdam.record.compression import MAX_DECOMPRESSED_BYTES, OverLimitError
from splashdam.wire.message import Response

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

TURN_UNITS = 256
"""After so many, a few milliseconds, the other clients have their turn."""

UNIT_BYTES = 16 * 1024
"""What is unpacked and walked along in the time of one unit."""

INLINE_BYTES = 256 * 1024
"""Unpacked and walked along in a turn: 0.2 to 0.9 ms. A thread costs 0.1 ms, and some of it the loop's."""

HEAVY_BYTES = 4 << 20
"""Above it, work may fill only some of the places beside the loop, so that there is always one for others."""

_PLACES = 3
_HEAVY_PLACES = 2


class Run(Protocol):
    """``Files.run``."""

    async def __call__(self, work: Callable[[], T]) -> T:
        """Does the work beside the loop; or in it, where everything is in memory."""
        ...


class Work(Protocol[T_co]):
    """Something that may take long, because it unpacks or walks along foreign bytes."""

    @property
    def size_bytes(self) -> int:
        """What it is about to touch, as far as one can say; it decides where it is tried first."""
        ...

    @property
    def most_bytes(self) -> int:
        """What it may touch in the worst case; what is large by this leaves places to others."""
        ...

    def do(self, max_bytes: int) -> T_co:
        """Does it, perhaps in a thread: it touches nothing that belongs to the loop.

        Args:
            max_bytes: how much it may unpack.

        Raises:
            OverLimitError: there is more; where the limit was MAX_DECOMPRESSED_BYTES, for good.
        """
        ...


Steps: TypeAlias = Generator[Work[Any] | None, Any, T]
"""What a handler that may take several turns returns."""


class Turns:
    """Counts what is done in one turn, and has the heavy work done beside the loop.

    Args:
        run: of the file system.

    Attributes:
        left: units left in this turn. Whoever has let others have theirs calls ``begin``.
        beside: how many works were done beside the loop.
    """

    def __init__(self, run: Run) -> None:
        self.left = TURN_UNITS
        self.beside = 0
        self._run = run
        self._places = trio.CapacityLimiter(_PLACES)
        self._heavy_places = trio.CapacityLimiter(_HEAVY_PLACES)

    def begin(self) -> None:
        """A new turn: the others have had theirs."""
        self.left = TURN_UNITS

    def spend(self, units: int = 1) -> None:
        """Counts work."""
        self.left -= units

    def attempt(self, work: Work[T]) -> T:
        """Does little work at once.

        Raises:
            OverLimitError: it is too much for a turn.
        """
        if work.size_bytes > INLINE_BYTES:
            raise OverLimitError
        self.left -= 1 + work.size_bytes // UNIT_BYTES
        try:
            return work.do(INLINE_BYTES)
        except OverLimitError:
            self.left -= INLINE_BYTES // UNIT_BYTES  # so much was unpacked for nothing
            raise

    async def do_beside(self, work: Work[T]) -> T:
        """Does work beside the loop, when its turn comes: first come, first served, one place for light work.

        A client that leaves meanwhile is waited for: the work of one batch ends soon.
        """
        if max(work.size_bytes, work.most_bytes) > HEAVY_BYTES:
            async with self._heavy_places:
                return await self._do_in_a_place(work)
        return await self._do_in_a_place(work)

    async def _do_in_a_place(self, work: Work[T]) -> T:
        async with self._places:
            self.beside += 1
            return await self._run(partial(work.do, MAX_DECOMPRESSED_BYTES))

    def answer(self, steps: Steps[Answer]) -> Answer:
        """The answer of a handler that is a generator: at once, where it needs no more than this turn."""
        try:
            stop = self._go_on(steps, partial(next, steps))
        except StopIteration as done:
            return cast("Answer", done.value)
        return Parked(partial(self._finish, steps, stop))

    async def finish(self, steps: Steps[Answer]) -> Response | None:
        """As ``answer``, and waits for it."""
        return await _waited(await self.finish_steps(steps))

    async def finish_steps(self, steps: Steps[T]) -> T:
        """What a generator returns, after as many turns as it takes."""
        try:
            stop = self._go_on(steps, partial(next, steps))
        except StopIteration as done:
            return cast("T", done.value)
        return await self._rest(steps, stop)

    def _go_on(self, steps: Steps[Any], step: Callable[[], Work[Any] | None]) -> _Stop:
        """Steps until the turn is over or one has to be done beside the loop; StopIteration at their end."""
        while True:
            due = step()
            if due is None:
                self.left -= 1
            if self.left <= 0:
                return _Stop(due)
            if due is None:
                step = partial(next, steps)
                continue
            try:
                done = self.attempt(due)
            except OverLimitError:
                return _Stop(due, is_heavy=True)
            except Exception as error:
                step = partial(steps.throw, error)
            else:
                step = partial(steps.send, done)

    async def _finish(self, steps: Steps[Answer], stop: _Stop) -> Response | None:
        return await _waited(await self._rest(steps, stop))

    async def _rest(self, steps: Steps[T], stop: _Stop) -> T:
        try:
            while True:
                due, is_heavy = stop
                step: Callable[[], Work[Any] | None] = partial(next, steps)
                if is_heavy and due is not None:
                    try:
                        step = partial(steps.send, await self.do_beside(due))
                    except Exception as error:
                        step = partial(steps.throw, error)
                else:
                    await trio.lowlevel.checkpoint()
                    if due is not None:
                        step = partial(_still, due)
                self.begin()
                stop = self._go_on(steps, step)
        except StopIteration as done:
            return cast("T", done.value)
        finally:
            steps.close()


class _Stop(NamedTuple):
    """Where the steps of a turn ended."""

    due: Work[Any] | None
    is_heavy: bool = False


def _still(due: Work[Any]) -> Work[Any]:
    return due


async def _waited(answer: Answer) -> Response | None:
    return await answer.wait() if isinstance(answer, Parked) else answer
