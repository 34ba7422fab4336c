"""The offsets of all groups: committed to ``__consumer_offsets``, read again from it at the start.

What is answered stands in memory; what is in memory stands in the log, which goes first. Semantics are those
of Kafka's OffsetMetadataManager.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING

import trio

from splashdam.embedded_broker.groups.group import Group
from splashdam.embedded_broker.groups.offset_records import (
    CommittedOffset,
    GroupKey,
    OffsetKey,
    parse_key,
    parse_value,
)
from splashdam.embedded_broker.groups.offset_state import OffsetState
from splashdam.embedded_broker.internal_topics import CONSUMER_OFFSETS, InternalTopic, StoredBatch
from splashdam.model.broker_errors import (
    CoordinatorNotAvailableError,
    CorruptMessageError,
    KafkaStorageError,
    MessageTooLargeError,
    NotCoordinatorError,
    RecordListTooLargeError,
    error_for,
)
from splashdam.model.error_codes import ErrorCode
from splashdam.model.errors import BrokerResponseError
from splashdam.model.values import TopicPartition
from splashdam.record.aborted import ABORT, COMMIT, type_of_control_record
from splashdam.record.record import Record

if TYPE_CHECKING:
    from splashdam.embedded_broker.broker import Broker
    from splashdam.embedded_broker.storage.log import Log

_log = logging.getLogger(__name__)

_TOMBSTONES_AT_ONCE = 1000
_MINUTE_MS = 60_000


class GroupOffsets:
    """Commits, finds and forgets offsets; made by the broker, which calls ``load`` before it serves."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._topic = InternalTopic(CONSUMER_OFFSETS, broker)
        self._states: dict[int, OffsetState] = {}
        self._unreadable: set[int] = set()

    def load(self) -> None:
        """Reads all of ``__consumer_offsets``; the groups of a damaged partition are answered with 15."""
        self._states, self._unreadable = {}, set()
        for partition in range(self._topic.partition_count):
            state, keys = OffsetState(), _KnownKeys()
            try:
                for batch in self._topic.read_all(partition):
                    _replay(state, keys, batch)
            except (CorruptMessageError, KafkaStorageError) as error:
                _log.error(
                    "%s-%d cannot be read, nor its groups: %s", CONSUMER_OFFSETS, partition, error.message
                )
                self._unreadable.add(partition)
            if state.groups:
                self._states[partition] = state

    def group(self, group_id: str) -> Group | None:
        """What is known of a group.

        Raises:
            CoordinatorNotAvailableError: its partition could not be read.
            NotCoordinatorError: another broker leads it.
        """
        state = self._states.get(self._partition_of(group_id))
        return None if state is None else state.groups.get(group_id)

    def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
    ) -> Log:
        """Commits offsets, all or none; returns the log they are in, for ``answer_when_safe``.

        Args:
            group_id: the group.
            offsets: what to commit; at least one.
            producer_id: in whose transaction they are, -1 for none.
            producer_epoch: the producer's.

        Raises:
            BrokerResponseError: INVALID_COMMIT_OFFSET_SIZE (28): too many for one batch; NOT_COORDINATOR
                (16): the disk refuses, as Kafka says it; a fenced epoch (47).
            CoordinatorNotAvailableError: the partition could not be read or made.
        """
        partition = self._partition_of(group_id)
        records = [(OffsetKey(group_id, each), committed) for each, committed in offsets.items()]
        try:
            appended = self._topic.append(
                partition,
                [(key.encoded(), committed.encoded()) for key, committed in records],
                producer_id=producer_id,
                producer_epoch=producer_epoch,
            )
        except (MessageTooLargeError, RecordListTooLargeError) as error:
            raise error_for(ErrorCode.INVALID_COMMIT_OFFSET_SIZE, error.message) from error
        except KafkaStorageError as error:
            _log.error("cannot commit offsets of group %r: %s", group_id, error.message)
            raise NotCoordinatorError(error.message) from error
        state = self._states.setdefault(partition, OffsetState())
        for record_offset, (key, committed) in enumerate(records, appended.base_offset):
            state.commit(key, committed, record_offset, producer_id)
        return self._topic.log(partition)

    def partition_of(self, group_id: str) -> TopicPartition:
        """Where a group's offsets are, for the transaction that they become part of.

        Raises:
            CoordinatorNotAvailableError: it could not be read.
            NotCoordinatorError: another broker leads it.
        """
        return TopicPartition(CONSUMER_OFFSETS, self._partition_of(group_id))

    def end_transaction(self, partition: int, producer_id: int, *, committed: bool) -> None:
        """A marker of this producer is in the log of this partition: pending offsets count now, or never."""
        state = self._states.get(partition)
        if state is not None:
            state.end_transaction(producer_id, committed=committed)

    def forget_topic(self, name: str) -> None:
        """A topic was deleted: so are its offsets, in every group; with ``__consumer_offsets`` all are."""
        if name == CONSUMER_OFFSETS:
            self._states.clear()
            self._unreadable.clear()
            return
        self._bury(
            (partition, OffsetKey(group_id, topic_partition))
            for partition, state in self._states.items()
            for group_id, group in state.groups.items()
            for topic_partition in group.offsets
            if topic_partition.topic == name
        )

    def expire(self, now_ms: int) -> int:
        """Forgets what was committed ``offsets.retention.minutes`` ago; returns how many offsets."""
        retention_ms = self._broker.settings.offsets_retention_minutes * _MINUTE_MS
        return self._bury(
            (partition, OffsetKey(group_id, topic_partition))
            for partition, state in self._states.items()
            for group_id, group in state.groups.items()
            for topic_partition in group.expired(now_ms, retention_ms)
        )

    async def keep_house(self) -> None:
        """Forgets old offsets every ``offsets.retention.check.interval.ms``, as long as the broker runs."""
        while True:
            await trio.sleep(self._broker.settings.offsets_retention_check_interval_ms / 1000)
            forgotten = self.expire(self._broker.clock.wall_ms())
            if forgotten:
                _log.info("forgot %d committed offsets that are past their retention", forgotten)

    def _bury(self, keys: Iterable[tuple[int, OffsetKey]]) -> int:
        """Writes tombstones, and forgets what they stand for; a disk that refuses is tried next time."""
        by_partition: dict[int, list[OffsetKey]] = {}
        for partition, key in keys:
            by_partition.setdefault(partition, []).append(key)
        count = 0
        for partition, buried in by_partition.items():
            rest = iter(buried)
            while some := list(islice(rest, _TOMBSTONES_AT_ONCE)):
                try:
                    self._topic.append(partition, [(key.encoded(), None) for key in some])
                except BrokerResponseError as error:
                    _log.warning(
                        "cannot forget offsets in %s-%d: %s", CONSUMER_OFFSETS, partition, error.message
                    )
                    break
                for key in some:
                    self._states[partition].forget(key)
                count += len(some)
        return count

    def _partition_of(self, group_id: str) -> int:
        partition = self._topic.partition_for(group_id)
        where = TopicPartition(CONSUMER_OFFSETS, partition)
        if partition in self._unreadable:
            raise CoordinatorNotAvailableError(f"{where} could not be read")
        leader = self._broker.leadership.leader_of(where)
        if leader is not None and leader.node_id != self._broker.node_id:
            raise NotCoordinatorError(f"node {leader.node_id} leads {where}, which holds group {group_id!r}")
        return partition


