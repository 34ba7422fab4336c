"""A fault: the requests it applies to, what happens to them, and how often it has happened."""

from __future__ import annotations

import difflib
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from fnmatch import fnmatchcase
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

import attrs

from splashdam.model.broker_errors import ErrorCode
from splashdam.model.errors import KafkaTimeoutError
from splashdam.testing.faults.messages import Names, Place, leaves

if TYPE_CHECKING:
    from splashdam.embedded_broker.serving.dispatch import Arrived

When = Literal["before", "after"]


@attrs.frozen
class RequestFilter:
    """Selects requests, for a fault or in the request log; None matches any.

    Attributes:
        api: the API's name in snake case, such as ``"list_offsets"``.
        topic: name, or pattern with ``*``, of a topic in the request.
        partition: number of a partition in the request; of ``topic`` if that is given.
        client_id: the client id, or a pattern with ``*``.
        broker: node id of the broker that received the request.
    """

    api: str | None
    topic: str | None = None
    partition: int | None = None
    client_id: str | None = None
    broker: int | None = None

    def __attrs_post_init__(self) -> None:
        """Refuse a type that no request can match: a test would wait for it in vain."""
        for name in ("partition", "broker"):
            if not isinstance(getattr(self, name), int | None):
                raise TypeError(f"{name}={getattr(self, name)!r}: must be a number")
        for name in ("topic", "client_id"):
            if not isinstance(getattr(self, name), str | None):
                raise TypeError(f"{name}={getattr(self, name)!r}: must be a text")

    @property
    def names_places(self) -> bool:
        """Whether it names a topic or partition, so that it may match a part of a request only."""
        return self.topic is not None or self.partition is not None

    def includes(self, place: Place) -> bool:
        """Return whether this topic and partition match."""
        if self.partition is not None and place.partition not in (None, self.partition):
            return False
        return self.topic is None or (place.topic is not None and fnmatchcase(place.topic, self.topic))

    def admits(self, api: str, client_id: str | None, broker: int) -> bool:
        """Return whether a request matches, apart from its topics and partitions."""
        return (
            self.api in (None, api)
            and self.broker in (None, broker)
            and (self.client_id is None or fnmatchcase(client_id or "", self.client_id))
        )

    def __str__(self) -> str:
        named = ("topic", "partition", "client_id", "broker")
        given = [f"{name}={getattr(self, name)!r}" for name in named if getattr(self, name) is not None]
        return f"{self.api or 'any_request'}({', '.join(given)})"


@attrs.frozen(kw_only=True)
class Action:
    """The effect of a fault on a request: at most one end, a delay before it, a throttle time in the answer.

    The fields are the arguments of `ApiFaults.__call__`.
    """

    error: int | None
    after: bool
    delay_ms: float
    drop: When | None
    cut_after_bytes: int | None
    throttle_ms: int
    black_hole: bool

    def __attrs_post_init__(self) -> None:
        """Refuse an action that does nothing, and one that ends a request in two ways."""
        if self._ends > 1:
            raise ValueError("give only one of error, drop, cut_after_bytes and black_hole")
        if not (self._ends or self.delay_ms or self.throttle_ms):
            raise ValueError("give one of error, drop, cut_after_bytes, black_hole, delay_ms and throttle_ms")
        if self.drop not in (None, "before", "after"):
            raise ValueError(f"drop={self.drop!r}: must be 'before' or 'after' (the request is handled)")
        for name in ("delay_ms", "throttle_ms", "cut_after_bytes"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and value >= 0):
                raise ValueError(f"{name}={value!r}: must be a number, 0 or more")
        if self.after and self.error is None:
            raise ValueError("after=True needs an error; drop='after' closes the connection")

    @property
    def _ends(self) -> int:
        given = (self.error, self.drop, self.cut_after_bytes)
        return sum(each is not None for each in given) + self.black_hole

    @property
    def is_end(self) -> bool:
        """Whether it ends the request; otherwise the request is handled."""
        return self._ends > 0


