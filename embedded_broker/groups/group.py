"""One consumer group: what it has committed, what transactions may add to that, and who its members are.

There is one table of groups for both of Kafka's group protocols. What they have in common stands here; who
is a member, and what that means, each says behind ``Membership``.
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
FIRST_TRANSACTIONAL_EPOCH_VERSION = 6
"""Of TxnOffsetCommit: from here on producers know GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH (KIP-1319)."""
"""Of OffsetCommit: from it on a member of a group that is not there is told so."""


class Member(NamedTuple):
    """Who commits, as the request says it.

    Attributes:
        generation_id: of the group, as the member knows it, or its member epoch (KIP-848); -1 for somebody
            who is no member.
        member_id: as the group gave it; empty likewise.
        instance_id: of a static member.
        partitions: what it commits for.
    """

    generation_id: int = -1
    member_id: str = ""
    instance_id: str | None = None
    partitions: Collection[TopicPartition] = ()

    @property
    def is_nobody(self) -> bool:
        """It claims to be no member."""
        return self.generation_id < 0 and not self.member_id and self.instance_id is None


NOBODY = Member()
"""A commit from outside: an admin tool, or a consumer with assigned partitions."""


class StoredOffset(NamedTuple):
    """A committed offset and where its record is: of two for one partition the later record counts."""

    committed: CommittedOffset
    record_offset: int


class Membership(Protocol):
    """Who is in a group, by one of Kafka's protocols; pure but for what its `GroupHost` does."""

    @property
    def group_type(self) -> str:
        """Kafka's name of the protocol: ``classic`` or ``consumer``."""
        ...

    @property
    def protocol_type(self) -> str:
        """What the members call themselves, ``consumer`` mostly; empty where nobody has said it yet."""
        ...

    @property
    def state_name(self) -> str:
        """Kafka's name of the state, as in ``Stable``."""
        ...

    @property
    def is_empty(self) -> bool:
        """No member is left: the group may be deleted, or go on with the other protocol."""
        ...

    @property
    def record_keys(self) -> Sequence[bytes]:
        """Keys of all its records that are in the log, in the order in which tombstones bury them."""
        ...

    def check_may_commit(self, member: Member, *, version: int, is_transactional: bool) -> None:
        """Refuses a commit; a member that may is alive, which counts as a heartbeat where Kafka says so.

        Raises:
            BrokerResponseError: as Kafka answers it.
        """
        ...

    def check_may_fetch(self, member: Member) -> None:
        """Refuses an OffsetFetch of version 9 or later, which names a member epoch.

        Raises:
            BrokerResponseError: UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH.
        """
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic: then its offsets neither expire nor can be deleted."""
        ...

    def retention_start_ms(self, committed: CommittedOffset) -> int | None:
        """From when the retention of an offset counts, wall clock; None while it does not count at all."""
        ...

    def loaded(self) -> None:
        """The log is read to its end, and this broker keeps the group from now on: timers begin."""
        ...

    def dismiss(self, code: int) -> None:
        """The group leaves this broker's memory: whoever waits for an answer gets this code, timers end."""
        ...


class GroupHost(Protocol):
    """What memberships need of the world around them; the coordinator is it, and tests have their own."""

    @property
    def settings(self) -> BrokerSettings:
        """The broker's settings as they are now: nobody keeps them."""
        ...

    @property
    def timers(self) -> Timers:
        """What happens when; keys are tuples that begin with the group's id."""
        ...

    @property
    def topics(self) -> TopicsView:
        """The topics of the cluster."""
        ...

    def configs_of(self, group_id: str) -> Mapping[str, str]:
        """What was set on the group itself."""
        ...

    def replace_membership(self, group_id: str, membership: Membership) -> None:
        """The group goes on with the other protocol."""
        ...

    def now_ms(self) -> float:
        """Monotonic clock, to which timers are set."""
        ...

    def wall_ms(self) -> int:
        """Wall clock, milliseconds since the epoch."""
        ...

    def new_id(self) -> str:
        """Text that nobody else has: a UUID as Kafka writes them."""
        ...

    def append(self, group_id: str, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Appends records to the group's partition as one batch; None buries a key. Memory follows after it.

        Raises:
            BrokerResponseError: nothing was appended; the code is what a client is told.
        """
        ...


@attrs.define
class Group:
    """A group that somebody has joined or committed for.

    Attributes:
        offsets: what is committed.
        open_transactions: in how many open transactions a partition's offset is pending.
        membership: who is in it; None where nobody ever was, which Kafka calls a simple group.
    """

    offsets: dict[TopicPartition, StoredOffset] = attrs.field(factory=dict)
    open_transactions: dict[TopicPartition, int] = attrs.field(factory=dict)
    membership: Membership | None = None

    @property
    def is_gone(self) -> bool:
        """Nothing is known of it any more."""
        return not (self.offsets or self.open_transactions or self.membership is not None)

    @property
    def is_empty(self) -> bool:
        """It has no members."""
        return self.membership is None or self.membership.is_empty

    @property
    def group_type(self) -> str:
        """Kafka's name of the protocol; a simple group counts as ``classic``."""
        return "classic" if self.membership is None else self.membership.group_type

    @property
    def protocol_type(self) -> str:
        """What the members call themselves."""
        return "" if self.membership is None else self.membership.protocol_type

    @property
    def state_name(self) -> str:
        """Kafka's name of the state."""
        return "Empty" if self.membership is None else self.membership.state_name

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

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic."""
        return self.membership is not None and self.membership.is_subscribed_to(topic)

    def expired(self, now_ms: int, retention_ms: int) -> list[TopicPartition]:
        """The partitions whose offsets have had their time (KIP-211).

        That is ``retention_ms``, or what the commit asked for. It counts from the moment the last member
        left; where nobody ever joined, from the commit. Not those with a transaction pending, nor of topics
        that a member reads.
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
    """Kafka's rules: who claims no generation may commit for a group without members, a member for its own.

    Args:
        group: None where nothing is known of it; a commit makes it.
        member: who commits.
        version: of the request.
        is_transactional: it is a TxnOffsetCommit.

    Raises:
        BrokerResponseError: where there is no such group, GROUP_ID_NOT_FOUND (69), or ILLEGAL_GENERATION (22)
            for those who do not know that; else what the membership says.
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
