"""What the records of one partition of ``__consumer_offsets`` add up to, be they new or read at the start."""

from __future__ import annotations

from splashdam.embedded_broker.groups.group import Group, StoredOffset
from splashdam.embedded_broker.groups.offset_records import CommittedOffset, GroupKey, OffsetKey


class OffsetState:
    """The groups of one partition, as a function of its log: records and markers are told in their order."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self._pending: dict[int, dict[OffsetKey, StoredOffset]] = {}

    def commit(
        self, key: OffsetKey, committed: CommittedOffset, record_offset: int, producer_id: int = -1
    ) -> None:
        """Takes in an offset's record; one of a producer's transaction waits for its marker."""
        stored = StoredOffset(committed, record_offset)
        group = self.groups.get(key.group_id)
        if group is None:
            group = self.groups[key.group_id] = Group()
        if producer_id < 0:
            group.store(key.topic_partition, stored)
            return
        pending = self._pending.setdefault(producer_id, {})
        if key not in pending:
            group.begin_pending(key.topic_partition)
        pending[key] = stored

    def forget(self, key: OffsetKey) -> None:
        """Takes in a tombstone of an offset; pending ones may still come after it."""
        group = self.groups.get(key.group_id)
        if group is not None:
            group.offsets.pop(key.topic_partition, None)
            self._drop_if_gone(key.group_id, group)

    def membership(self, key: GroupKey, *, is_there: bool) -> None:
        """Takes in a record of a group itself, or its tombstone."""
        group = self.groups.setdefault(key.group_id, Group())
        group.has_membership = is_there
        self._drop_if_gone(key.group_id, group)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Takes in a marker: what is pending becomes visible, or vanishes."""
        for key, stored in self._pending.pop(producer_id, {}).items():
            group = self.groups[key.group_id]
            group.end_pending(key.topic_partition, stored if committed else None)
            self._drop_if_gone(key.group_id, group)

    def _drop_if_gone(self, group_id: str, group: Group) -> None:
        if group.is_gone:
            del self.groups[group_id]
