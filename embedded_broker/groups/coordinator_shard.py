"""The groups of one partition of ``__consumer_offsets`` (Kafka's ``GroupCoordinatorShard``)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from splashdam.embedded_broker.groups.classic.membership import ClassicMembership
from splashdam.embedded_broker.groups.group import Group, GroupHost, StoredOffset
from splashdam.embedded_broker.groups.offset_records import (
    CLASSIC_GROUP_KEY_VERSION,
    CommittedOffset,
    GroupKey,
    NewOffset,
    OffsetKey,
    parse_key,
    parse_value,
)
from splashdam.embedded_broker.topics.internal_topics import StoredBatch
from splashdam.model.broker_errors import CorruptMessageError
from splashdam.model.values import Buffer, TopicPartition
from splashdam.record.aborted_transactions import ABORT, COMMIT, type_of_control_record
from splashdam.record.record import Record
from splashdam.storage.topic_names import CONSUMER_OFFSETS

_log = logging.getLogger(__name__)


class CoordinatorShard:
    """The groups of one partition, as a function of the records and markers in its log.

    Args:
        host: of the memberships that are read from the log.
    """

    def __init__(self, host: GroupHost) -> None:
        self.groups: dict[str, Group] = {}
        self._host = host
        self._pending: dict[int, dict[OffsetKey, StoredOffset]] = {}

    def group(self, group_id: str) -> Group:
        """Return a group, created if it does not exist."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group()
        return group

    def replay(self, batches: Iterable[StoredBatch]) -> None:
        """Apply the partition's log from its start; a record that cannot be read is skipped.

        Raises:
            CorruptMessageError: a batch cannot be read.
        """
        keys = _KnownKeys()
        for batch in batches:
            header = batch.header
            if header.is_control:
                self._replay_marker(batch)
                continue
            producer_id = header.producer_id if header.is_transactional else -1
            for record in batch.records:
                try:
                    self._replay_record(keys, record, producer_id)
                except CorruptMessageError as error:
                    _log.warning(
                        "%s: record %d is skipped: %s", CONSUMER_OFFSETS, record.offset, error.message
                    )

    def _replay_marker(self, batch: StoredBatch) -> None:
        record = next(iter(batch.records), None)
        kind = None if record is None else type_of_control_record(record)
        if kind in (ABORT, COMMIT):
            self.end_transaction(batch.header.producer_id, committed=kind == COMMIT)

    def _replay_record(self, keys: _KnownKeys, record: Record, producer_id: int) -> None:
        key = None if record.key is None else keys[record.key]
        if isinstance(key, GroupKey):
            self.membership(key, record.value)
        elif key is not None and record.value is None:
            self.forget(key)
        elif key is not None and record.value is not None:
            self.commit(key, parse_value(record.value), record.offset, producer_id)

    def commit(
        self, key: OffsetKey, committed: CommittedOffset, record_offset: int, producer_id: int = -1
    ) -> None:
        """Apply the record of an offset; in a transaction it stays pending until the marker."""
        stored = StoredOffset(committed, record_offset)
        group = self.group(key.group_id)
        if producer_id < 0:
            group.store(key.topic_partition, stored)
            return
        pending = self._pending.setdefault(producer_id, {})
        if key not in pending:
            group.begin_pending(key.topic_partition, producer_id)
        pending[key] = stored

    def commit_all(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, NewOffset],
        base_offset: int,
        *,
        producer_id: int = -1,
    ) -> None:
        """Apply a group's offsets of one batch, in its order; the first has the base offset."""
        if producer_id >= 0:
            for record_offset, (topic_partition, new) in enumerate(offsets.items(), base_offset):
                self.commit(OffsetKey(group_id, topic_partition), new.committed, record_offset, producer_id)
            return
        store = self.group(group_id).store
        for record_offset, (topic_partition, new) in enumerate(offsets.items(), base_offset):
            store(topic_partition, StoredOffset(new.committed, record_offset))

    def forget(self, key: OffsetKey, *, keeps_group: bool = False) -> None:
        """Apply the tombstone of an offset; as in Kafka, what is pending for the key is dropped, too.

        A group that has nothing left is removed, unless ``keeps_group``.
        """
        group = self.groups.get(key.group_id)
        if group is not None:
            group.offsets.pop(key.topic_partition, None)
            # These producers alone: other transactions may be open by the thousand.
            for producer_id in tuple(group.open_transactions.get(key.topic_partition, ())):
                del self._pending[producer_id][key]
                group.end_pending(key.topic_partition, producer_id, None)
            if not keeps_group:
                self.drop_if_gone(key.group_id)

    def membership(self, key: GroupKey, value: Buffer | None) -> None:
        """Apply a record of a group's members, or its tombstone, while the log is read.

        Raises:
            CorruptMessageError: the record cannot be read.
        """
        if key.version == CLASSIC_GROUP_KEY_VERSION:
            group = self.group(key.group_id)
            group.membership = None
            if value is not None:
                group.membership = ClassicMembership.from_record(key.group_id, self._host, value)
            self.drop_if_gone(key.group_id)
        else:
            self._consumer_membership(key, value)

    def _consumer_membership(self, key: GroupKey, value: Buffer | None) -> None:
        """Apply a consumer group's record: a tombstone of the group epoch ends the membership."""
        from splashdam.embedded_broker.groups.consumer.group import GroupEpochChange
        from splashdam.embedded_broker.groups.consumer.membership import ConsumerMembership
        from splashdam.embedded_broker.groups.consumer.records import ChangeOf, decode_change

        group, found = self.group(key.group_id), decode_change(key.data, value)
        membership = group.membership
        if found == ChangeOf(key.group_id, GroupEpochChange(None)):
            if isinstance(membership, ConsumerMembership):
                group.membership = None
        elif found is not None and (value is not None or isinstance(membership, ConsumerMembership)):
            # A tombstone makes no membership: the group may have gone on with the classic protocol.
            if not isinstance(membership, ConsumerMembership):
                membership = group.membership = ConsumerMembership(key.group_id, self._host)
            membership.take(found.change)
        self.drop_if_gone(key.group_id)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Apply a transaction marker: pending offsets are committed or dropped."""
        for key, stored in self._pending.pop(producer_id, {}).items():
            group = self.groups[key.group_id]
            group.end_pending(key.topic_partition, producer_id, stored if committed else None)
            self.drop_if_gone(key.group_id)

    def drop_if_gone(self, group_id: str) -> None:
        """Remove a group without members, offsets and pending transactions."""
        if self.groups[group_id].is_gone:
            del self.groups[group_id]


class _KnownKeys(dict[bytes, OffsetKey | GroupKey | None]):
    """Cache of parsed keys: the same few repeat throughout the log."""

    def __missing__(self, data: bytes) -> OffsetKey | GroupKey | None:
        key = self[data] = parse_key(data)
        return key
