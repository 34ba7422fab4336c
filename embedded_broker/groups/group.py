"""One consumer group: what it has committed, what transactions may add to that, and who may commit for it."""

from __future__ import annotations

from typing import NamedTuple

import attrs

from splashdam.embedded_broker.groups.offset_records import CommittedOffset
from splashdam.model.broker_errors import error_for
from splashdam.model.error_codes import ErrorCode
from splashdam.model.errors import BrokerResponseError
from splashdam.model.values import TopicPartition


class Member(NamedTuple):
    """Who commits, as the request says it.

    Attributes:
        generation_id: of the group, as the member knows it; -1 for somebody who is no member.
        member_id: as the group gave it; empty likewise.
        instance_id: of a static member.
    """

    generation_id: int = -1
    member_id: str = ""
    instance_id: str | None = None


NOBODY = Member()
"""A commit from outside: an admin tool, or a consumer with assigned partitions."""


class StoredOffset(NamedTuple):
    """A committed offset and where its record is: of two for one partition the later record counts."""

    committed: CommittedOffset
    record_offset: int


@attrs.define
class Group:
    """A group that somebody has committed for, or of which the log knows members.

    Attributes:
        offsets: what is committed.
        open_transactions: in how many open transactions a partition's offset is pending.
        has_membership: the log has a record of its members, which a Kafka wrote.
    """

    offsets: dict[TopicPartition, StoredOffset] = attrs.field(factory=dict)
    open_transactions: dict[TopicPartition, int] = attrs.field(factory=dict)
    has_membership: bool = False

    @property
    def is_gone(self) -> bool:
        """Nothing is known of it any more."""
        return not (self.offsets or self.open_transactions or self.has_membership)

    def begin_pending(self, topic_partition: TopicPartition) -> None:
        """A transaction wrote an offset of this partition."""
        self.open_transactions[topic_partition] = self.open_transactions.get(topic_partition, 0) + 1

    def end_pending(self, topic_partition: TopicPartition, stored: StoredOffset | None) -> None:
        """That transaction ended; ``stored`` is what it leaves, None if it was aborted."""
        left = self.open_transactions[topic_partition] - 1
        if left:
            self.open_transactions[topic_partition] = left
        else:
            del self.open_transactions[topic_partition]
        if stored is not None:
            self.store(topic_partition, stored)

    def store(self, topic_partition: TopicPartition, stored: StoredOffset) -> None:
        """Takes an offset in, unless the log has a later one: compaction will keep that one."""
        earlier = self.offsets.get(topic_partition)
        if earlier is None or stored.record_offset > earlier.record_offset:
            self.offsets[topic_partition] = stored

    def expired(self, now_ms: int, retention_ms: int) -> list[TopicPartition]:
        """The partitions whose offsets have had their time: ``retention_ms`` since the commit, or their own.

        Not those with a transaction pending. A group whose members Kafka knew keeps its offsets: they count
        from the moment the last member left, which only the members' own records tell.
        """
        return [
            topic_partition
            for topic_partition, (committed, _) in self.offsets.items()
            if topic_partition not in self.open_transactions
            and self._is_expired(committed, now_ms, retention_ms)
        ]

    def _is_expired(self, committed: CommittedOffset, now_ms: int, retention_ms: int) -> bool:
        if committed.expire_timestamp_ms is not None:
            return now_ms >= committed.expire_timestamp_ms
        return not self.has_membership and now_ms - committed.commit_timestamp_ms >= retention_ms


def check_may_commit(group: Group | None, member: Member, *, missing: ErrorCode) -> None:
    """Kafka's rules for a group without members: whoever claims no generation may commit, nobody else.

    Membership, when it comes, is asked here.

    Args:
        group: None where nothing is known of it; a commit makes it.
        member: who commits.
        missing: what a member of a group that is not there is told.

    Raises:
        BrokerResponseError: ``missing``, or UNKNOWN_MEMBER_ID (25).
    """
    if member.generation_id < 0:
        return
    if group is None:
        raise error_for(missing, "there is no such group")
    raise _unknown_member(member)


def _unknown_member(member: Member) -> BrokerResponseError:
    return error_for(ErrorCode.UNKNOWN_MEMBER_ID, f"the group has no member {member.member_id!r}")
