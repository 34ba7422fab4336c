"""One epoll for all clients that send usual requests, as in Kafka's Selector.

Each client has a task, which trio wakes for a request, and which waits for the next one: that takes longer
than to append a small batch. So clients whose last requests were answered in place wait here. One task reads
the requests of all of them, and answers in place what it can. Any other request is left to its client's own
task.

Answers to a crowd leave in groups. Often one process has many of the connections, and to wake it for an
answer costs as much as an append: it is woken once for a group (docs/decisions/selector.md).
"""

from __future__ import annotations

import select
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import Enum
from typing import Any, Protocol

import trio

from splashdam.embedded_broker.execution.turns import Turns
from splashdam.embedded_broker.topics.parking import FetchParking

GROUP = 8
"""Answers that leave together, if a pass finds requests of more clients than that: some 0.15 ms of work."""

_MOST_EVENTS = 256
"""Most clients whose requests are read in a pass of the loop."""


class Arrival(Enum):
    """What has come for a client's own task."""

    BYTES = "bytes"  # they are read
    END = "end of the stream"
    NOTHING = "nothing"  # but answers are left to send, or more is to be looked for


class Channel(Protocol):
    """A connection whose client has been answered."""

    def answer_in_place(self) -> Arrival | None:
        """Read what has arrived, and answer it; return None if nothing is left to the channel's task.

        More may have arrived than was read, unless this returns None.

        Raises:
            BlockingIOError: nothing has arrived.
        """
        ...

    def send_in_place(self) -> bool:
        """Send the answers as far as the socket takes them; return whether that is all."""
        ...


class SelectionKey:
    """A channel's place in a selector.

    Args:
        selector: of the broker.
        descriptor: of the channel's socket.
        channel: the channel.
    """

    __slots__ = (
        "_channel",
        "_come",
        "_is_ending",
        "_is_registered",
        "_must_look",
        "_selector",
        "_task",
        "descriptor",
    )

    def __init__(self, selector: Selector, descriptor: int, channel: Channel) -> None:
        self.descriptor = descriptor
        self._selector = selector
        self._channel = channel
        self._task: trio.lowlevel.Task | None = None  # that waits
        self._come: Arrival | Exception = Arrival.NOTHING  # for that task
        self._is_registered = False
        self._must_look = False  # something may have arrived that is not reported again
        self._is_ending = False  # the stream ends behind what has arrived: that is not reported again, either

    async def wait(self) -> Arrival:
        """Wait until something has come that is not answered in place.

        Answers may be left that were made in place: the caller sends them first.

        Raises:
            Exception: of ``answer_in_place`` or ``send_in_place``.
        """
        if self._must_look:
            self._must_look = False
            await trio.lowlevel.checkpoint()
            self._selector.turns.begin()
            with suppress(BlockingIOError):  # the channel's task has read it
                arrival = self._channel.answer_in_place()
                self._must_look = arrival is not None or self._is_ending
                return arrival or Arrival.NOTHING
        self._task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._end_wait)
        if isinstance(self._come, Exception):
            raise self._come
        return self._come

    def _end_wait(self, _: object) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED

    def register(self) -> bool:
        """Have the socket watched from now on; return whether that is possible."""
        if not self._is_registered:
            try:
                self._selector.register(self)  # reports what has arrived already
            except OSError:  # too many open files, or watched ones
                return False
            self._is_registered = True
        return True

    def answer(self, *, is_ending: bool = False) -> bool:
        """Let the channel answer what has arrived; return whether it waits on, with answers to ``send``.

        Args:
            is_ending: the stream ends behind what has arrived.
        """
        self._is_ending |= is_ending
        if self._task is None:
            self._must_look = True
            return False
        try:
            arrival = self._channel.answer_in_place()
        except BlockingIOError:
            return False
        except Exception as error:
            self._wake(error)
            return False
        if arrival is None and not self._is_ending:
            return True
        self._wake(arrival or Arrival.NOTHING)
        return False

    def leave(self, *, is_ending: bool) -> None:
        """Leave what has arrived to the channel's task, which has a turn of its own."""
        self._is_ending |= is_ending
        self._must_look = True
        self._wake(Arrival.NOTHING)

    def send(self) -> None:
        """Let the channel send its answers."""
        try:
            is_sent = self._channel.send_in_place()
        except Exception as error:
            self._wake(error)
        else:
            if not is_sent:
                self._wake(Arrival.NOTHING)

    def _wake(self, come: Arrival | Exception) -> None:
        task, self._task = self._task, None
        if task is not None:
            self._come, self._must_look = come, True
            trio.lowlevel.reschedule(task)

    def unregister(self) -> None:
        """Have the socket no longer watched; a socket is closed only after that."""
        if self._is_registered:
            self._selector.unregister(self)
            self._is_registered = False


class Selector:
    """Waits for the requests of all channels with a key, and has them answered.

    Args:
        turns: of the broker.
        parking: the fetches that the answered requests may wake.
        start_soon: starts a task that ends with the broker.

    Attributes:
        turns: the same.
    """

    is_available = hasattr(select, "epoll")
    """Whether this system has epoll; without it every client is served by its own task alone."""

    def __init__(
        self, turns: Turns, parking: FetchParking, start_soon: Callable[[Callable[[], Awaitable[Any]]], None]
    ) -> None:
        self.turns = turns
        self._parking = parking
        self._start_soon = start_soon
        self._epoll: select.epoll | None = None
        self._keys: dict[int, SelectionKey] = {}

    def register(self, key: SelectionKey) -> None:
        """Watch the socket of a key; the first one starts the selector.

        Raises:
            OSError: there are too many open files, or watched ones.
        """
        if self._epoll is None:
            self._epoll = select.epoll()
            self._start_soon(self._run)
        # Edge-triggered: a channel that is busy is not reported again and again, and stays registered.
        self._epoll.register(key.descriptor, select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET)
        self._keys[key.descriptor] = key

    def unregister(self, key: SelectionKey) -> None:
        """Watch it no more."""
        # If its socket is closed, the descriptor may be that of another channel by now.
        if self._keys.get(key.descriptor) is not key:
            return
        del self._keys[key.descriptor]
        if self._epoll is not None:
            with suppress(OSError):  # closed, and so no longer watched
                self._epoll.unregister(key.descriptor)

    def close_in_child(self) -> None:
        """Close the copy of the epoll in a forked child."""
        if self._epoll is not None:
            self._epoll.close()

    async def _run(self) -> None:
        assert self._epoll is not None  # ``register`` has made it
        epoll = self._epoll
        try:
            while True:
                await trio.lowlevel.wait_readable(epoll.fileno())
                self.turns.begin()
                self._answer(epoll.poll(0, _MOST_EVENTS))
        finally:
            self._epoll = None
            epoll.close()

    def _answer(self, events: list[tuple[int, int]]) -> None:
        answered: list[SelectionKey] = []
        in_a_group = GROUP if len(events) > GROUP else 1
        for descriptor, happened in events:
            key, is_ending = self._keys.get(descriptor), bool(happened & ~select.EPOLLIN)
            if key is None:
                continue
            if self.turns.left <= 0:
                # Not after a pass of the loop: the last of many would wait for a pass behind each before it.
                key.leave(is_ending=is_ending)
                continue
            if not key.answer(is_ending=is_ending):
                continue
            answered.append(key)
            if len(answered) == in_a_group:
                self._send(answered)
        self._send(answered)

    def _send(self, answered: list[SelectionKey]) -> None:
        for key in answered:
            key.send()
        answered.clear()
        if self._parking.due:  # most requests wake nobody
            self._parking.answer_due(self.turns)
