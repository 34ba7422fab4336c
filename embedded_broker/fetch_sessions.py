"""Fetch sessions (KIP-227): what a client asks for again and again is kept, and only changes are answered.

Pure: requests and times in, decisions out. Semantics are Kafka's ``FetchSession.scala`` (facts, section 4),
in one shard, since one loop needs no more. One bound is our own: so many partitions may be kept by all
sessions together; beyond that no session is made, which every client takes.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from splashdam.model.broker_errors import error_for
from splashdam.model.error_codes import ErrorCode
from splashdam.model.options import MAX_INT
from splashdam.model.values import TopicPartition
from splashdam.wire.messages.fetch import FetchPartition, PartitionData

NO_SESSION = 0
INITIAL_EPOCH, FINAL_EPOCH = 0, -1
EVICTION_MS = 120_000
MAX_PARTITIONS = 200_000
"""Of all sessions together: about 80 MB."""

PartitionKey: TypeAlias = tuple[str | bytes, int]
"""Topic and partition; the topic by name, or by id from Fetch 13 on."""


class SessionPartition:
    """One partition that is fetched, with what was answered about it last.

    Attributes:
        asked: where to read, as the client said last.
        topic_id: 16 bytes; all zero where topics go by name.
        topic_partition: None while the topic's id is not known to be anybody's.
        high_watermark: as answered last, -1 for not yet or an error.
        log_start_offset: as answered last, -1 for not yet.
    """

    __slots__ = ("asked", "high_watermark", "log_start_offset", "topic_id", "topic_partition")

    def __init__(
        self, asked: FetchPartition, topic_partition: TopicPartition | None, topic_id: bytes
    ) -> None:
        self.asked = asked
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.high_watermark = self.log_start_offset = -1

    def note(self, answer: PartitionData, size_bytes: int) -> bool:
        """Takes note of an answer with so many bytes of records; whether the client must see it."""
        must_respond = (
            size_bytes > 0
            or self.high_watermark != answer.high_watermark
            or self.asked.high_watermark < answer.high_watermark  # told, but in an answer it made no use of
            or self.log_start_offset != answer.log_start_offset
            or answer.preferred_read_replica >= 0
            or answer.error_code != 0
            or answer.diverging_epoch.epoch >= 0
        )
        # After an error it is answered again once the error has gone.
        self.high_watermark = -1 if answer.error_code else answer.high_watermark
        self.log_start_offset = answer.log_start_offset
        return must_respond

    def forget_answer(self) -> None:
        """As if nothing had been answered yet."""
        self.high_watermark = self.log_start_offset = -1


class Fetched(NamedTuple):
    """What was read of one partition."""

    partition: SessionPartition
    answer: PartitionData
    size_bytes: int


class FetchAnswer(NamedTuple):
    """What a request is answered with."""

    error_code: int
    session_id: int
    partitions: Sequence[Fetched]


class FetchQuestion(NamedTuple):
    """A Fetch request as far as sessions are about it."""

    session_id: int
    epoch: int
    uses_topic_ids: bool
    is_follower: bool
    asked: Mapping[PartitionKey, SessionPartition]
    forgotten: Iterable[PartitionKey]


class FetchContext:
    """What one request fetches, and how it is answered: everything, without a session."""

    is_incremental = False

    def __init__(self, partitions: Collection[SessionPartition]) -> None:
        self.partitions = partitions

    def answer(self, fetched: list[Fetched], now_ms: float) -> FetchAnswer:
        """The answer; a session is made or changed by this. To be called once."""
        return FetchAnswer(0, NO_SESSION, fetched)


class FullFetch(FetchContext):
    """Everything is answered, and kept as a new session if there is room."""

    def __init__(self, sessions: FetchSessions, question: FetchQuestion) -> None:
        super().__init__(question.asked.values())
        self._sessions = sessions
        self._question = question

    def answer(self, fetched: list[Fetched], now_ms: float) -> FetchAnswer:
        """As `FetchContext.answer`."""
        session_id = self._sessions.try_to_create(self._question, now_ms)
        for each in fetched if session_id else ():
            each.partition.note(each.answer, each.size_bytes)
        return FetchAnswer(0, session_id, fetched)


class IncrementalFetch(FetchContext):
    """Everything of a session is read, and what has changed is answered."""

    is_incremental = True

    def __init__(self, session: FetchSession) -> None:
        super().__init__(session.partitions.values())
        self._session = session
        self._epoch = session.epoch

    def answer(self, fetched: list[Fetched], now_ms: float) -> FetchAnswer:
        """As `FetchContext.answer`; partitions with records move to the end of the session's order."""
        session = self._session
        if session.epoch != self._epoch:  # while this one waited, another connection used the session
            return FetchAnswer(ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.session_id, [])
        changed = [each for each in fetched if each.partition.note(each.answer, each.size_bytes)]
        for each in changed:
            if each.size_bytes:
                session.move_to_end(each.partition)
        return FetchAnswer(0, session.session_id, changed)


