"""The committed offsets of all groups: commit, expiration and deletion (Kafka's ``OffsetMetadataManager``).

Every change is appended to ``__consumer_offsets`` before it counts in memory.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Protocol

import trio

from splashdam.embedded_broker.groups.offset_records import NewOffset, OffsetKey, offset_key_start
from splashdam.model.broker_errors import BrokerResponseError, ErrorCode
from splashdam.model.log_text import quoted
from splashdam.model.values import TopicPartition
from splashdam.storage.topic_names import CONSUMER_OFFSETS

if TYPE_CHECKING:
    from splashdam.embedded_broker.configs.broker_settings import BrokerSettings
    from splashdam.embedded_broker.groups.coordinator import GroupCoordinator
    from splashdam.embedded_broker.groups.group import Group
    from splashdam.net.clock import Clock
    from splashdam.storage.log import Log

_log = logging.getLogger(__name__)

_GROUPS_AT_ONCE = 64
"""Groups that are looked at in one turn: some milliseconds, if each is deleted."""
_TOMBSTONES_AT_ONCE = 1000
_TOMBSTONE_BYTES_AT_ONCE = 64 * 1024
"""Keys of tombstones in one batch: a group's id alone may have 32 KiB, so that a thousand do not fit."""
_MINUTE_MS = 60_000


class KeepsOffsets(Protocol):
    """What offsets need of their broker; the attributes are those of `Broker`."""

    settings: BrokerSettings
    clock: Clock


