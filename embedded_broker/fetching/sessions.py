"""Fetch sessions (KIP-227): the broker remembers a client's partitions, and answers only with changes.

Requests, times and events of partitions in, decisions out. Semantics are those of Kafka's
``FetchSession.scala``, in one shard, since there is one loop. Two things differ. There is a limit for the
partitions of one session, and one for those of all sessions: beyond them no session is made, and one that
grows is closed, which every client accepts. And a partition without new records or changes *rests*: no fetch
looks at it before an event of the partition or a change by the client, so that a session of ten thousand idle
partitions costs nothing.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import compress
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from splashdam.embedded_broker.execution.turns import Steps, in_steps
from splashdam.embedded_broker.fetching.replica_fetches import IdleFollower
from splashdam.embedded_broker.topics.parking import FetchParking, FetchWaiter
from splashdam.model.broker_errors import ErrorCode, error_for
from splashdam.model.options import MAX_INT, MAX_LONG
from splashdam.model.values import TopicPartition
from splashdam.wire.messages.fetch import FetchPartition, PartitionData

NO_SESSION = 0
INITIAL_EPOCH, FINAL_EPOCH = 0, -1
EVICTION_MS = 120_000
MAX_PARTITIONS = 200_000
"""Most partitions of all sessions together: about 80 MB."""
MAX_SESSION_PARTITIONS = 50_000
"""Most partitions of one session, which is closed in one step."""
_IN_A_UNIT = 16
"""Partitions that are added, changed or noted in one unit: 2 µs each."""

PartitionKey: TypeAlias = tuple[str | bytes, int]
"""Topic and partition; the topic by name, or by id from Fetch 13 on."""


class SessionPartition:
    """One partition of a session, with the last answer about it.

    Attributes:
        asked: the client's last request for the partition.
        topic_id: 16 bytes; all zero if the client names topics.
        topic_partition: None while the topic id is unknown.
        high_watermark: in the last answer, -1 for none or an error.
        log_start_offset: in the last answer, -1 for none.
        agreed: last fetched epoch, fetch offset and leader epoch for which nothing diverged.
        place: partitions with a lower one are read first.
        idle_follower: the follower that fetches it, while it has no request; notified when it has one again.
    """

    __slots__ = (
        "agreed",
        "asked",
        "high_watermark",
        "idle_follower",
        "log_start_offset",
        "place",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self, asked: FetchPartition, topic_partition: TopicPartition | None, topic_id: bytes
    ) -> None:
        self.asked = asked
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.high_watermark = self.log_start_offset = -1
        self.agreed: tuple[int, int, int] | None = None
        self.place = 0
        self.idle_follower: IdleFollower | None = None

    def note(self, answer: PartitionData, size_bytes: int) -> bool:
        """Remember an answer with so many bytes of records; return whether the client must get it."""
        must_respond = (
            size_bytes > 0
            or self.high_watermark != answer.high_watermark
            or self.asked.high_watermark
            < answer.high_watermark  # it was in an answer that the client did not use
            or self.log_start_offset != answer.log_start_offset
            or answer.preferred_read_replica >= 0
            or answer.error_code != 0
            or answer.diverging_epoch.epoch >= 0
        )
        # After an error it is answered again once the error is gone.
        self.high_watermark = -1 if answer.error_code else answer.high_watermark
        self.log_start_offset = answer.log_start_offset
        return must_respond

    def forget_answer(self) -> None:
        self.high_watermark = self.log_start_offset = -1


class Fetched(NamedTuple):
    """The result for one partition."""

    partition: SessionPartition
    answer: PartitionData
    size_bytes: int


class FetchAnswer(NamedTuple):
    """The partitions and session of an answer."""

    error_code: int
    session_id: int
    partitions: Sequence[Fetched]


class SessionRequest(NamedTuple):
    """The part of a Fetch request that sessions need."""

    session_id: int
    epoch: int
    uses_topic_ids: bool
    is_follower: bool
    asked: Mapping[PartitionKey, SessionPartition]
    forgotten: Iterable[PartitionKey]


class FetchContext:
    """The partitions of one request, and how it is answered. This base: all of them, without a session.

    Attributes:
        is_incremental: unchanged partitions are left out of the answer.
        is_empty: the request names no partition.
    """

    is_incremental = False

    def __init__(self, partitions: Collection[SessionPartition]) -> None:
        self._asked = partitions
        self.is_empty = not partitions

    @property
    def partitions(self) -> Collection[SessionPartition]:
        """The partitions to read, in order."""
        return self._asked

    @property
    def count(self) -> int:
        """The number of ``partitions``."""
        return len(self._asked)

    @property
    def wants_high_watermark(self) -> bool:
        """Return whether the reader of a partition names the high watermark that it knows."""
        return any(each.asked.high_watermark != MAX_LONG for each in self._asked)

    def rest(self, partition: SessionPartition, follower: IdleFollower | None) -> None:
        """Let a partition rest: there is nothing to read and nothing to tell before an event of it."""

    def waited_for(self) -> list[TopicPartition]:
        """The partitions that wake a parked fetch; none for a session, which wakes it itself."""
        return [each.topic_partition for each in self._asked if each.topic_partition is not None]

    @property
    def is_over(self) -> bool:
        """Whether there are no more events of its partitions: then waiting is of no use."""
        return False

    @contextmanager
    def parked(self, waiter: FetchWaiter) -> Iterator[None]:
        """Pass events of a session's partitions to a waiter while entered."""
        yield

    def answer(self, fetched: list[Fetched], now_ms: float) -> Steps[FetchAnswer]:
        """Make the answer, and create or update the session. To be called once."""
        yield 0  # there is nothing to do in steps, but this is a generator, as in the classes below
        return FetchAnswer(0, NO_SESSION, fetched)


