"""The fast path: ``send`` of a usual record that fits into the open batch of its partition.

In the compiled twin such a ``send`` is one call without a lock and without a Python frame. Here it holds the
guard, and records that have only a value take a shorter way.
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


class GuardLock(Protocol):
    """The producer's guard, as the Python twin uses it; see ``net/reentrant_lock.py``. Held for every change.

    A caller that holds it already is a signal handler or a ``__del__`` that interrupted the holder.
    ``try_send`` and ``_try_value`` repeat the body of ``ReentrantLock.run``, which saves a call per record.
    ``tests/net/test_reentrant_lock.py`` checks all three: whatever is raised at whichever call, the lock is
    free afterwards, unless another thread holds it.

    Attributes:
        holder: ident of the thread that holds it; 0: none.
    """

    holder: int

    @property
    def acquire(self) -> Callable[[], bool]:
        """Acquire the lock. Implemented in C: Ctrl-C may be raised where a Python function begins."""

    @property
    def release(self) -> Callable[[], None]:
        """Release the lock; likewise."""

    @property
    def caller(self) -> Callable[[], int]:
        """Return the ident of the calling thread."""


class FastPath(Generic[FutureT]):
    """Appends usual records to open batches. Leaves all others to the slow path, and raises nothing.

    Args:
        wall_ns: returns nanoseconds since the epoch, for records without a timestamp.
        future_type: class of the futures.
        fits_bytes: larger records (key, value, headers) take the slow path, which checks their size.
        guard: held by this twin; the compiled one needs none.
        plain: whether applications pass keys and values as bytes, so that ``send`` starts here. Otherwise
            there are serializers, and the slow path calls this with their results.

    Attributes:
        closed: whether all records take the slow path because the producer is not running.
        detour: whether all records take the slow path because of a custom partitioner, or because records
            wait for metadata, which later ones of the same thread must not overtake.
        plain: as given.
    """

    __slots__ = ("_fits_bytes", "_future_type", "_guard", "_routes", "_wall_ns", "closed", "detour", "plain")

    def __init__(
        self,
        *,
        wall_ns: Callable[[], int],
        future_type: type[FutureT],
        fits_bytes: int,
        guard: GuardLock,
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
        """Publish a topic's lanes; ignored unless ``topic`` is an exact ``str``."""
        if type(topic) is str:
            self._routes[topic] = lanes

    def route(self, topic: str) -> TopicLanes | None:
        """Return the published lanes of a topic, or None."""
        return self._routes.get(topic) if type(topic) is str else None

    def clear(self) -> None:
        """Forget all topics, because the metadata has changed."""
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
        """Append a record; return its future, or None if it must take the slow path. Wakes no thread."""
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
        # A signal handler or `__del__` has interrupted this thread's send: the slow path defers its record.
        if guard.holder == me:
            return None
        try:  # the body of ReentrantLock.run
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
            except RuntimeError:  # Ctrl-C interrupted the wait
                pass
        if future is None and key is not None and partition is None:
            route.missed = (key, lane)
        return future

    def _try_value(self, topic: str, value: Any) -> FutureT | None:
        """As ``try_send``, for records that have only a value, as most do.

        There are few steps, since each costs more than copying the value.
        """
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
        # Before the append, so that no record is in a batch without a future.
        future = _new(self._future_type)
        try:  # the body of ReentrantLock.run
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
    """Return a copy if the encoder accepts the headers as they are, else None."""
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
    """Provides a ``send_nowait`` that tries the fast path first."""

    __slots__ = ("_path",)

    _path: FastPath[FutureT]
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
        """Try the fast path, then call the class's own ``send_nowait``; see ``fast_path_first``."""
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
    """Provides ``send`` and ``send_nowait`` that try the fast path first."""

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
        """Try the fast path, then call the class's own ``send``; see ``fast_path_first``."""
        path = self._path
        if path.plain:
            if key is None and headers is None and partition is None and timestamp_ms is None:
                future = path._try_value(topic, value)
            else:
                future = path.try_send(topic, value, key, headers, partition, timestamp_ms)
            if future is not None:
                return future
        return self._own_send(topic, value, key, headers, partition, timestamp_ms)


def fast_path_first(cls: type[SendsT]) -> type[SendsT]:
    """Class decorator: put the kernel's ``send`` and ``send_nowait`` before the class's own.

    The kernel's methods, which cost no Python frame, try the fast path and call the class's own methods
    for all other records. So the class itself shows signature, docstring and the slow path of a record.
    """
    for name in ("send", "send_nowait"):
        own = cls.__dict__.get(name)
        if own is not None and hasattr(super(cls, cls), name):  # not the trio producer's async ``send``
            setattr(cls, f"_own_{name}", own)
            delattr(cls, name)
            getattr(cls, name).__doc__ = own.__doc__
    return cls
