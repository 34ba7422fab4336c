"""Cooperative scheduling: how much one turn of the loop does for a client, and what runs beside the loop.

No request keeps the loop for long, whatever is in it. Two rules see to that:

- Work is counted in units of about 30 µs, the cost of a small request. A turn has 256 units; then other
  clients have theirs. Handlers and guards that loop over a client's list, or over a log, are generators:
  ``yield n`` counts n units, and allows the turn to end there.
- Compressed bytes of clients are decompressed in the loop only up to 256 KiB, counted while decompressing:
  sizes in the bytes are not trusted. Everything else runs beside the loop (``Files.run``: in a thread for
  files on disk; inline for files in memory, so that virtual time stays true), one batch of a request at a
  time and few at once. Parties that wait for a place get one in turn, however many connections each has.

A handler may also yield a `Work`; it is sent the result, or the error is thrown into it. Only its own
connection waits meanwhile, as for any parked answer. Between two steps anything may happen: a handler must
look up topics, logs and leaders again.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Generator, Hashable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import trio

from splashdam.embedded_broker.execution.answers import Account, Answer, Parked
from splashdam.record.compression import MAX_DECOMPRESSED_BYTES, OverLimitError
from splashdam.wire.message import Response

A = TypeVar("A")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

TURN_UNITS = 256
"""Units of a turn: a few milliseconds, then the other clients have theirs."""

UNIT_BYTES = 16 * 1024
"""Bytes that are decompressed and scanned in the time of one unit."""

INLINE_BYTES = 256 * 1024
"""Most bytes that are decompressed and scanned in a turn: 0.2 to 0.9 ms. A thread costs 0.1 ms itself."""

HEAVY_BYTES = 4 << 20
"""Larger work may take only some of the places beside the loop, so that one is left for lighter work."""

WAITS_IN_A_TURN = 128
"""Waits for replicas and syncs in a turn; each takes up to 20 µs, even if there is nothing to wait for."""

PARTITIONS_IN_A_UNIT = 8
"""Partitions that an answer describes in one unit, in a few fields each."""

ANSWER_BYTES = 100 << 20
"""Bytes of an answer, about, after which no more is described: a request may name large things often."""

ANSWER_TOO_LARGE = "the answer is too large; name fewer groups in a request"

AT_ONCE = 512
"""Most partitions of a request that are changed together, with one write to disk."""

PARTITION_UNITS = 20
"""Units for creating or removing the files of one partition: some twelve of them end a turn."""

CHANGE_UNITS = 32
"""Units of a change of topics: it is on stable storage before it is answered."""

# Heavy work never takes the last place. Two batches of 100 MB are also the most that it holds in memory.
_PLACES = 3
_HEAVY_PLACES = 2


class Run(Protocol):
    """``Files.run``."""

    async def __call__(self, work: Callable[[], T]) -> T:
        """Do the work beside the loop; or in it, where files are in memory."""
        ...


class Work(Protocol[T_co]):
    """Something that may take long, because it decompresses or scans bytes of clients."""

    @property
    def size_bytes(self) -> int:
        """An estimate of the bytes to process; it decides where the work is tried first."""
        ...

    def do(self, max_bytes: int) -> T_co:
        """Do it, perhaps in a thread: it must not touch anything that belongs to the loop.

        Args:
            max_bytes: how much it may decompress.

        Raises:
            OverLimitError: there is more; if the limit was MAX_DECOMPRESSED_BYTES, this is final.
        """
        ...


Steps: TypeAlias = Generator[Work[Any] | int, Any, T]
"""The generator of a handler or guard that may take several turns."""


def in_steps(
    items: Iterable[A], do: Callable[[A], T], *, in_a_unit: int = PARTITIONS_IN_A_UNIT
) -> Steps[list[T]]:
    """Return the results of a function for all items, in order; after each unit the turn may end."""
    done: list[T] = []
    for number, item in enumerate(items, 1):
        done.append(do(item))
        if number % in_a_unit == 0:
            yield 1
    return done


def parted(items: Iterable[A], is_one: Callable[[A], bool]) -> Steps[tuple[list[A], list[A]]]:
    """Split items by a predicate; the turn may end as in ``in_steps``."""
    ones: list[A] = []
    others: list[A] = []
    for number, item in enumerate(items, 1):
        (ones if is_one(item) else others).append(item)
        if number % PARTITIONS_IN_A_UNIT == 0:
            yield 1
    return ones, others


async def let_others(number: int) -> None:
    """Give the other clients a turn after every `WAITS_IN_A_TURN`-th of many waits.

    A wait for something that has happened already returns at once: thousands of them would be one turn.
    """
    if number % WAITS_IN_A_TURN == 0:
        await trio.lowlevel.checkpoint()


def units_of_names(*names: str) -> int:
    """Return the cost of hashing names, as Java does, and of quoting them: the longest has 32 KiB."""
    return 1 + sum(map(len, names)) // 1024


class Turns:
    """Counts the units of the present turn, and runs heavy work beside the loop.

    Args:
        run: ``Files.run``.
        now_ms: of the broker's clock.

    Attributes:
        left: units left in this turn. After a checkpoint the caller calls ``begin``.
        beside: number of works that were done beside the loop.
    """

    def __init__(self, run: Run, now_ms: Callable[[], float]) -> None:
        self.left = TURN_UNITS
        self.beside = 0
        self.now_ms = now_ms
        self._run = run
        self._places = _Places()

    def begin(self) -> None:
        """Begin a new turn: other tasks have run."""
        self.left = TURN_UNITS

    def attempt(self, work: Work[T]) -> T:
        """Do light work at once.

        Raises:
            OverLimitError: it is too much for a turn.
        """
        if work.size_bytes > INLINE_BYTES:
            raise OverLimitError
        self.left -= 1 + work.size_bytes // UNIT_BYTES
        try:
            return work.do(INLINE_BYTES)
        except OverLimitError:
            self.left -= INLINE_BYTES // UNIT_BYTES  # decompressed in vain
            raise

    async def do_beside(self, work: Work[T], account: Account) -> T:
        """Do work beside the loop, when its party's turn comes; one place is for light work only.

        Work that does not look heavy is tried as light work first. It is not cancelled when its client
        disconnects: the work of one batch ends soon.
        """
        # A claimed size is not believed: it only decides where the work is tried first, and the limit on the
        # output ends the attempt. Otherwise small claims would keep the loop, or the light place, busy for
        # long.
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
        """Return the answer of a handler that is a generator: at once, if this turn is enough."""
        runner = _StepRunner(steps, account, self)
        return runner.result if runner.go_on() else Parked(partial(_finish, runner))

    def take_all(self, steps: Steps[T]) -> T:
        """Return what a generator returns, in this turn: its steps are few, and none is heavy work."""
        try:
            while True:
                units = next(steps)
                assert isinstance(units, int)
                self.left -= units
        except StopIteration as end:
            result: T = end.value
            return result

    async def finish(self, steps: Steps[Answer], account: Account) -> Response | None:
        """As ``answer``, and wait for it."""
        return await _waited(await self.finish_steps(steps, account))

    async def finish_steps(self, steps: Steps[T], account: Account) -> T:
        """Return what a generator returns, after as many turns as it takes."""
        return await _StepRunner(steps, account, self).finish()


class _StepRunner(Generic[T]):
    """Runs the steps of one generator, over as many turns as they take.

    Attributes:
        result: what it returned, once ``go_on`` has returned true.
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
        """Take steps until the turn ends or heavy work is due; return whether the generator has ended."""
        while self._due is None or self._try(self._due):
            # Replaced before the call: an error that is thrown is not kept, with all that its frames hold.
            step, self._step = self._step, partial(next, self._steps)
            try:
                came = step()
            except StopIteration as end:
                self.result = end.value
                return True
            if isinstance(came, int):
                self._turns.left -= came
            else:
                self._due = came
            if self._turns.left <= 0:
                break
        return False

    async def finish(self) -> T:
        """Take as many turns as needed, from this one on."""
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
        """Let other clients have their turns; do heavy work meanwhile."""
        if self._is_heavy and self._due is not None:
            try:
                self._did(await self._turns.do_beside(self._due, self._account))
            except Exception as error:
                self._failed(error)
        else:
            self._account.turns += 1
            await trio.lowlevel.checkpoint()
        self._turns.begin()

    def _try(self, due: Work[Any]) -> bool:
        """Do the work that is due; return false if it is too much for a turn."""
        self._is_heavy = self._account.is_heavy
        if self._is_heavy:
            return False
        try:
            self._did(self._turns.attempt(due))
        except OverLimitError:
            self._is_heavy = True
            return False
        # Thrown into the generator: a handler answers it for one partition, and goes on with the others.
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
    """The places for work beside the loop; waiting parties get them in turn, light and heavy alternately."""

    def __init__(self) -> None:
        self._free, self._heavy_free = _PLACES, _HEAVY_PLACES
        self._light: OrderedDict[Hashable, deque[trio.Event]] = OrderedDict()  # the next party first
        self._heavy: OrderedDict[Hashable, deque[trio.Event]] = OrderedDict()
        self._heavy_is_next = False

    @asynccontextmanager
    async def taken(self, party: Hashable, *, is_heavy: bool) -> AsyncIterator[None]:
        """Wait for a place, and hold it within the block."""
        # One line per party, served in turn: many connections of one client must not delay the others.
        place, lines = trio.Event(), self._heavy if is_heavy else self._light
        lines.setdefault(party, deque()).append(place)
        self._let_in()
        try:
            await place.wait()
            yield
        finally:
            # ``wait`` may be cancelled although the place was given in the same pass of the scheduler.
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


async def _finish(runner: _StepRunner[Answer]) -> Response | None:
    return await _waited(await runner.resume())


async def _waited(answer: Answer) -> Response | None:
    return await answer.wait() if isinstance(answer, Parked) else answer
