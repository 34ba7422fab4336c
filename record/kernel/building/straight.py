"""``send`` for a record that fits into the open batch of its partition, and the producers' methods on top.

``straight.pxi`` has the same classes: there a ``send`` is one call without a lock and without a
Python frame. Here it holds the guard, and a record that is a value and nothing else has a way of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from splashdam.record.kernel.building.headers import is_exact_pair
from splashdam.record.kernel.building.lanes import (
    HEADER_FRAMING_BYTES,
    RECORD_FRAMING_BYTES,
    TopicLanes,
    payload_size,
)
from splashdam.record.kernel.building.murmur2 import murmur2

if TYPE_CHECKING:
    from splashdam.record.kernel.outcomes.outcome import FutureCell

FutureT = TypeVar("FutureT", bound="FutureCell")
SendsT = TypeVar("SendsT", bound="NowaitSends[Any]")

_new = object.__new__  # without the call of an ``__init__``


class Guard(Protocol):
    """What the Python twin needs of the producer's guard; see ``net/guard.py``. Held around every change.

    Who comes here and has it already is a signal handler or a ``__del__`` that has interrupted the holder.
    ``try_send`` and ``_try_value`` repeat the body of its ``run``, which spares each record a call.
    ``tests/net/test_guard.py`` holds all three to one rule: whatever is raised at whichever call, the lock is
    free afterwards, unless another thread holds it.

    Attributes:
        holder: number of the thread that has it; 0: nobody.
    """

    holder: int

    @property
    def acquire(self) -> Callable[[], bool]:
        """Waits until the caller has the lock. In C: Ctrl-C may strike where a Python function begins."""

    @property
    def release(self) -> Callable[[], None]:
        """Gives it back; likewise."""

    @property
    def caller(self) -> Callable[[], int]:
        """The calling thread."""


class StraightPath(Generic[FutureT]):
    """Brings records into open batches, if nothing about them is unusual; refuses none, raises nothing.

    Args:
        wall_ns: nanoseconds since the epoch, for records without a timestamp.
        future_type: class of the futures.
        fits_bytes: records of more bytes (key, value, headers) go the slow way, which checks their size.
        guard: is held in this twin; the compiled one needs none.
        plain: keys and values are bytes as the application gives them, so that ``send`` may come here at
            once. False: there are serializers, and the slow path comes here with their results.

    Attributes:
        closed: True: no record passes; set while the producer is not running.
        detour: True: no record passes for now, or ever: the application has a partitioner of its own, or
            there are late records, which others of the same thread must not overtake.
        plain: as given.
    """

    __slots__ = ("_fits_bytes", "_future_type", "_guard", "_routes", "_wall_ns", "closed", "detour", "plain")

    def __init__(
        self,
        *,
        wall_ns: Callable[[], int],
        future_type: type[FutureT],
        fits_bytes: int,
        guard: Guard,
        plain: bool = True,
    ) -> None:
        self.closed = False
        self.detour = False
        self.plain = plain
        self._routes: dict[str, TopicLanes] = {}
        self._wall_ns = wall_ns
        self._future_type = future_type
        self._fits_bytes = fits_bytes
        self._guard = guard

    def publish(self, topic: str, lanes: TopicLanes) -> None:
        """Records for ``topic`` find their lane now; a name that is no exact ``str`` stays unknown."""
        if type(topic) is str:
            self._routes[topic] = lanes

    def route(self, topic: str) -> TopicLanes | None:
        """What was published last for this topic, if it is still known."""
        return self._routes.get(topic) if type(topic) is str else None

    def clear(self) -> None:
        """Forgets all topics, because the metadata have changed."""
        self._routes = {}

    def try_send(  # noqa: PLR0911, PLR0912, PLR0917 (one frame per record: every call costs as much as encoding)
        self,
        topic: str,
        value: Any,
        key: Any = None,
        headers: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> FutureT | None:
        """The record's future if it is in a batch now; None if it has to go the slow way. Nobody is woken."""
        if self.closed or self.detour or type(topic) is not str:
            return None
        if type(value) is bytes:
            size_bytes = len(value)
        elif value is None and key is not None:
            size_bytes = 0
        else:
            return None
        if key is not None:
            if type(key) is not bytes:
                return None
            size_bytes += len(key)
        if timestamp_ms is None:
            timestamp_ms = self._wall_ns() // 1_000_000
        elif type(timestamp_ms) is not int or not 0 <= timestamp_ms < 1 << 63:
            return None
        if headers is not None:
            headers = _plain_headers(headers)
            if headers is None:
                return None
            size_bytes += payload_size(headers) + HEADER_FRAMING_BYTES * len(headers)
        route = self._routes.get(topic)
        if route is None or size_bytes > self._fits_bytes:
            return None
        lanes = route.lanes
        sticky = False
        if partition is not None:
            if type(partition) is not int or not 0 <= partition < len(lanes):
                return None
            lane = lanes[partition]
        elif key is not None:
            lane = lanes[(murmur2(key) & 0x7FFFFFFF) % len(lanes)]
        elif route.sticky_bytes < route.sticky_limit_bytes:
            lane = route.sticky
            sticky = True
        else:
            return None
        guard = self._guard
        me = guard.caller()
        if guard.holder == me:
            return None
        try:  # the body of Guard.run
            guard.acquire()
            guard.holder = me
            future = lane.try_append(timestamp_ms, key, value, headers, self._future_type)
            if sticky and future is not None:
                route.sticky_bytes += size_bytes + RECORD_FRAMING_BYTES
        finally:
            if guard.holder == me:
                guard.holder = 0
            try:  # noqa: SIM105 (a call may be interrupted)
                guard.release()
            except RuntimeError:  # Ctrl-C came while it waited
                pass
        if future is None and key is not None and partition is None:
            route.missed = (key, lane)
        return future

    def _try_value(self, topic: str, value: Any) -> FutureT | None:
        """As ``try_send``, for what most records are: a value and nothing else. Each step costs more than to
        copy the value, so it has few."""
        if self.closed or self.detour or type(topic) is not str or type(value) is not bytes:
            return None
        timestamp_ms = self._wall_ns() // 1_000_000
        size_bytes = len(value)
        route = self._routes.get(topic)
        if route is None or size_bytes > self._fits_bytes or route.sticky_bytes >= route.sticky_limit_bytes:
            return None
        guard = self._guard
        me = guard.caller()
        if guard.holder == me:
            return None
        future = _new(self._future_type)
        try:  # the body of Guard.run
            guard.acquire()
            guard.holder = me
            lane = route.sticky
            buffer, outcome = lane.buffer, lane.outcome
            number = -1 if buffer is None else buffer._append_value(timestamp_ms, value)
            if number >= 0:
                route.sticky_bytes += size_bytes + RECORD_FRAMING_BYTES
        finally:
            if guard.holder == me:
                guard.holder = 0
            try:  # noqa: SIM105 (a call may be interrupted)
                guard.release()
            except RuntimeError:  # Ctrl-C came while it waited
                pass
        if number < 0 or outcome is None:
            return None
        future.outcome = outcome
        future.index = number
        future.timestamp_ms = timestamp_ms
        future.key_size = future.header_size = -1
        future.value_size = size_bytes
        return future


