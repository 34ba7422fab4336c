"""One fault: which requests it is about, what happens to them, how often it has."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from fnmatch import fnmatchcase
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

import attrs

from splashdam.model.error_codes import ErrorCode
from splashdam.model.errors import KafkaTimeoutError
from splashdam.testing.faults.gates import Gates
from splashdam.testing.faults.places import Names, Place, leaves

if TYPE_CHECKING:
    from splashdam.embedded_broker.serving.dispatch import Arrived

When = Literal["before", "after"]


@attrs.frozen
class Which:
    """The requests that a fault or a question is about; None is any.

    Attributes:
        api: its name in snake case, such as ``"list_offsets"``.
        topic: name, or pattern with ``*``, of a topic in the request.
        partition: number of a partition in the request, of that topic if one is named.
        client_id: the client's name for itself, or a pattern with ``*``.
        broker: node id of the broker that was asked.
    """

    api: str | None
    topic: str | None = None
    partition: int | None = None
    client_id: str | None = None
    broker: int | None = None

    def __attrs_post_init__(self) -> None:
        """Refuses what no request could match, so that no test waits for it."""
        for name in ("partition", "broker"):
            if not isinstance(getattr(self, name), int | None):
                raise TypeError(f"{name}={getattr(self, name)!r}: it is a number")

    @property
    def is_about_places(self) -> bool:
        """Whether only a part of a request may be meant."""
        return self.topic is not None or self.partition is not None

    def includes(self, place: Place) -> bool:
        """Whether this topic and partition are meant."""
        if self.partition is not None and place.partition not in (None, self.partition):
            return False
        return self.topic is None or (place.topic is not None and fnmatchcase(place.topic, self.topic))

    def admits(self, api: str, client_id: str | None, broker: int) -> bool:
        """Whether a request like that is meant, whatever it is about."""
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
    """What happens to a request: at most one end, a delay before it, a throttle time in the answer.

    The fields are the arguments of ``ApiFaults``.
    """

    error: int | None
    after: bool
    delay_ms: float
    drop: When | None
    cut_after_bytes: int | None
    throttle_ms: int
    black_hole: bool

    def __attrs_post_init__(self) -> None:
        """Refuses what says nothing, or two things."""
        if self._ends > 1:
            raise ValueError("a request ends in one way: error, drop, cut_after_bytes or black_hole")
        if not (self._ends or self.delay_ms or self.throttle_ms):
            raise ValueError(
                "a fault does something: error, drop, cut_after_bytes, black_hole, delay_ms or throttle_ms"
            )
        if self.drop not in (None, "before", "after"):
            raise ValueError(f"drop={self.drop!r}: it is 'before' or 'after' the request is handled")
        for name in ("delay_ms", "throttle_ms", "cut_after_bytes"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and value >= 0):
                raise ValueError(f"{name}={value!r}: it is a number, 0 or more")
        if self.after and self.error is None:
            raise ValueError("after=True goes with an error; drop='after' is how a connection is dropped")

    @property
    def _ends(self) -> int:
        given = (self.error, self.drop, self.cut_after_bytes)
        return sum(each is not None for each in given) + self.black_hole

    @property
    def is_end(self) -> bool:
        """Whether the request ends by it; otherwise it is handled."""
        return self._ends > 0


def error_code(error: int | str) -> int:
    """The number of an error given by number or by Kafka's name.

    Raises:
        ValueError: there is no such error.
    """
    if isinstance(error, int):
        if error == 0 or error not in list(ErrorCode):
            raise ValueError(f"error={error!r} is no error code of Kafka's")
        return int(error)
    name = error.upper()
    if name not in ErrorCode.__members__ or name == "NONE":
        close = difflib.get_close_matches(name, ErrorCode.__members__, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise ValueError(f"error={error!r} is no error of Kafka's{hint}")
    return int(ErrorCode[name])


class Fault:
    """A fault that was set, by ``Faults``; in a ``with`` block it is removed at the end.

    Attributes:
        hits: how many requests it has happened to.
    """

    def __init__(
        self,
        which: Which,
        action: Action,
        *,
        on_call: int,
        times: int | None,
        probability: float,
        seed: int,
        from_brokers: bool,
        remove: Callable[[Fault], None],
    ) -> None:
        if on_call < 1 or (times is not None and times < 1) or not 0 < probability <= 1:
            raise ValueError("on_call and times begin with 1, probability is above 0 and at most 1")
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
        self._gates = Gates()

    def take(self, arrived: Arrived, api: str, names: Names) -> bool:
        """Whether it happens to this request, which it then counts."""
        context = arrived.context
        if not self.which.admits(api, context.client_id, context.broker.node_id):
            return False
        if not self.concerns(arrived):
            return False
        if self.which.is_about_places:
            places = leaves(arrived.request, context.version, names)
            if not any(map(self.which.includes, places)):
                return False
        self._calls += 1
        is_due = self._calls >= self._first and self._left != 0
        if not is_due or (self._probability < 1 and self._random.random() >= self._probability):
            return False
        if self._left is not None:
            self._left -= 1
        self.hits += 1  # brokers of one cluster share a loop: nobody else counts here
        self._gates.open()
        return True

    def concerns(self, arrived: Arrived) -> bool:
        """Whether whoever asks is meant: other brokers are not, unless the fault says so."""
        return self._from_brokers or not is_from_broker(arrived)

    @property
    def is_spent(self) -> bool:
        """Whether it has happened as often as it was meant to."""
        return self._left == 0

    def wait(self, hits: int = 1, timeout_s: float = 10.0) -> None:
        """Returns once it has happened so often; for tests in threads, not in a trio loop.

        Raises:
            KafkaTimeoutError: it has not, within ``timeout_s``.
        """
        if not self._gates.wait_until(lambda: self.hits >= hits, timeout_s):
            raise KafkaTimeoutError(f"{self}: not {hits} within {timeout_s} s")

    def remove(self) -> None:
        """Ends the fault: later requests go unharmed. Removing it twice does nothing."""
        self._remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"<fault {self.which}, {self.hits} hits>"


def is_from_broker(arrived: Arrived) -> bool:
    """Whether another broker asks, as a follower: it says so, or has the name that Kafka's fetchers have."""
    request = arrived.request
    if fnmatchcase(arrived.context.client_id or "", "broker-*-fetcher-*"):
        return True
    state = getattr(request, "replica_state", None)
    return getattr(request, "replica_id", -1) >= 0 or (state is not None and state.replica_id >= 0)
