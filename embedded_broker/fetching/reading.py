"""One read of all partitions of a fetch."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from splashdam.embedded_broker.execution.turns import Steps
from splashdam.embedded_broker.fetching.replica_fetches import IdleFollower, ReplicaFetch, TakesReplicaFetches
from splashdam.embedded_broker.fetching.sessions import FetchContext, Fetched, SessionPartition
from splashdam.embedded_broker.topics.parking import FetchIsolation
from splashdam.embedded_broker.topics.partitions import KnowsPartitions, check_leader_epoch, hosted_log
from splashdam.model.broker_errors import (
    BrokerResponseError,
    ErrorCode,
    OffsetOutOfRangeError,
    UnknownTopicIdError,
    UnsupportedCompressionTypeError,
    error_for,
)
from splashdam.model.values import TopicPartition
from splashdam.storage.files.log_file import FileSlice
from splashdam.storage.log import Log
from splashdam.wire.fields import Part
from splashdam.wire.messages.fetch import AbortedTransaction, EpochEndOffset, FetchPartition, PartitionData

if TYPE_CHECKING:
    from splashdam.embedded_broker.topics.topics import Topics

_READS_IN_A_UNIT = 4
"""Partitions that are read in one unit."""

FEW_PARTITIONS = 64
"""A fetch of so few keeps its partitions' answers while it waits, and is answered in the producer's turn."""

FIRST_TOPIC_ID_VERSION = 13
_FIRST_STORAGE_ERROR_VERSION = 6
_FIRST_ZSTD_VERSION = 10
_FIRST_FOLLOWER_VERSION = 11
"""First version in which consumers may read from followers (KIP-392)."""
_FIRST_DIVERGENCE_VERSION = 12
"""First version whose answers can name a diverging epoch (KIP-595)."""
_NO_TOPIC_ID = bytes(16)


class FetchLimits(NamedTuple):
    """Limits of a fetch, and its reader.

    Attributes:
        max_bytes: of all partitions together; the first batch may exceed it.
        min_bytes: needed for an answer before ``max_wait_ms``.
        isolation: up to which offset it reads.
        replica_id: node id of a follower, below 0 for consumers.
        replica_epoch: broker epoch of the follower, -1 if it does not name one.
        rack: that a consumer prefers; empty: none.
    """

    max_bytes: int
    min_bytes: int
    isolation: FetchIsolation
    replica_id: int
    replica_epoch: int
    rack: str = ""


class ReadsForFetches(KnowsPartitions, Protocol):
    """The parts of a broker that a read needs; the attributes are those of `Broker`."""

    topics: Topics
    replicas: TakesReplicaFetches


class FetchReading:
    """Reads the partitions of a request, once or again after waiting.

    Args:
        fetch: its partitions.
        limits: how much is read, and for whom.
        broker: this one.
        version: of the request.

    Attributes:
        fetched: the results, in order; of a session only those that have changed. Complete after a read that
            found enough, and after one of all partitions.
    """

    def __init__(
        self,
        fetch: FetchContext,
        limits: FetchLimits,
        broker: ReadsForFetches,
        version: int,
    ) -> None:
        self.fetched: list[Fetched] = []
        self._fetch = fetch
        self._limits = limits
        self._broker = broker
        self._version = version
        self._with_records: set[SessionPartition] = set()  # at the last read
        self._kept: dict[SessionPartition, Fetched] = {}  # what earlier reads found, of few partitions
        self._logs = broker.logs.logs  # the logs at the time of this read
        self._isolation, self._max_bytes = limits.isolation, limits.max_bytes
        self._is_follower = limits.replica_id >= 0
        self._tells_replicas = self._is_follower
        # Consumers of old versions cannot be sent to another replica, so they must not read from a follower.
        self._reads_leader = self._is_follower or version < _FIRST_FOLLOWER_VERSION
        self._size_bytes = 0
        self._is_enough = False

    @property
    def missing_bytes(self) -> int:
        """Bytes that are missing for ``min_bytes``."""
        return self._limits.min_bytes - self._size_bytes

    def read(self, changed: Container[TopicPartition] | None = None) -> Steps[bool]:
        """Read the partitions; return whether to answer now: there are ``min_bytes``, an error, or news.

        Replication counts the first read of a request, and no further one.

        Args:
            changed: the partitions with events since the last read; of the others, those that had nothing to
                read are not read again. None: all are read.
        """
        try:
            yield from self._read_due(changed)
        finally:
            if self._tells_replicas:
                self._broker.replicas.on_fetch_end()
                self._tells_replicas = False
        return self._is_enough or self.missing_bytes <= 0

    def _read_due(self, changed: Container[TopicPartition] | None) -> Steps[None]:
        """Read the partitions that may have records; if they have enough, complete the results."""
        self.fetched = []
        self._size_bytes = 0
        had, self._with_records = self._with_records, set()
        self._logs = self._broker.logs.logs
        self._is_enough = self._fetch.is_empty
        asked = tuple(self._fetch.partitions)  # a copy, because the session may change at each ``yield``
        # A session knows by itself which partitions have events. A preferred read replica depends on time.
        if changed is None or self._fetch.is_incremental or self._limits.rack:
            yield from self._read_all(asked)
            return
        due = [each for each in asked if each in had or each.topic_partition in changed]
        yield from self._read_all(due)
        if len(due) < len(asked) and (self._is_enough or self.missing_bytes <= 0):
            known = {**self._kept, **{each.partition: each for each in self.fetched}}
            yield from self._read_all([each for each in asked if each not in known], are_empty=True)
            known.update((each.partition, each) for each in self.fetched)
            self.fetched = [known[each] for each in asked]

    def _read_all(self, partitions: Sequence[SessionPartition], *, are_empty: bool = False) -> Steps[None]:
        """Add the results of partitions.

        Args:
            partitions: in the order in which they are read.
            are_empty: there was nothing to read, and no event since: their logs are not searched again.
        """
        for number, partition in enumerate(partitions):
            if number % _READS_IN_A_UNIT == _READS_IN_A_UNIT - 1:
                yield 1
            try:
                log = self._log_of(partition)
                # The common case: a comparison of numbers, without an object for the answer.
                if self._fetch.is_incremental and self._is_unchanged(partition, log):
                    self._pass_over(partition, log)
                    continue
                fetched = self._read(partition, log, is_empty=are_empty)
            except BrokerResponseError as error:
                self._is_enough = True
                answer = _empty_answer(partition)
                answer.error_code = self._code_of(error)
                if error.code in _EMPTY_LIST_CODES:
                    answer.aborted_transactions = []
                fetched = Fetched(partition, answer, 0)
            self.fetched.append(fetched)

    def _code_of(self, error: BrokerResponseError) -> int:
        """Replace 56: consumers of old versions do not know it, and would not look for the leader."""
        knows_it = self._version >= _FIRST_STORAGE_ERROR_VERSION
        if error.code == ErrorCode.KAFKA_STORAGE_ERROR and not knows_it:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return error.code

    def let_go(self) -> None:
        """Let go of the results, with their descriptors; another read reads again what had records.

        The answers of many partitions would be much of the memory of a fetch that waits. To make one again
        takes 1.4 µs. Those of few partitions are kept, so their consumer does not wait for that.
        """
        for fetched in self.fetched:
            close_slice(fetched.answer.records)
            fetched.answer.records = b""
        if self._fetch.count <= FEW_PARTITIONS:
            self._kept.update((each.partition, each) for each in self.fetched)
        self.fetched = []

    def _log_of(self, partition: SessionPartition) -> Log:
        if partition.topic_partition is None:
            topic = self._broker.topics.by_id(partition.topic_id)
            if topic is None:
                raise UnknownTopicIdError
            partition.topic_partition = TopicPartition(topic.name, partition.asked.partition)
        log = self._logs.get(partition.topic_partition)
        if log is None:
            log = hosted_log(self._broker, partition.topic_partition)
        if self._reads_leader and log.replication is not None:
            log.replication.check_leading()
        if partition.topic_id not in (_NO_TOPIC_ID, log.topic_id):
            raise error_for(ErrorCode.INCONSISTENT_TOPIC_ID)
        if partition.asked.current_leader_epoch != -1:
            check_leader_epoch(log, partition.asked.current_leader_epoch)
        return log

    def _pass_over(self, partition: SessionPartition, log: Log) -> None:
        """Let an unchanged partition rest; a follower's only if its fetches tell the leader nothing new."""
        idle = self._tell_replicas(log, partition.asked) if self._tells_replicas else None
        if idle is not None or not self._is_follower:
            self._fetch.rest(partition, idle)

    def _is_unchanged(self, partition: SessionPartition, log: Log) -> bool:
        """Return whether there is nothing to read or tell, as for most partitions of a session."""
        asked, end = partition.asked, log.log_end_offset
        last_epoch = self._last_epoch_of(asked)
        agreed = (last_epoch, asked.fetch_offset, log.leader_epoch)
        return (
            not self._limits.rack  # there may be a preferred read replica to name
            and asked.fetch_offset == end == log.high_watermark == partition.high_watermark
            and asked.high_watermark >= end
            and log.log_start_offset == partition.log_start_offset
            and (last_epoch in (-1, log.leader_epoch) or partition.agreed == agreed)
        )

    def _last_epoch_of(self, asked: FetchPartition) -> int:
        """Return the epoch of the reader's last record; -1 if the version cannot name a diverging epoch.

        A session may remember it from a request of a newer version.
        """
        return asked.last_fetched_epoch if self._version >= _FIRST_DIVERGENCE_VERSION else -1

    def _read(self, partition: SessionPartition, log: Log, *, is_empty: bool) -> Fetched:
        asked, answer = partition.asked, _empty_answer(partition)
        if self._version < _FIRST_ZSTD_VERSION and log.settings.compression_type == "zstd":
            raise UnsupportedCompressionTypeError
        high_watermark, stable = log.high_watermark, log.last_stable_offset
        size_bytes = 0
        if self._limits.rack:
            answer.preferred_read_replica = self._broker.replicas.reader_in(
                self._limits.rack, log, asked.fetch_offset
            )
        if answer.preferred_read_replica >= 0:
            self._is_enough = True  # the consumer is sent to the other replica
        elif is_empty:
            pass  # it was compared and read before, and told to the replicas
        elif self._last_epoch_of(asked) >= 0 and self._diverges(answer, log, asked):
            self._is_enough = True
        else:
            partition.agreed = (self._last_epoch_of(asked), asked.fetch_offset, log.leader_epoch)
            size_bytes = self._take(answer, log, asked, stable)
            try:
                if self._tells_replicas:
                    self._tell_replicas(log, asked)
            except BrokerResponseError:
                close_slice(answer.records)
                raise
        if self._isolation is FetchIsolation.TXN_COMMITTED and answer.preferred_read_replica < 0:
            self._name_aborted(answer, log, asked, size_bytes, stable)
        answer.high_watermark = high_watermark
        answer.last_stable_offset = stable
        answer.log_start_offset = log.log_start_offset
        if self._is_follower and asked.high_watermark < high_watermark:
            self._is_enough = True  # KIP-1166: at once, and not with the next records
        if size_bytes:
            self._size_bytes += size_bytes
            self._with_records.add(partition)
        return Fetched(partition, answer, size_bytes)

    def _diverges(self, answer: PartitionData, log: Log, asked: FetchPartition) -> bool:
        """Return whether the reader's log diverges; tell it the epoch and offset."""
        epoch, end_offset = log.end_of_epoch(asked.last_fetched_epoch)
        if epoch < 0:
            raise OffsetOutOfRangeError(f"{log.topic_partition} has no epoch {asked.last_fetched_epoch}")
        if asked.fetch_offset < log.log_start_offset:
            raise OffsetOutOfRangeError(f"{log.topic_partition} begins at {log.log_start_offset}")
        if epoch == asked.last_fetched_epoch and end_offset >= asked.fetch_offset:
            return False
        answer.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
        return True

    def _take(self, answer: PartitionData, log: Log, asked: FetchPartition, stable: int) -> int:
        """Read a partition, and return the number of bytes."""
        left_bytes = max(0, min(asked.partition_max_bytes, self._max_bytes - self._size_bytes))
        if left_bytes == 0 and self._size_bytes:
            return 0  # the answer is full; a search in vain would cost time
        up_to = stable if self._isolation is FetchIsolation.TXN_COMMITTED else None
        if self._is_follower:
            up_to = log.log_end_offset
        piece = log.read(asked.fetch_offset, left_bytes, min_one_batch=not self._size_bytes, up_to=up_to)
        if not piece.size_bytes:
            return 0
        if asked.fetch_offset < log.segments[-1].base_offset:
            self._is_enough = True  # as in Kafka: a read ends with its segment, and there is more behind it
        if piece.fileno() is not None:
            answer.records = piece  # keeps a descriptor until it is sent
            return piece.size_bytes
        try:
            answer.records = piece.read()
        finally:
            piece.close()
        return piece.size_bytes

    def _name_aborted(
        self, answer: PartitionData, log: Log, asked: FetchPartition, size_bytes: int, stable: int
    ) -> None:
        if not log.may_have_aborted(asked.fetch_offset):
            answer.aborted_transactions = []
            return
        bound = log.fetch_bound(asked.fetch_offset, size_bytes) if size_bytes else asked.fetch_offset
        answer.aborted_transactions = [
            AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
            for each in log.aborted_transactions(asked.fetch_offset, min(bound, stable))
        ]

    def _tell_replicas(self, log: Log, asked: FetchPartition) -> IdleFollower | None:
        fetch = ReplicaFetch(
            self._limits.replica_id,
            self._limits.replica_epoch,
            asked.fetch_offset,
            asked.log_start_offset,
            asked.current_leader_epoch,
            log.log_end_offset,
        )
        return self._broker.replicas.on_fetch(log, fetch)


_EMPTY_LIST_CODES = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""Errors after which Kafka sends an empty list of aborted transactions instead of null."""


def _empty_answer(partition: SessionPartition) -> PartitionData:
    return PartitionData(
        partition_index=partition.asked.partition,
        high_watermark=-1,
        aborted_transactions=None,
        records=b"",
    )


def close_slice(records: Part | None) -> None:
    """Close records that hold a descriptor."""
    if isinstance(records, bytes | bytearray | memoryview | None):
        return
    cast("FileSlice", records).close()  # slices are the only parts that are not in memory
