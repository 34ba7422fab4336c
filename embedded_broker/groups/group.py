"""One group: committed offsets, offsets pending in transactions, and its members.

There is one table of groups for both of Kafka's group protocols. What they have in common is here; what
differs is behind `Membership`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import attrs

from splashdam.embedded_broker.configs.broker_settings import BrokerSettings
from splashdam.embedded_broker.groups.offset_records import CommittedOffset
from splashdam.embedded_broker.groups.timers import Timers
from splashdam.model.broker_errors import ErrorCode, error_for
from splashdam.model.log_text import quoted
from splashdam.model.values import TopicPartition

if TYPE_CHECKING:
    from splashdam.embedded_broker.groups.consumer.context import TopicsView

FIRST_GROUP_ID_NOT_FOUND_VERSION = 9
"""OffsetCommit version from which GROUP_ID_NOT_FOUND is understood."""
FIRST_TRANSACTIONAL_EPOCH_VERSION = 6
"""TxnOffsetCommit version from which GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH are understood (KIP-1319)."""


class Member(NamedTuple):
    """The sender of a commit, by its request.

    Attributes:
        generation_id: generation of a classic group, or member epoch (KIP-848); -1 for a client that is no
            member.
        member_id: empty for a client that is no member.
        instance_id: of a static member.
        partitions: those that it commits offsets of.
    """

    generation_id: int = -1
    member_id: str = ""
    instance_id: str | None = None
    partitions: Collection[TopicPartition] = ()

    @property
    def is_nobody(self) -> bool:
        """Whether the request names no membership at all."""
        return self.generation_id < 0 and not self.member_id and self.instance_id is None


NOBODY = Member()
"""Sender of a commit from outside the group: an admin tool, or a consumer that uses ``assign()``."""


class StoredOffset(NamedTuple):
    """A committed offset with the offset of its record: the later record for a partition counts."""

    committed: CommittedOffset
    record_offset: int


class Rebalance(NamedTuple):
    """When and why a group's partitions were shared out anew.

    Attributes:
        timestamp_ms: when it began, wall clock.
        generation: of a classic group the one before, else the group epoch behind it.
        reason: why.
    """

    timestamp_ms: int
    generation: int
    reason: str


class Membership(Protocol):
    """The members of a group in one of Kafka's protocols; its only I/O is through its `GroupHost`."""

    last_rebalance: Rebalance | None
    """The last one since the broker has started."""

    @property
    def group_type(self) -> str:
        """Kafka's name of the protocol: ``classic`` or ``consumer``."""
        ...

    @property
    def protocol_type(self) -> str:
        """The protocol type of its members, mostly ``consumer``; empty before the first member."""
        ...

    @property
    def state_name(self) -> str:
        """Kafka's name of the group's state, such as ``Stable``."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether it has no members: the group may be deleted, or go on with the other protocol."""
        ...

    @property
    def record_keys(self) -> Sequence[bytes]:
        """Keys of all its records in the log, in the order in which tombstones for them are written."""
        ...

    def check_may_commit(self, member: Member, *, version: int, is_transactional: bool) -> None:
        """Check that the sender may commit; in a classic group a legal commit counts as a heartbeat, as in
        Kafka.

        Raises:
            BrokerResponseError: it may not; the code is Kafka's.
        """
        ...

    def check_may_fetch(self, member: Member) -> None:
        """Check an OffsetFetch of version 9 or later, which names a member epoch.

        Raises:
            BrokerResponseError: UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH.
        """
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member subscribes to the topic: then its offsets neither expire nor can be deleted."""
        ...

    def retention_start_ms(self, committed: CommittedOffset) -> int | None:
        """Return when the retention of an offset begins, wall clock; None while it does not expire."""
        ...

    def loaded(self) -> None:
        """Start timers: the log is read to its end, and this broker coordinates the group from now on."""
        ...

    def dismiss(self, code: int) -> None:
        """Drop the membership: stop timers, and answer waiting requests with this code."""
        ...


class GroupHost(Protocol):
    """What memberships need of the coordinator; tests have their own."""

    @property
    def settings(self) -> BrokerSettings:
        """The broker's present settings; they can change at any time, so they must not be kept."""
        ...

    @property
    def timers(self) -> Timers:
        """Timers of all groups; keys are tuples that begin with the group's id."""
        ...

    @property
    def topics(self) -> TopicsView:
        """The topics of the cluster."""
        ...

    def configs_of(self, group_id: str) -> Mapping[str, str]:
        """Return the dynamic configs of the group."""
        ...

    def replace_membership(self, group_id: str, membership: Membership) -> None:
        """Replace the membership of a group: it goes on with the other protocol."""
        ...

    def now_ms(self) -> float:
        """Monotonic clock, used for timers."""
        ...

    def wall_ms(self) -> int:
        """Wall clock, milliseconds since the epoch."""
        ...

    def new_id(self) -> str: ...

    def append(self, group_id: str, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Append records to the group's partition as one batch; a value of None is a tombstone.

        Memory must be changed after the append, never before it: the log decides.

        Raises:
            BrokerResponseError: nothing was appended; the code is for the client.
        """
        ...


@attrs.define
class Group:
    """A group that has members or committed offsets.

    Attributes:
        offsets: committed offsets.
        open_transactions: producer ids of the open transactions with a pending offset, by partition.
        membership: its members; None if it never had any, which Kafka calls a simple group.
    """

    offsets: dict[TopicPartition, StoredOffset] = attrs.field(factory=dict)
    open_transactions: dict[TopicPartition, set[int]] = attrs.field(factory=dict)
    membership: Membership | None = None

    @property
    def is_gone(self) -> bool:
        """Whether nothing is left of it, so that it can be dropped."""
        return not (self.offsets or self.open_transactions or self.membership is not None)

    @property
    def places(self) -> list[TopicPartition]:
        """The partitions that it has offsets of, committed or pending."""
        return [*self.offsets, *(each for each in self.open_transactions if each not in self.offsets)]

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return self.membership is None or self.membership.is_empty

    @property
    def group_type(self) -> str:
        """Kafka's name of the protocol; a simple group counts as ``classic``."""
        return "classic" if self.membership is None else self.membership.group_type

    @property
    def protocol_type(self) -> str:
        """The protocol type of its members."""
        return "" if self.membership is None else self.membership.protocol_type

    @property
    def state_name(self) -> str:
        """Kafka's name of the state."""
        return "Empty" if self.membership is None else self.membership.state_name

    def begin_pending(self, topic_partition: TopicPartition, producer_id: int) -> None:
        """Note that an open transaction has written an offset of this partition."""
        self.open_transactions.setdefault(topic_partition, set()).add(producer_id)

    def end_pending(
        self, topic_partition: TopicPartition, producer_id: int, stored: StoredOffset | None
    ) -> None:
        """Note the end of such a transaction; ``stored`` is None if it was aborted."""
        producer_ids = self.open_transactions[topic_partition]
        producer_ids.remove(producer_id)
        if not producer_ids:
            del self.open_transactions[topic_partition]
        if stored is not None:
            self.store(topic_partition, stored)

    def store(self, topic_partition: TopicPartition, stored: StoredOffset) -> None:
        """Store an offset, unless its record is older than the stored one's, which compaction will keep."""
        earlier = self.offsets.get(topic_partition)
        if earlier is None or stored.record_offset > earlier.record_offset:
            self.offsets[topic_partition] = stored

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member subscribes to the topic."""
        return self.membership is not None and self.membership.is_subscribed_to(topic)

    def expired(self, now_ms: int, retention_ms: int) -> list[TopicPartition]:
        """Return the partitions whose offsets have expired (KIP-211).

        An offset is kept for ``retention_ms``, or for as long as its commit asked for, from the time the last
        member left; in a simple group from the commit. Offsets with a pending transaction, or of a topic that
        a member subscribes to, do not expire.
        """
        return [
            topic_partition
            for topic_partition, (committed, _) in self.offsets.items()
            if topic_partition not in self.open_transactions
            and not self.is_subscribed_to(topic_partition.topic)
            and self._is_expired(committed, now_ms, retention_ms)
        ]

    def _is_expired(self, committed: CommittedOffset, now_ms: int, retention_ms: int) -> bool:
        start_ms: int | None = committed.commit_timestamp_ms
        if self.membership is not None:
            start_ms = self.membership.retention_start_ms(committed)
        if start_ms is None:
            return False
        if committed.expire_timestamp_ms is not None:
            return now_ms >= committed.expire_timestamp_ms
        return now_ms - start_ms >= retention_ms


def check_may_commit(
    group: Group | None, member: Member, *, version: int, is_transactional: bool = False
) -> None:
    """Check a commit by Kafka's rules: only members commit for a group that has some.

    Args:
        group: None if it does not exist; the commit will create it.
        member: the sender.
        version: of the request.
        is_transactional: the request is a TxnOffsetCommit.

    Raises:
        BrokerResponseError: for a member of a group that does not exist, GROUP_ID_NOT_FOUND (69), or
            ILLEGAL_GENERATION (22) for older clients; else what the membership raises.
    """
    if group is None:
        if member.generation_id >= 0:
            first = (
                FIRST_TRANSACTIONAL_EPOCH_VERSION if is_transactional else FIRST_GROUP_ID_NOT_FOUND_VERSION
            )
            knows = version >= first
            missing = ErrorCode.GROUP_ID_NOT_FOUND if knows else ErrorCode.ILLEGAL_GENERATION
            raise error_for(missing, "there is no such group")
    elif group.membership is not None:
        group.membership.check_may_commit(member, version=version, is_transactional=is_transactional)
    elif member.generation_id >= 0:
        raise error_for(ErrorCode.UNKNOWN_MEMBER_ID, f"the group has no member {quoted(member.member_id)}")
