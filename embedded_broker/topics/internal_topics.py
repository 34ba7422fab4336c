"""The broker's own topics: consumer offsets and the state of transactions.

They are ordinary compacted topics with Kafka's names, options and record formats, created when they are first
needed (``new_internal_topic``). Clients may read them but not write to them; the broker appends through
``InternalTopic``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from operator import mul
from struct import unpack
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

import trio

from splashdam.embedded_broker.execution.answers import Answer, Parked
from splashdam.embedded_broker.topics.topics import new_internal_topic
from splashdam.model.broker_errors import (
    BrokerResponseError,
    CoordinatorNotAvailableError,
    ErrorCode,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    RequestTimedOutError,
    error_for,
)
from splashdam.model.values import Buffer, TopicPartition
from splashdam.record.batch import BatchHeader
from splashdam.record.reader import Record, iter_records
from splashdam.record.sealing import build_batch
from splashdam.wire.message import Response

if TYPE_CHECKING:
    from splashdam.embedded_broker.configs.broker_settings import BrokerSettings
    from splashdam.embedded_broker.topics.disk_failures import DiskFailures
    from splashdam.embedded_broker.topics.parking import FetchParking
    from splashdam.embedded_broker.topics.topics import Topics
    from splashdam.net.clock import Clock
    from splashdam.storage.log import AppendResult, Log
    from splashdam.storage.manager.log_manager import LogManager

_REPLICATION_TIMEOUT_S = 5.0
"""How long the broker waits for the replicas of its own records: Kafka's offsets.commit.timeout.ms."""


class StoredBatch(NamedTuple):
    """A batch read from an internal topic."""

    header: BatchHeader
    records: Iterable[Record]
    """To be iterated once, before the next batch is read; their offsets are absolute."""


_HASHED_AT_ONCE = 256
_POWERS = [pow(31, exponent, 1 << 32) for exponent in range(_HASHED_AT_ONCE + 1)]


@lru_cache(maxsize=64)
def java_string_hash(text: str) -> int:
    """Java's ``String.hashCode``: over UTF-16 units, as a signed number of 32 bits.

    Cached: 32 KiB take over a millisecond, and one Produce may need its transactional id thousands of times.
    """
    encoded = text.encode("utf-16-be", "surrogatepass")
    units = unpack(f">{len(encoded) // 2}H", encoded)
    value = 0
    for start in range(0, len(units), _HASHED_AT_ONCE):
        some = units[start : start + _HASHED_AT_ONCE]
        value = (value * _POWERS[len(some)] + sum(map(mul, some, _POWERS[len(some) - 1 :: -1]))) & 0xFFFF_FFFF
    return value - (1 << 32) if value & 0x8000_0000 else value


def partition_for(key: str, partition_count: int) -> int:
    """The partition of a group id or transactional id: Kafka's ``abs(hash) % count``."""
    hashed = java_string_hash(key)
    # Java has no positive number for the smallest int, and Kafka takes 0 for it.
    return (0 if hashed == -(1 << 31) else abs(hashed)) % partition_count


class OwnsTopics(Protocol):
    """What an `InternalTopic` needs of its broker; the attributes are those of `Broker`."""

    settings: BrokerSettings
    clock: Clock
    logs: LogManager
    topics: Topics
    parking: FetchParking
    disk_failures: DiskFailures
    refused_topics: set[str]