class FullFetch(FetchContext):
    """A full fetch: answers all partitions, and makes a session of them if there is room."""

    def __init__(self, sessions: FetchSessions, request: SessionRequest) -> None:
        super().__init__(request.asked.values())
        self._sessions = sessions
        self._request = request

    def answer(self, fetched: list[Fetched], now_ms: float) -> Steps[FetchAnswer]:
        session_id = yield from self._sessions.try_to_create(self._request, now_ms)
        if session_id != NO_SESSION:
            yield from in_steps(fetched, _noted, in_a_unit=_IN_A_UNIT)
        return FetchAnswer(0, session_id, fetched)


class IncrementalFetch(FetchContext):
    """An incremental fetch: reads the partitions that do not rest, and answers those that have changed."""

    is_incremental = True

    def __init__(self, session: FetchSession, epoch: int) -> None:
        super().__init__(session.partitions.values())
        self._session = session
        self._epoch = epoch

    @property
    def partitions(self) -> Collection[SessionPartition]:
        """The partitions that do not rest."""
        return sorted(self._session.awake.values(), key=_place)

    @property
    def count(self) -> int:
        return len(self._session.awake)

    @property
    def wants_high_watermark(self) -> bool:
        return self._session.wants_high_watermark

    def rest(self, partition: SessionPartition, follower: IdleFollower | None) -> None:
        self._session.rest(partition, follower)

    def waited_for(self) -> list[TopicPartition]:
        return []

    @property
    def is_over(self) -> bool:
        """As `FetchContext.is_over`: the session was closed; its client learns that from its next request."""
        return self._session.is_closed

    @contextmanager
    def parked(self, waiter: FetchWaiter) -> Iterator[None]:
        self._session.begin_wait(waiter)
        try:
            yield
        finally:
            self._session.end_wait(waiter)

    def answer(self, fetched: list[Fetched], now_ms: float) -> Steps[FetchAnswer]:
        """As `FetchContext.answer`; partitions with records move to the end of the session's order."""
        session = self._session
        if session.epoch != self._epoch:  # another connection has used the session meanwhile
            return FetchAnswer(ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.session_id, [])
        must_respond = yield from in_steps(fetched, _noted, in_a_unit=_IN_A_UNIT)
        changed = list(compress(fetched, must_respond))
        for each in changed:
            if each.size_bytes:
                session.move_to_end(each.partition)
        return FetchAnswer(0, session.session_id, changed)