def _plain_headers(headers: Any) -> tuple[tuple[str, bytes | None], ...] | None:
    """A copy, if the encoder takes them as they are."""
    if type(headers) is not list and type(headers) is not tuple:
        return None
    pairs = tuple(headers)
    if not all(map(is_exact_pair, pairs)):
        return None
    try:
        for key, _ in pairs:
            key.encode()
    except UnicodeEncodeError:
        return None
    return pairs


class NowaitSends(Generic[FutureT]):
    """``send_nowait`` that takes the straight path first."""

    __slots__ = ("_path",)

    _path: StraightPath[FutureT]
    _own_send_nowait: Callable[..., FutureT]

    def send_nowait(  # noqa: PLR0917 (kafka-python's signature)
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> FutureT:
        """The straight path, then the class's own ``send_nowait``; see ``straight_first``."""
        path = self._path
        if path.plain:
            if key is None and headers is None and partition is None and timestamp_ms is None:
                future = path._try_value(topic, value)
            else:
                future = path.try_send(topic, value, key, headers, partition, timestamp_ms)
            if future is not None:
                return future
        return self._own_send_nowait(topic, value, key, headers, partition, timestamp_ms)


class Sends(NowaitSends[FutureT]):
    """``send`` that takes the straight path first, and ``send_nowait``."""

    __slots__ = ()

    _own_send: Callable[..., FutureT]

    def send(  # noqa: PLR0917 (kafka-python's signature)
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> FutureT:
        """The straight path, then the class's own ``send``; see ``straight_first``."""
        path = self._path
        if path.plain:
            if key is None and headers is None and partition is None and timestamp_ms is None:
                future = path._try_value(topic, value)
            else:
                future = path.try_send(topic, value, key, headers, partition, timestamp_ms)
            if future is not None:
                return future
        return self._own_send(topic, value, key, headers, partition, timestamp_ms)


def straight_first(cls: type[SendsT]) -> type[SendsT]:
    """Class decorator: a class's ``send`` and ``send_nowait`` are for records that cannot go straight.

    The kernel's methods, which cost no frame of Python, are found under these names instead: they try the
    straight path, and call the class's own for what it leaves alone. So a reader finds signature, docstring
    and the slow way of a record in the class.
    """
    for name in ("send", "send_nowait"):
        own = cls.__dict__.get(name)
        if own is not None and hasattr(super(cls, cls), name):  # ``send`` of trio is a coroutine function
            setattr(cls, f"_own_{name}", own)
            delattr(cls, name)
            getattr(cls, name).__doc__ = own.__doc__
    return cls