class InternalTopic:
    """One of the broker's own topics.

    Args:
        name: ``CONSUMER_OFFSETS`` or ``TRANSACTION_STATE``.
        broker: that has it.
    """

    def __init__(self, name: str, broker: OwnsTopics) -> None:
        self.name = name
        self._broker = broker

    @property
    def partition_count(self) -> int:
        """Number of partitions that the topic has, or will have."""
        topic = self._broker.topics.get(self.name)
        if topic is not None and topic.partitions:
            return topic.partitions[-1] + 1
        new = new_internal_topic(self.name, self._broker.settings)
        assert new is not None
        return new.partitions

    def partition_for(self, key: str) -> int:
        """Return the partition of a group id or transactional id."""
        return partition_for(key, self.partition_count)

    @property
    def is_online(self) -> bool:
        """Whether none of its partitions is in a failed data directory."""
        offline = self._broker.logs.offline
        return not any(TopicPartition(self.name, each) in offline for each in range(self.partition_count))

    def check_online(self, partition: int) -> None:
        """Check that the partition is in no failed data directory: what is stored there is not known.

        Raises:
            CoordinatorNotAvailableError: it is.
        """
        where = TopicPartition(self.name, partition)
        if where in self._broker.logs.offline:
            raise CoordinatorNotAvailableError(f"{where} is in a data directory that is offline")

    def make(self) -> None:
        """Create the topic if it is missing.

        Raises:
            CoordinatorNotAvailableError: it cannot be created.
        """
        try:
            if self._broker.topics.get(self.name) is None:
                self._broker.topics.create(self.name)
        except BrokerResponseError as error:
            self._broker.disk_failures.change_failed(f"create topic {self.name}", error)
            self._broker.refused_topics.add(self.name)
            raise CoordinatorNotAvailableError(f"{self.name} cannot be made: {error.message}") from error
        self._broker.refused_topics.discard(self.name)

    def log(self, partition: int) -> Log:
        """Return the log of a partition; create the topic if it is missing.

        Raises:
            CoordinatorNotAvailableError: this broker does not have the partition, or the topic cannot be
                made.
            BrokerResponseError: NOT_COORDINATOR (16): another broker leads it.
        """
        self.make()
        log = self._broker.logs.logs.get(TopicPartition(self.name, partition))
        if log is None:
            raise CoordinatorNotAvailableError(f"this broker does not have {self.name}-{partition}")
        if log.replication is not None:
            with _as_coordinator():
                log.replication.check_leading()
        return log

    def append(
        self,
        partition: int,
        records: Iterable[tuple[Buffer, Buffer | None]],
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
    ) -> AppendResult:
        """Append keys and values as one batch, now; a transactional one if a producer id is given.

        It is in the log when this returns; ``answer_when_safe`` then waits for replicas, and for the disk as
        the topic's flush options say.

        Args:
            partition: number of the partition.
            records: keys and values; None deletes the key.
            producer_id: whose transaction the batch belongs to, -1 for none.
            producer_epoch: the producer's.

        Raises:
            CoordinatorNotAvailableError: as ``log``.
            BrokerResponseError: MESSAGE_TOO_LARGE, a fenced epoch, or KafkaStorageError.
        """
        log, now_ms = self.log(partition), self._broker.clock.wall_ms()
        batch = build_batch(
            [(now_ms, key, value, None) for key, value in records],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transactional=producer_id >= 0,
        )
        if log.replication is not None:
            with _as_coordinator():
                log.replication.check_enough_in_sync()
        appended = log.append_as_coordinator(batch, now_ms=now_ms)
        self._broker.parking.appended(log.topic_partition, len(batch))
        return appended

    def read_all(self, partition: int) -> Iterator[StoredBatch]:
        """Yield every batch of a partition, markers included; none if this broker does not have it.

        Raises:
            CorruptMessageError: the log is damaged.
            KafkaStorageError: it cannot be read.
        """
        log = self._broker.logs.logs.get(TopicPartition(self.name, partition))
        if log is not None:
            for header, batch in log.batches():
                yield StoredBatch(header, iter_records(batch))


@contextmanager
def _as_coordinator() -> Iterator[None]:
    """Turn errors of the partition into those of a coordinator."""
    try:
        yield
    except NotLeaderOrFollowerError as error:
        raise error_for(ErrorCode.NOT_COORDINATOR, error.message) from error
    except (NotEnoughReplicasError, NotEnoughReplicasAfterAppendError, RequestTimedOutError) as error:
        raise CoordinatorNotAvailableError(error.message) from error


Refuse: TypeAlias = Callable[[BrokerResponseError], Response]
"""Makes the answer if the disk failed, or too few replicas have the records."""