class _KnownKeys(dict[bytes, OffsetKey | GroupKey | None]):
    """What keys say: the same few come again and again."""

    def __missing__(self, data: bytes) -> OffsetKey | GroupKey | None:
        key = self[data] = parse_key(data)
        return key


def _replay(state: OffsetState, keys: _KnownKeys, batch: StoredBatch) -> None:
    """Takes in one batch of the log.

    Raises:
        CorruptMessageError: it cannot be read.
    """
    header = batch.header
    if header.is_control:
        record = next(iter(batch.records), None)
        kind = None if record is None else type_of_control_record(record)
        if kind in (ABORT, COMMIT):
            state.end_transaction(header.producer_id, committed=kind == COMMIT)
        return
    producer_id = header.producer_id if header.is_transactional else -1
    for record in batch.records:
        try:
            _replay_record(state, keys, record, producer_id)
        except CorruptMessageError as error:
            _log.warning("%s: record %d is left out: %s", CONSUMER_OFFSETS, record.offset, error.message)


def _replay_record(state: OffsetState, keys: _KnownKeys, record: Record, producer_id: int) -> None:
    key = None if record.key is None else keys[record.key]
    if isinstance(key, GroupKey):
        state.membership(key, is_there=record.value is not None)
    elif key is not None and record.value is None:
        state.forget(key)
    elif key is not None and record.value is not None:
        state.commit(key, parse_value(record.value), record.offset, producer_id)