_place = attrgetter("place")


def _noted(fetched: Fetched) -> bool:
    return fetched.partition.note(fetched.answer, fetched.size_bytes)


class FetchSession:
    """The partitions that one client fetches; watches their events.

    Attributes:
        session_id: above 0; `NO_SESSION` before it is among the sessions of the broker.
        uses_topic_ids: whether its keys do.
        is_privileged: of a follower.
        partitions: all of them.
        awake: those that do not rest.
        epoch: of the next request.
        known_size: number of partitions, as far as they are counted among those of all sessions.
        is_closed: it is kept no more; a fetch may still be at work on it.
        wants_high_watermark: whether a reader's request has named the high watermark that it knows.
    """

    __slots__ = (
        "_next_place",
        "_parking",
        "_waiters",
        "_watched",
        "awake",
        "created_ms",
        "epoch",
        "is_closed",
        "is_privileged",
        "known_size",
        "partitions",
        "session_id",
        "used_ms",
        "uses_topic_ids",
        "wants_high_watermark",
    )

    def __init__(self, request: SessionRequest, now_ms: float, parking: FetchParking) -> None:
        self.session_id = NO_SESSION
        self.uses_topic_ids = request.uses_topic_ids
        self.is_privileged = request.is_follower
        self.partitions: dict[PartitionKey, SessionPartition] = {}
        self.awake: dict[PartitionKey, SessionPartition] = {}
        self.wants_high_watermark = False
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.created_ms = self.used_ms = now_ms
        self._parking = parking
        self.is_closed = False
        self._waiters: dict[FetchWaiter, int] = {}  # and what each has added to ``FetchParking.parked``
        # Keys for each partition with events: two if its topic was deleted and created again.
        self._watched: dict[TopicPartition, tuple[PartitionKey, ...]] = {}
        self._next_place = 0
        self.known_size = 0

    def update(self, request: SessionRequest) -> Steps[None]:
        """Add and change the partitions in a request, and remove those that it forgets."""
        for number, (key, partition) in enumerate(request.asked.items(), 1):
            if number % _IN_A_UNIT == 0:
                yield 1
            known = self.partitions.setdefault(key, partition)
            if known is partition:
                self._put_last(known)
            self._wake(key, known)
            known.asked = partition.asked
            if known.asked.high_watermark != MAX_LONG:
                self.wants_high_watermark = True
        for number, key in enumerate(request.forgotten, 1):
            if number % _IN_A_UNIT == 0:
                yield 1
            forgotten = self.partitions.pop(key, None)
            if forgotten is not None:
                self._wake(key, forgotten)
                del self.awake[key]
                self._unwatch(key, forgotten.topic_partition)

    def move_to_end(self, partition: SessionPartition) -> None:
        """Move a partition to the end of the order of reads."""
        self._put_last(partition)

    def _put_last(self, partition: SessionPartition) -> None:
        self._next_place += 1
        partition.place = self._next_place

    def _key_of(self, partition: SessionPartition) -> PartitionKey:
        if self.uses_topic_ids or partition.topic_partition is None:
            return partition.topic_id, partition.asked.partition
        return partition.topic_partition

    # --- partitions that rest, and wake ---------------------------------------------------------------------

    def rest(self, partition: SessionPartition, follower: IdleFollower | None) -> None:
        """Let a partition rest until its next event; ignored if it was removed meanwhile."""
        key, where = self._key_of(partition), partition.topic_partition
        if where is None or self.is_closed or self.awake.get(key) is not partition:
            return
        del self.awake[key]
        partition.idle_follower = follower
        self._watch(key, where)

    def wake_key(self, key: PartitionKey) -> None:
        """Let the next fetch read a partition."""
        if key in self.partitions:
            self._wake(key, self.partitions[key])

    def _wake(self, key: PartitionKey, partition: SessionPartition) -> None:
        self.awake[key] = partition
        follower, partition.idle_follower = partition.idle_follower, None
        if follower is not None:
            follower.was_caught_up(self.used_ms)

    def _watch(self, key: PartitionKey, where: TopicPartition) -> None:
        keys = self._watched.get(where, ())
        if key in keys or self.is_closed:
            return
        self._watched[where] = (*keys, key)
        if not keys:
            self._parking.add(self, (where,))

    def _unwatch(self, key: PartitionKey, where: TopicPartition | None) -> None:
        if where is None or where not in self._watched:
            return
        left = tuple(each for each in self._watched[where] if each != key)
        if left:
            self._watched[where] = left
        else:
            del self._watched[where]
            self._parking.remove(self, (where,))

    def close(self) -> None:
        """Close the session: stop watching partitions, and end parked fetches."""
        self.is_closed = True
        # Woken, so that followers which rested are noted as caught up until now.
        for key in self.partitions.keys() - self.awake.keys():
            self._wake(key, self.partitions[key])
        self._parking.remove(self, self._watched)
        self._watched.clear()
        for waiter in self._waiters:
            waiter.end()

    def begin_wait(self, waiter: FetchWaiter) -> None:
        """Pass all events to a parked fetch from now on."""
        for key, partition in self.awake.items():  # resting ones are watched already
            if partition.topic_partition is not None:
                self._watch(key, partition.topic_partition)
        self._waiters[waiter] = len(self.partitions)
        self._parking.parked += len(self.partitions)

    def end_wait(self, waiter: FetchWaiter) -> None:
        """Pass no more events to it."""
        self._parking.parked -= self._waiters.pop(waiter)

    # --- events of partitions -------------------------------------------------------------------------------

    def _wake_watched(self, where: TopicPartition) -> None:
        for key in self._watched[where]:
            if key not in self.awake:
                self._wake(key, self.partitions[key])

    def appended(self, where: TopicPartition, size_bytes: int, is_visible: bool) -> None:
        self._wake_watched(where)
        for waiter in self._waiters:
            waiter.appended(where, size_bytes, is_visible)

    def high_watermark_moved(self, where: TopicPartition) -> None:
        self._wake_watched(where)
        for waiter in self._waiters:
            waiter.high_watermark_moved(where)

    def stable_offset_moved(self, where: TopicPartition) -> None:
        self._wake_watched(where)
        for waiter in self._waiters:
            waiter.stable_offset_moved(where)

    def changed(self, where: TopicPartition) -> None:
        self._wake_watched(where)
        for waiter in self._waiters:
            waiter.changed(where)