class FetchSession:
    """The partitions that one client fetches.

    Attributes:
        session_id: above 0.
        uses_topic_ids: whether its keys do.
        is_privileged: of a follower.
        partitions: in the order in which they are read.
        epoch: of the next request.
    """

    __slots__ = (
        "created_ms",
        "epoch",
        "is_privileged",
        "known_size",
        "partitions",
        "session_id",
        "used_ms",
        "uses_topic_ids",
    )

    def __init__(self, session_id: int, question: FetchQuestion, now_ms: float) -> None:
        self.session_id = session_id
        self.uses_topic_ids = question.uses_topic_ids
        self.is_privileged = question.is_follower
        self.partitions = dict(question.asked)
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.created_ms = self.used_ms = now_ms
        self.known_size = len(self.partitions)

    def update(self, question: FetchQuestion) -> None:
        """Adds and changes what the request lists, and removes what it forgets."""
        for key, partition in question.asked.items():
            known = self.partitions.setdefault(key, partition)
            known.asked = partition.asked
        for key in question.forgotten:
            self.partitions.pop(key, None)

    def move_to_end(self, partition: SessionPartition) -> None:
        """Reads a partition last from now on; one that was forgotten meanwhile stays so."""
        key = self._key_of(partition)
        if self.partitions.get(key) is partition:
            self.partitions[key] = self.partitions.pop(key)

    def _key_of(self, partition: SessionPartition) -> PartitionKey:
        if self.uses_topic_ids or partition.topic_partition is None:
            return partition.topic_id, partition.asked.partition
        return partition.topic_partition


class FetchSessions:
    """All sessions of a broker.

    Args:
        slots: how many there may be (``max.incremental.fetch.session.cache.slots``).
        eviction_ms: a session that was not used for longer gives way to any other.
        max_partitions: how many partitions all may have together.
        new_id: draws a session id above 0.
    """

    def __init__(
        self,
        slots: int,
        *,
        eviction_ms: float = EVICTION_MS,
        max_partitions: int = MAX_PARTITIONS,
        new_id: Callable[[], int] = lambda: 1 + secrets.randbelow(MAX_INT),
    ) -> None:
        self._slots = slots
        self._eviction_ms = eviction_ms
        self._max_partitions = max_partitions
        self._new_id = new_id
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # the one that waits longest first
        self._partitions = 0

    def __len__(self) -> int:
        """How many sessions there are."""
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """How many partitions they have together."""
        return self._partitions

    def context(self, question: FetchQuestion, now_ms: float) -> FetchContext:
        """What the request fetches.

        Raises:
            BrokerResponseError: FETCH_SESSION_ID_NOT_FOUND (70), INVALID_FETCH_SESSION_EPOCH (71) or
                FETCH_SESSION_TOPIC_ID_ERROR (106).
        """
        if question.epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._remove(self._sessions.get(question.session_id))
            if question.epoch == FINAL_EPOCH:
                return FetchContext(question.asked.values())
            return FullFetch(self, question)
        session = self._sessions.get(question.session_id)
        if session is None:
            raise error_for(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != question.epoch:
            raise error_for(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != question.uses_topic_ids:
            raise error_for(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.update(question)
        if not session.partitions:
            self._remove(session)
            return FetchContext(question.asked.values())
        self._partitions += len(session.partitions) - session.known_size
        session.known_size = len(session.partitions)
        if self._partitions > self._max_partitions:
            self._remove(session)
            raise error_for(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.used_ms = now_ms
        self._sessions.move_to_end(session.session_id)
        session.epoch = next_epoch(session.epoch)
        return IncrementalFetch(session)

    def try_to_create(self, question: FetchQuestion, now_ms: float) -> int:
        """Keeps a session of what is asked; its id, or `NO_SESSION` where there is no room."""
        size = len(question.asked)
        if size > self._max_partitions - self._partitions or not self._slots:
            return NO_SESSION
        if len(self._sessions) >= self._slots and not self._evict(question.is_follower, size, now_ms):
            return NO_SESSION
        session_id = self._new_id()
        while session_id in self._sessions:
            session_id = self._new_id()
        self._sessions[session_id] = FetchSession(session_id, question, now_ms)
        self._partitions += size
        return session_id

    def take_back(self, session_id: int, epoch: int, answered: Iterable[PartitionKey]) -> None:
        """An answer is not sent after all: what it says of these partitions is said with the next one.

        Args:
            session_id: of the answer.
            epoch: of the request; the client does not hear of a session that it has made.
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

    def _evict(self, is_privileged: bool, size: int, now_ms: float) -> bool:
        """Makes room for a session: a stale one goes, or the least one that is worth less."""
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.used_ms > self._eviction_ms:
            self._remove(oldest)
            return True
        evictable = (
            (session.is_privileged, session.known_size, session.session_id)
            for session in self._sessions.values()
            if (is_privileged and not session.is_privileged)
            or session.used_ms - session.created_ms > self._eviction_ms
        )
        least = min(evictable, default=None)
        if least is None or (is_privileged, size, 0) < least:
            return False
        self._remove(self._sessions[least[2]])
        return True

    def _remove(self, session: FetchSession | None) -> None:
        if session is not None:
            del self._sessions[session.session_id]
            self._partitions -= session.known_size


def next_epoch(epoch: int) -> int:
    """The epoch of the request that follows; behind the last one comes 1."""
    return 1 if epoch == MAX_INT else epoch + 1
