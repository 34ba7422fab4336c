"""What one turn of the broker's loop does for its clients; the rest comes in later turns, or beside the loop.

No request keeps the loop for long, whatever is in it. Two rules see to that:

- Work is counted in units of about 30 µs, which is a small request. A turn has 256 of them; then the others
  have theirs. Handlers and guards that loop over what a client named, or over a log, are generators:
  ``yield n`` counts n units, and says that the turn may end here.
- What a stranger packed is unpacked here only where that is little: 256 KiB at most, and no word of the
  bytes about their own size is believed. All else runs beside the loop (``Files.run``: a thread on disk;
  inline in memory, so that virtual time stays true), one batch of a request at a time and few at once. The
  parties that wait for a place there get one in turn, however many connections each of them has.

A handler may also yield a `Work`, whose result it is sent or whose error it is thrown. Its connection waits
meanwhile, as for any parked answer, and no other one does. Between two steps anything may happen: a handler
looks up again whatever it knew of topics, logs and leaders.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Generator, Hashable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import trio

from splashdam.embedded_broker.answering.answers import Account, Answer, Parked
from splashdam.record.compression import MAX_DECOMPRESSED_BYTES, OverLimitError
from splashdam.wire.message import Response

A = TypeVar("A")
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

WAITS_IN_A_TURN = 128
"""Of those that an answer makes for replicas and disks; each takes up to 20 µs, even if all is done."""

PARTITIONS_IN_A_UNIT = 8
"""Of those that an answer describes, in a few fields each."""

AT_ONCE = 512
"""Partitions that are changed together, in one write of the disk, where a request names more."""

PARTITION_UNITS = 20
"""For making the files of one partition, or removing them: some twelve of them end a turn."""

CHANGE_UNITS = 32
"""A change of the topics is on stable storage before it is answered: it takes as long as so many requests."""

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

    def do(self, max_bytes: int) -> T_co:
        """Does it, perhaps in a thread: it touches nothing that belongs to the loop.

        Args:
            max_bytes: how much it may unpack.

        Raises:
            OverLimitError: there is more; where the limit was MAX_DECOMPRESSED_BYTES, for good.
        """
        ...


Steps: TypeAlias = Generator[Work[Any] | int, Any, T]
"""What a handler or a guard that may take several turns returns."""


def in_steps(
    items: Iterable[A], do: Callable[[A], T], *, in_a_unit: int = PARTITIONS_IN_A_UNIT
) -> Steps[list[T]]:
    """What a function makes of each item, in order; after each unit of them the turn may end."""
    done: list[T] = []
    for number, item in enumerate(items, 1):
        done.append(do(item))
        if number % in_a_unit == 0:
            yield 1
    return done


def parted(items: Iterable[A], is_one: Callable[[A], bool]) -> Steps[tuple[list[A], list[A]]]:
    """Those of which something is true, and the others; the turn may end as in ``in_steps``."""
    ones: list[A] = []
    others: list[A] = []
    for number, item in enumerate(items, 1):
        (ones if is_one(item) else others).append(item)
        if number % PARTITIONS_IN_A_UNIT == 0:
            yield 1
    return ones, others


async def let_others(number: int) -> None:
    """Gives the other clients a turn after every `WAITS_IN_A_TURN`-th of many waits.

    A wait for what has happened already comes back at once, so that thousands of them would be one turn.
    """
    if number % WAITS_IN_A_TURN == 0:
        await trio.lowlevel.checkpoint()


def units_of_names(*names: str) -> int:
    """What it costs to hash names, as Java does, and to quote them: the longest has 32 KiB."""
    return 1 + sum(map(len, names)) // 1024


class Turns:
    """Counts what is done in one turn, and has the heavy work done beside the loop.

    Args:
        run: of the file system.
        now_ms: of the broker's clock.

    Attributes:
        left: units left in this turn. Whoever has let others have theirs calls ``begin``.
        beside: how many works were done beside the loop.
    """

    def __init__(self, run: Run, now_ms: Callable[[], float]) -> None:
        self.left = TURN_UNITS
        self.beside = 0
        self.now_ms = now_ms
        self._run = run
        self._places = _Places()

    def begin(self) -> None:
        """A new turn: the others have had theirs."""
        self.left = TURN_UNITS

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

    async def do_beside(self, work: Work[T], account: Account) -> T:
        """Does work beside the loop, when the turn of its party comes; one place is for light work alone.

        What does not look heavy is tried as light work first. A client that leaves meanwhile is waited for:
        the work of one batch ends soon.
        """
        self.beside += 1
        if work.size_bytes <= HEAVY_BYTES:
            try:
                return await self._do_in_a_place(work, HEAVY_BYTES, account)
            except OverLimitError:
                pass
        return await self._do_in_a_place(work, MAX_DECOMPRESSED_BYTES, account)

    async def _do_in_a_place(self, work: Work[T], max_bytes: int, account: Account) -> T:
        async with self._places.taken(account.party, is_heavy=max_bytes > HEAVY_BYTES):
            began_ms = self.now_ms()
            try:
                return await self._run(partial(work.do, max_bytes))
            finally:
                account.spent_ms += self.now_ms() - began_ms

    def answer(self, steps: Steps[Answer], account: Account) -> Answer:
        """The answer of a handler that is a generator: at once, where it needs no more than this turn."""
        course = _Course(steps, account, self)
        return course.result if course.go_on() else Parked(partial(_finish, course))

    async def finish(self, steps: Steps[Answer], account: Account) -> Response | None:
        """As ``answer``, and waits for it."""
        return await _waited(await self.finish_steps(steps, account))

    async def finish_steps(self, steps: Steps[T], account: Account) -> T:
        """What a generator returns, after as many turns as it takes."""
        return await _Course(steps, account, self).finish()


class _Course(Generic[T]):
    """The steps of one request, and how far they have come.

    Attributes:
        result: what they return, once ``go_on`` has said that they are done.
    """

    result: T

    def __init__(self, steps: Steps[T], account: Account, turns: Turns) -> None:
        self._steps = steps
        self._account = account
        self._turns = turns
        self._step: Callable[[], Work[Any] | int] = partial(next, steps)
        self._due: Work[Any] | None = None  # before the next step
        self._is_heavy = False

    def go_on(self) -> bool:
        """Takes steps until they or the turn are at an end, or heavy work is due; true at the steps' end."""
        while self._due is None or self._try(self._due):
            try:
                came = self._step()
            except StopIteration as end:
                self.result = end.value
                return True
            self._step = partial(next, self._steps)
            if isinstance(came, int):
                self._turns.left -= came
            else:
                self._due = came
            if self._turns.left <= 0:
                break
        return False

    async def finish(self) -> T:
        """Takes as many turns as it needs, from this one on."""
        try:
            while not self._go_on_charged():
                await self._wait()
            return self.result
        finally:
            self._steps.close()

    async def resume(self) -> T:
        """As ``finish``, from the next turn on."""
        try:
            await self._wait()
            return await self.finish()
        finally:
            self._steps.close()

    def _go_on_charged(self) -> bool:
        began_ms = self._turns.now_ms()
        try:
            return self.go_on()
        finally:
            self._account.spent_ms += self._turns.now_ms() - began_ms

    async def _wait(self) -> None:
        """Lets the others have their turns; heavy work is done meanwhile."""
        if self._is_heavy and self._due is not None:
            try:
                self._did(await self._turns.do_beside(self._due, self._account))
            except Exception as error:
                self._failed(error)
        else:
            await trio.lowlevel.checkpoint()
        self._turns.begin()

    def _try(self, due: Work[Any]) -> bool:
        """Does the work that is due, unless it is too much for a turn."""
        self._is_heavy = self._account.is_heavy
        if self._is_heavy:
            return False
        try:
            self._did(self._turns.attempt(due))
        except OverLimitError:
            self._is_heavy = True
            return False
        except Exception as error:
            self._failed(error)
        return True

    def _did(self, result: Any) -> None:
        self._due, self._is_heavy = None, False
        self._step = partial(self._steps.send, result)

    def _failed(self, error: Exception) -> None:
        self._due, self._is_heavy = None, False
        self._step = partial(self._steps.throw, error)