def error_code(error: int | str) -> int:
    """Return the code of an error that is given by its code or by Kafka's name.

    Raises:
        ValueError: there is no such error.
    """
    if isinstance(error, int):
        if error == 0 or error not in list(ErrorCode):
            raise ValueError(f"error={error!r}: Kafka has no such error code")
        return int(error)
    name = str(error).upper()
    if name not in ErrorCode.__members__ or name == "NONE":
        close = difflib.get_close_matches(name, ErrorCode.__members__, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise ValueError(f"error={error!r}: Kafka has no such error{hint}")
    return int(ErrorCode[name])


def check_count(name: str, value: object) -> None:
    """Raise ValueError unless an argument is a whole number, 1 or more."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name}={value!r}: must be a whole number, 1 or more")


def check_probability(value: object) -> None:
    """Raise ValueError unless the argument is above 0 and at most 1."""
    if not isinstance(value, int | float) or not 0 < value <= 1:
        raise ValueError(f"probability={value!r}: must be a number above 0 and at most 1")


class Fault:
    """A fault that `Faults` has set; as a context manager it is removed at the end of the block.

    Attributes:
        hits: number of requests it has happened to.
    """

    def __init__(
        self,
        which: RequestFilter,
        action: Action,
        *,
        on_call: int,
        times: int | None,
        probability: float,
        seed: int,
        from_brokers: bool,
        remove: Callable[[Fault], None],
    ) -> None:
        check_count("on_call", on_call)
        if times is not None:
            check_count("times", times)
        check_probability(probability)
        self.which = which
        self.action = action
        self.hits = 0
        self._first = on_call
        self._left = times
        self._probability = probability
        self._random = Random(seed)
        self._from_brokers = from_brokers
        self._remove = remove
        self._calls = 0
        self._changes = Changes()

    def take(self, arrived: Arrived, api: str, names: Names) -> bool:
        """Return whether the fault happens to this request, and count a request that matches."""
        context = arrived.context
        if not self.which.admits(api, context.client_id, context.broker.node_id):
            return False
        # Followers fetch all the time: a fault that is meant for clients would be used up by them.
        if not self.concerns(arrived):
            return False
        if self.which.names_places:
            places = leaves(arrived.request, context.version, names)
            if not any(map(self.which.includes, places)):
                return False
        # Counted after all filters, so ``on_call=3`` means the third matching request, whatever comes
        # between.
        self._calls += 1
        is_due = self._calls >= self._first and self._left != 0
        if not is_due or (self._probability < 1 and self._random.random() >= self._probability):
            return False
        if self._left is not None:
            self._left -= 1
        self.hits += 1  # no lock: the brokers of a cluster share one trio loop
        self._changes.announce()
        return True

    def concerns(self, arrived: Arrived) -> bool:
        """Return whether the fault applies to the sender: to followers only with ``from_brokers``."""
        return self._from_brokers or not is_from_broker(arrived)

    @property
    def is_spent(self) -> bool:
        """Whether it has happened ``times`` times."""
        return self._left == 0

    def wait(self, hits: int = 1, timeout_s: float = 10.0) -> None:
        """Block until it has happened ``hits`` times. Not for use in a trio loop.

        Raises:
            KafkaTimeoutError: it has happened less often after ``timeout_s`` seconds.
        """
        if not self._changes.wait_until(lambda: self.hits >= hits, timeout_s):
            raise KafkaTimeoutError(f"{self}: not hit {hits} times within {timeout_s} s")

    def remove(self) -> None:
        """End the fault: it happens to no later request. Removing it twice does nothing."""
        self._remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"<fault {self.which}, {self.hits} hits>"


class Changes:
    """Wakes the threads of a test that wait for a count in the broker's thread.

    It holds no lock while a thread waits. With ``threading.Condition`` a Ctrl-C could leave the condition
    locked (seen on Python 3.14), and the broker's thread would then wait for ever.
    """

    def __init__(self) -> None:
        self._waiting: deque[threading.Lock] = deque()

    def announce(self) -> None:
        """Wake every waiting thread; each checks its condition again."""
        with suppress(IndexError):  # each lock is released by the thread that popped it
            while True:
                self._waiting.popleft().release()

    def wait_until(self, is_so: Callable[[], bool], timeout_s: float) -> bool:
        """Block until ``is_so()`` is true, or ``timeout_s`` seconds have passed; return its last result.

        Args:
            is_so: called at once, then after each `announce`.
            timeout_s: limit in seconds.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            waiting = threading.Lock()
            waiting.acquire()
            self._waiting.append(waiting)  # before the check: a change after the check releases this lock
            try:
                if is_so():
                    return True
                left = deadline - time.monotonic()
                if left <= 0 or not waiting.acquire(timeout=min(left, threading.TIMEOUT_MAX)):
                    return is_so()
            finally:
                with suppress(ValueError):  # `announce` has taken it out
                    self._waiting.remove(waiting)


def is_from_broker(arrived: Arrived) -> bool:
    """Return whether a follower sent this request: it has a replica id, or a fetcher's client id."""
    request = arrived.request
    if fnmatchcase(arrived.context.client_id or "", "broker-*-fetcher-*"):
        return True
    state = getattr(request, "replica_state", None)
    return getattr(request, "replica_id", -1) >= 0 or (state is not None and state.replica_id >= 0)