class FetchSessions:
    """All sessions of a broker.

    Args:
        slots: how many there may be (``max.incremental.fetch.session.cache.slots``).
        parking: tells what happens to partitions.
        eviction_ms: a session that was not used for longer gives way to any other.
        max_partitions: how many partitions all may have together.
        new_id: draws a session id above 0.
    """

    def __init__(
        self,
        slots: int,
        parking: FetchParking | None = None,
        *,
        eviction_ms: float = EVICTION_MS,
        max_partitions: int = MAX_PARTITIONS,
        new_id: Callable[[], int] = lambda: 1 + secrets.randbelow(MAX_INT),
    ) -> None:
        self._slots = slots
        self._parking = FetchParking() if parking is None else parking
        self._eviction_ms = eviction_ms
        self._max_partitions = max_partitions
        self._new_id = new_id
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # the least recently used one first
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """Number of partitions of all sessions."""
        return self._partitions

    def context(self, request: SessionRequest, now_ms: float) -> Steps[FetchContext]:
        """Return the context of a request.

        Raises:
            BrokerResponseError: FETCH_SESSION_ID_NOT_FOUND (70), INVALID_FETCH_SESSION_EPOCH (71) or
                FETCH_SESSION_TOPIC_ID_ERROR (106).
        """
        if request.epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._remove(self._sessions.get(request.session_id))
            if request.epoch == FINAL_EPOCH:
                return FetchContext(request.asked.values())
            return FullFetch(self, request)
        session = self._sessions.get(request.session_id)
        if session is None:
            raise error_for(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.epoch:
            raise error_for(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != request.uses_topic_ids:
            raise error_for(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.used_ms = now_ms
        # The order of use: eviction begins with the session that was not used for longest.
        self._sessions.move_to_end(session.session_id)
        # Before the steps below: another connection that uses the session meanwhile has to be refused (71).
        session.epoch = epoch = next_epoch(session.epoch)
        try:
            yield from session.update(request)
        finally:  # also if the client has left in the middle of it
            self._count(session)
        # It may have become too large, or another request has evicted it during the steps.
        if session.is_closed:
            raise error_for(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if not session.partitions:
            self._remove(session)
            return FetchContext(request.asked.values())
        return IncrementalFetch(session, epoch)

    def _count(self, session: FetchSession) -> None:
        """Count the partitions of an open session; close it if there are too many."""
        if session.is_closed:
            return
        self._partitions += len(session.partitions) - session.known_size
        session.known_size = len(session.partitions)
        if self._partitions > self._max_partitions or session.known_size > MAX_SESSION_PARTITIONS:
            self._remove(session)

    def try_to_create(self, request: SessionRequest, now_ms: float) -> Steps[int]:
        """Make a session, and return its id, or `NO_SESSION` if there is no room."""
        # Every client takes session id 0 as "no session", and goes on with full fetches; so a limit costs it
        # nothing but the size of its requests (docs/decisions/embedded-broker.md).
        if not self._has_room(request, now_ms):
            return NO_SESSION
        session = FetchSession(request, now_ms, self._parking)
        yield from session.update(request)
        if not self._has_room(request, now_ms):  # others may have come meanwhile
            return NO_SESSION
        if len(self._sessions) >= self._slots:
            self._remove(self._evictable(request, now_ms))
        session.session_id = self._new_id()
        while session.session_id in self._sessions:
            session.session_id = self._new_id()
        self._sessions[session.session_id] = session
        self._count(session)
        return session.session_id

    def _has_room(self, request: SessionRequest, now_ms: float) -> bool:
        """Return whether there can be a session for a request, perhaps in the place of another one."""
        if len(request.asked) > min(self._max_partitions - self._partitions, MAX_SESSION_PARTITIONS):
            return False
        if len(self._sessions) < self._slots:
            return True
        return self._slots > 0 and self._evictable(request, now_ms) is not None

    def take_back(self, session_id: int, epoch: int, answered: Iterable[PartitionKey]) -> None:
        """Undo an answer that is not sent: the next one has to contain these partitions again.

        Args:
            session_id: of the answer.
            epoch: of the request. An answer to a full fetch would have named a new session; without it the
                            client does not know that session, which is removed.
            answered: what the answer is about.
        """
        session = self._sessions.get(session_id)
        if session is None or epoch <= INITIAL_EPOCH:
            self._remove(session)
            return
        for key in answered:
            partition = session.partitions.get(key)
            if partition is not None:
                partition.forget_answer()
                session.wake_key(key)

    def _evictable(self, request: SessionRequest, now_ms: float) -> FetchSession | None:
        """Return the session that gives way to a new one: a stale one, or the smallest of lower priority."""
        oldest = next(iter(self._sessions.values()))
        # Kafka's rules: a stale session gives way to any other; else a follower's evicts a consumer's, and of
        # equals a larger session evicts a smaller one that has lived for long enough.
        if now_ms - oldest.used_ms > self._eviction_ms:
            return oldest
        evictable = (
            (session.is_privileged, session.known_size, session.session_id)
            for session in self._sessions.values()
            if (request.is_follower and not session.is_privileged)
            or session.used_ms - session.created_ms > self._eviction_ms
        )
        least = min(evictable, default=None)
        if least is None or (request.is_follower, len(request.asked), 0) < least:
            return None
        return self._sessions[least[2]]

    def _remove(self, session: FetchSession | None) -> None:
        if session is not None:
            del self._sessions[session.session_id]
            session.close()
            self._partitions -= session.known_size


def next_epoch(epoch: int) -> int:
    """Return the next epoch; after the largest one comes 1."""
    return 1 if epoch == MAX_INT else epoch + 1