class _Places:
    """Where work is done beside the loop, given to those who wait: to each party in turn, light and heavy."""

    def __init__(self) -> None:
        self._free, self._heavy_free = _PLACES, _HEAVY_PLACES
        self._light: OrderedDict[Hashable, deque[trio.Event]] = OrderedDict()  # whose turn it is stands first
        self._heavy: OrderedDict[Hashable, deque[trio.Event]] = OrderedDict()
        self._heavy_is_next = False

    @asynccontextmanager
    async def taken(self, party: Hashable, *, is_heavy: bool) -> AsyncIterator[None]:
        """Waits for a place, and has it within the block."""
        place, lines = trio.Event(), self._heavy if is_heavy else self._light
        lines.setdefault(party, deque()).append(place)
        self._let_in()
        try:
            await place.wait()
            yield
        finally:
            if place.is_set():
                self._free += 1
                self._heavy_free += is_heavy
                self._let_in()
            else:
                lines[party].remove(place)
                if not lines[party]:
                    del lines[party]

    def _let_in(self) -> None:
        while self._free and (self._light or self._may_be_heavy):
            is_heavy = self._may_be_heavy and (self._heavy_is_next or not self._light)
            lines = self._heavy if is_heavy else self._light
            party, line = next(iter(lines.items()))
            line.popleft().set()
            if line:
                lines.move_to_end(party)
            else:
                del lines[party]
            self._free -= 1
            self._heavy_free -= is_heavy
            self._heavy_is_next = not is_heavy

    @property
    def _may_be_heavy(self) -> bool:
        return bool(self._heavy and self._heavy_free)


async def _finish(course: _Course[Answer]) -> Response | None:
    return await _waited(await course.resume())


async def _waited(answer: Answer) -> Response | None:
    return await answer.wait() if isinstance(answer, Parked) else answer