def answer_when_safe(log: Log, answer: Response, refuse: Refuse) -> Answer:
    """Return the answer, parked if it has to wait for a sync (``flush.messages``) or for the ISR.

    Args:
        log: the one that was just appended to.
        answer: in case of success.
        refuse: see `Refuse`.
    """
    return answer_when_all_safe([log], answer, refuse)


def answer_when_all_safe(
    logs: Iterable[Log], answer: Response, refuse: Refuse, *, is_promised: bool = False
) -> Answer:
    """As ``answer_when_safe``, where several logs were appended to.

    Args:
        logs: those that were just appended to.
        answer: in case of success.
        refuse: see `Refuse`.
        is_promised: sync, whatever the logs' options say: synced records elsewhere rely on these.
    """
    appended = Appended()
    for log in logs:
        appended.add(log, is_promised=is_promised)
    return appended.answer(answer, refuse)


class Appended:
    """What a request has appended so far, and its answer may have to wait for.

    A handler of several turns adds a log in the turn of its append: later the leader may have changed.
    """

    def __init__(self) -> None:
        self._due: dict[tuple[Log, int], tuple[int, bool]] = {}

    def add(self, log: Log, *, is_promised: bool = False) -> None:
        """Note that a log was just appended to; ``is_promised`` as in ``answer_when_all_safe``."""
        needs_sync = log.must_flush or (is_promised and not log.is_synced)
        if needs_sync or log.high_watermark < log.log_end_offset:
            key = log, term_of(log)
            was_due = key in self._due and self._due[key][1]
            self._due[key] = log.log_end_offset, needs_sync or was_due

    def answer(self, answer: Response, refuse: Refuse) -> Answer:
        """As ``answer_when_safe``, for all logs that were added."""
        if not self._due:
            return answer
        due = [(log, end, needs_sync, term) for (log, term), (end, needs_sync) in self._due.items()]
        return Parked(partial(_when_safe, due, answer, refuse))


async def _when_safe(due: Iterable[tuple[Log, int, bool, int]], answer: Response, refuse: Refuse) -> Response:
    try:
        for log, end_offset, needs_sync, term in due:
            await wait_coordinated(log, end_offset, term, needs_sync=needs_sync)
    except BrokerResponseError as error:
        return refuse(error)
    return answer


async def wait_coordinated(log: Log, end_offset: int, term: int, *, needs_sync: bool) -> None:
    """As ``wait_safe``, with the errors of a coordinator: NOT_COORDINATOR (16), COORDINATOR_NOT_AVAILABLE."""
    with _as_coordinator():
        await wait_safe(log, end_offset, term, needs_sync=needs_sync)


def term_of(log: Log) -> int:
    """Return the present term of the leader; see `Replication.term`."""
    return 0 if log.replication is None else log.replication.term


async def sync_up_to(log: Log, end_offset: int) -> None:
    """Return once the records below an offset are on stable storage.

    Raises:
        KafkaStorageError: the disk failed.
    """
    if log.recovery_point < end_offset:
        await log.sync()


async def wait_safe(log: Log, end_offset: int, term: int, *, needs_sync: bool) -> None:
    """Return once the broker's own records up to an offset are as safe as they have to be.

    Args:
        log: with the records.
        end_offset: the offset behind them.
        term: of the append, by ``term_of``.
        needs_sync: require stable storage, besides all replicas of the ISR.

    Raises:
        KafkaStorageError: the disk failed.
        NotLeaderOrFollowerError: another broker leads now.
        NotEnoughReplicasAfterAppendError, RequestTimedOutError: too few replicas have it, or not in time; it
            stays in the log.
    """
    if needs_sync:
        await sync_up_to(log, end_offset)
    replication = log.replication
    # After another leader's term the same offsets may hold other records.
    if replication is not None and (log.high_watermark < end_offset or replication.term != term):
        with trio.move_on_after(_REPLICATION_TIMEOUT_S) as scope:
            await replication.wait_replicated(end_offset, term)
        if scope.cancelled_caught:
            raise RequestTimedOutError(
                f"not all replicas in sync have {log.topic_partition} up to {end_offset}"
            )