class GroupOffsets:
    """Commits, expires and deletes the offsets of a coordinator's groups."""

    def __init__(self, broker: KeepsOffsets, coordinator: GroupCoordinator) -> None:
        self._broker = broker
        self._coordinator = coordinator

    def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, NewOffset],
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
    ) -> Log:
        """Commit offsets, all or none; return their log, for ``answer_when_safe``.

        Args:
            group_id: the group.
            offsets: at least one. They come encoded, because encoding 20,000 of them, which fit into one
                batch, takes 20 ms and is done in steps by the caller.
            producer_id: of the transaction that they belong to, -1 for none.
            producer_epoch: of that producer.

        Raises:
            BrokerResponseError: INVALID_COMMIT_OFFSET_SIZE (28): too many for one batch; NOT_COORDINATOR
                (16): a disk error, as in Kafka; a fenced epoch (47).
            CoordinatorNotAvailableError: the partition could not be read or created.
        """
        partition = self._coordinator.partition_of(group_id)
        start = offset_key_start(group_id)
        appended = self._coordinator.append_to(
            partition,
            ((start + each.key_end, each.value) for each in offsets.values()),
            too_large=ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            least_bytes=sum(len(start) + len(each.key_end) + len(each.value) for each in offsets.values()),
        )
        self._coordinator.shard_of(partition).commit_all(
            group_id, offsets, appended.base_offset, producer_id=producer_id
        )
        return self._coordinator.log_of(group_id)

    def partition_of(self, group_id: str) -> TopicPartition:
        """Return the partition of a group's offsets, to add it to a transaction.

        Raises:
            BrokerResponseError: this broker does not coordinate the group.
        """
        return TopicPartition(CONSUMER_OFFSETS, self._coordinator.partition_of(group_id))

    def end_transaction(self, partition: int, producer_id: int, *, committed: bool) -> None:
        """Commit or drop the pending offsets of a producer, whose marker is in the log of this partition."""
        self._coordinator.shard_of(partition).end_transaction(producer_id, committed=committed)

    def forget_topic(self, name: str) -> None:
        """Delete the offsets of a deleted topic in every group, those that are pending in a transaction, too.

        Of ``__consumer_offsets`` all offsets.
        """
        if name == CONSUMER_OFFSETS:
            self._coordinator.clear()
            return
        self._delete(
            (partition, OffsetKey(group_id, topic_partition))
            for partition, group_id, group in self._coordinator.all_groups()
            for topic_partition in group.places
            if topic_partition.topic == name
        )

    def expire(self, now_ms: int) -> int:
        """Expire offsets by ``offsets.retention.minutes``, and delete groups that have nothing left.

        Returns:
            Number of expired offsets.
        """
        return sum(self._expiring(now_ms))

    def _expiring(self, now_ms: int) -> Iterator[int]:
        """As ``expire``; yields the numbers for a few groups at a time, so that others have their turns."""
        groups = self._coordinator.all_groups()
        while some := list(islice(groups, _GROUPS_AT_ONCE)):
            yield self._expire(some, now_ms)

    def _expire(self, groups: Collection[tuple[int, str, Group]], now_ms: int) -> int:
        retention_ms = self._broker.settings.groups.offsets_retention_minutes * _MINUTE_MS
        count = self._delete(
            (partition, OffsetKey(group_id, topic_partition))
            for partition, group_id, group in groups
            for topic_partition in group.expired(now_ms, retention_ms)
        )
        for _, group_id, group in groups:
            if group.is_empty and not group.places:
                try:
                    self.delete_group(group_id)
                except BrokerResponseError as error:
                    _log.warning("cannot delete group %s: %s", quoted(group_id), error.message)
        return count

    def delete_group(self, group_id: str) -> None:
        """Write tombstones for a group without members and for its offsets, and delete both.

        Offsets that are pending in a transaction are deleted, too: its commit brings none of them back.

        Raises:
            BrokerResponseError: nothing was deleted; the code is for the client.
        """
        partition = self._coordinator.partition_of(group_id)
        group = self._coordinator.find_or_make(group_id)
        offsets = [OffsetKey(group_id, each) for each in group.places]
        keys = [key.encoded() for key in offsets]
        if group.membership is not None:
            keys += group.membership.record_keys
        if keys:
            too_large = ErrorCode.UNKNOWN_SERVER_ERROR
            # In one batch, so that a crash leaves all of the group or nothing.
            self._coordinator.append_to(partition, [(key, None) for key in keys], too_large=too_large)
        if group.membership is not None:
            group.membership.dismiss(ErrorCode.UNKNOWN_MEMBER_ID)
            group.membership = None
        shard = self._coordinator.shard_of(partition)
        for key in offsets:
            shard.forget(key, keeps_group=True)
        self._coordinator.drop_if_gone(group_id)

    async def keep_house(self) -> None:
        """Expire offsets every ``offsets.retention.check.interval.ms``, as long as the broker runs."""
        while True:
            await trio.sleep(self._broker.settings.groups.offsets_retention_check_interval_ms / 1000)
            expired = 0
            for count in self._expiring(self._broker.clock.wall_ms()):
                expired += count
                await trio.lowlevel.checkpoint()
            if expired:
                _log.info("%d committed offsets have expired", expired)

    def _delete(self, keys: Iterable[tuple[int, OffsetKey]]) -> int:
        """Write tombstones in batches, and delete the offsets; a disk error leaves the rest for later."""
        by_partition: dict[int, list[OffsetKey]] = {}
        for partition, key in keys:
            by_partition.setdefault(partition, []).append(key)
        count = 0
        for partition, deleted in by_partition.items():
            for some in _portions(deleted):
                try:
                    self.delete_offsets(partition, some)
                except BrokerResponseError as error:
                    _log.warning(
                        "cannot delete offsets in %s-%d: %s", CONSUMER_OFFSETS, partition, error.message
                    )
                    break
                count += len(some)
        return count

    def delete_offsets(
        self, partition: int, keys: Iterable[OffsetKey], *, keeps_groups: bool = False
    ) -> None:
        """Write tombstones for offsets, and delete them.

        Args:
            partition: of their groups.
            keys: of the offsets.
            keeps_groups: whether a group that has nothing left stays until the next ``expire``.

        Raises:
            BrokerResponseError: nothing was deleted; the code is for the client.
        """
        deleted = list(keys)
        tombstones = [(key.encoded(), None) for key in deleted]
        if tombstones:
            too_large = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            self._coordinator.append_to(partition, tombstones, too_large=too_large)
        for key in deleted:
            self._coordinator.shard_of(partition).forget(key, keeps_group=keeps_groups)


def _portions(keys: Iterable[OffsetKey]) -> Iterator[list[OffsetKey]]:
    """Split keys, so that the tombstones of each portion fit into a batch."""
    portion: list[OffsetKey] = []
    size_bytes = 0
    for key in keys:
        key_bytes = len(key.encoded())
        if portion and (
            len(portion) == _TOMBSTONES_AT_ONCE or size_bytes + key_bytes > _TOMBSTONE_BYTES_AT_ONCE
        ):
            yield portion
            portion, size_bytes = [], 0
        portion.append(key)
        size_bytes += key_bytes
    if portion:
        yield portion
