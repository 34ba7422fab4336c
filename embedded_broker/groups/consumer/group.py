"""A consumer group as a function of its records, and the draft on which a request makes its changes.

Each `Change` is a record of ``__consumer_offsets``; a value of None stands for the tombstone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Self, TypeAlias, TypeVar

import attrs

from splashdam.embedded_broker.groups.consumer.member import (
    NOTHING,
    ConsumerMember,
    CurrentAssignment,
    MemberMetadata,
    Share,
    TopicIdPartition,
)
from splashdam.model.broker_errors import ErrorCode, error_for
from splashdam.model.log_text import quoted

V = TypeVar("V")

NO_NAMES: frozenset[str] = frozenset()


@attrs.define
class ConsumerGroup:
    """The state of a consumer group; it changes only by ``apply``.

    Attributes:
        group_id: its id.
        epoch: the group epoch: incremented with every change of subscriptions or of the subscribed topics.
        assignment_epoch: the group epoch for which the target assignment was computed.
        topics: the subscribed topics that existed when the group epoch last changed.
        members: by member id, in the order in which they joined.
        target: the target assignment, by member id.
        regexes: topics that match the patterns in use.
        static_members: member id by instance id.
        holders: member id of the member that holds a partition until it has revoked it.
    """

    group_id: str
    epoch: int = 0
    assignment_epoch: int = 0
    topics: Mapping[str, TopicShape] = attrs.field(factory=dict)
    members: dict[str, ConsumerMember] = attrs.field(factory=dict)
    target: dict[str, Share] = attrs.field(factory=dict)
    regexes: dict[str, ResolvedRegex] = attrs.field(factory=dict)
    static_members: dict[str, str] = attrs.field(factory=dict)
    holders: dict[TopicIdPartition, str] = attrs.field(factory=dict)
    _names: frozenset[str] | None = attrs.field(default=None, init=False, eq=False)

    def copy(self) -> Self:
        """Return an independent copy."""
        copied = attrs.evolve(
            self,
            members=dict(self.members),
            target=dict(self.target),
            regexes=dict(self.regexes),
            static_members=dict(self.static_members),
            holders=dict(self.holders),
        )
        copied._names = self._names
        return copied

    @property
    def state(self) -> str:
        """Kafka's name of the group's state."""
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        if all(each.current.is_reconciled_to(self.assignment_epoch) for each in self.members.values()):
            return "Stable"
        return "Reconciling"

    def member(self, member_id: str) -> ConsumerMember:
        """Return a member by id.

        Raises:
            BrokerResponseError: UNKNOWN_MEMBER_ID (25).
        """
        member = self.members.get(member_id)
        if member is None:
            raise error_for(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"group {quoted(self.group_id)} has no member {quoted(member_id)}",
            )
        return member

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        """Return the member with this instance id, None if the group has no such member."""
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def share_of(self, member_id: str) -> Share:
        """Return the target assignment of a member."""
        return self.target.get(member_id, NOTHING)

    def subscription_of(self, metadata: MemberMetadata) -> frozenset[str]:
        """Return the topics that a member subscribes to, by name and by pattern."""
        resolved = self.regexes.get(metadata.topic_regex) if metadata.topic_regex else None
        return metadata.topic_names | resolved.topics if resolved else metadata.topic_names

    def subscribed_names(self) -> frozenset[str]:
        """Return all topics that members subscribe to; cached until a subscription changes."""
        if self._names is None:
            first, *others = self._subscriptions() or [NO_NAMES]
            self._names = first.union(*others) if others else first
        return self._names

    def _subscriptions(self) -> list[frozenset[str]]:
        """Return the members' subscriptions; equal objects once."""
        wanted = (self.subscription_of(each.metadata) for each in self.members.values())
        return list({id(each): each for each in wanted}.values())

    def known_names(self, names: frozenset[str]) -> frozenset[str]:
        """Return an equal set that another member already has, to share memory."""
        known = (each.metadata.topic_names for each in self.members.values())
        return next((each for each in known if each == names), names)

    def regexes_in_use(self) -> set[str]:
        """Return the patterns of its members."""
        return {each.metadata.topic_regex for each in self.members.values() if each.metadata.topic_regex}

    def is_held(self, partition: TopicIdPartition) -> bool:
        """Whether a member holds a partition."""
        return partition in self.holders

    def apply(self, change: Change) -> None:
        """Apply a record, be it new or read from the log."""
        match change:
            case GroupEpochChange(epoch):
                self.epoch = epoch or 0
            case TopicsChange(topics):
                self.topics = topics or {}
            case MetadataChange(member_id, metadata):
                self._set_metadata(member_id, metadata)
            case TargetEpochChange(epoch):
                self.assignment_epoch = epoch or 0
            case TargetChange(member_id, share):
                _put(self.target, member_id, share)
            case CurrentChange(member_id, current):
                self._set_current(member_id, current)
            case RegexChange(regex, resolved):
                self._names = None
                _put(self.regexes, regex, resolved)

    def _set_metadata(self, member_id: str, metadata: MemberMetadata | None) -> None:
        self._names = None
        member = self.members.get(member_id) or ConsumerMember(member_id)
        instance_id = member.metadata.instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member_id:
            del self.static_members[instance_id]
        if metadata is None:
            self._set_current(member_id, None)
            self.members.pop(member_id, None)
            return
        self.members[member_id] = attrs.evolve(member, metadata=metadata)
        if metadata.instance_id is not None:
            self.static_members[metadata.instance_id] = member_id

    def _set_current(self, member_id: str, current: CurrentAssignment | None) -> None:
        """Set a member's current assignment; a tombstone for an unknown member does not create it."""
        member = self.members.get(member_id)
        if member is None and current is None:
            return
        member = member or ConsumerMember(member_id)
        for partition in member.current.holds():
            if self.holders.get(partition) == member_id:
                del self.holders[partition]
        after = current or CurrentAssignment()
        self.members[member_id] = attrs.evolve(member, current=after)
        self.holders.update(dict.fromkeys(after.holds(), member_id))

    def tombstones(self) -> Iterable[Change]:
        """Yield the tombstones of all the group's records."""
        for member_id in self.members:
            yield CurrentChange(member_id, None)
        for member_id in self.target:
            yield TargetChange(member_id, None)
        yield TargetEpochChange(None)
        for member_id in self.members:
            yield MetadataChange(member_id, None)
        for regex in self.regexes:
            yield RegexChange(regex, None)
        yield TopicsChange(None)
        yield GroupEpochChange(None)


def _put(values: dict[str, V], key: str, value: V | None) -> None:
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value


class Draft:
    """A copy of a group on which one request makes its changes; the group itself is not changed.

    The caller writes ``changes`` to the log, and then replaces the group by ``group``. If the append fails,
    nothing has happened.

    Args:
        group: the present group.
    """

    def __init__(self, group: ConsumerGroup) -> None:
        self.group = group
        self.changes: list[Change] = []

    def change(self, *changes: Change) -> None:
        """Add changes, and apply them to the copy; the group is copied before the first one."""
        if not self.changes:
            self.group = self.group.copy()
        for each in changes:
            self.group.apply(each)
        self.changes += changes


class TopicShape(NamedTuple):
    """Id and number of partitions of a subscribed topic."""

    topic_id: bytes
    partitions: int


class ResolvedRegex(NamedTuple):
    """The topics that a pattern matches.

    Attributes:
        topics: their names.
        timestamp_ms: when they were matched, wall clock.
    """

    topics: frozenset[str]
    timestamp_ms: int


class GroupEpochChange(NamedTuple):
    """A new group epoch; None: the group is deleted."""

    epoch: int | None


class TopicsChange(NamedTuple):
    """The subscribed topics that exist, by name."""

    topics: Mapping[str, TopicShape] | None


class MetadataChange(NamedTuple):
    """A member's metadata; None: it has left."""

    member_id: str
    metadata: MemberMetadata | None


class TargetEpochChange(NamedTuple):
    """The group epoch for which the target assignment was computed."""

    epoch: int | None


class TargetChange(NamedTuple):
    """The target assignment of a member."""

    member_id: str
    share: Share | None


class CurrentChange(NamedTuple):
    """The current assignment of a member."""

    member_id: str
    current: CurrentAssignment | None


class RegexChange(NamedTuple):
    """The topics that match a pattern; None: no member uses it any more."""

    regex: str
    resolved: ResolvedRegex | None


Change: TypeAlias = (
    GroupEpochChange
    | TopicsChange
    | MetadataChange
    | TargetEpochChange
    | TargetChange
    | CurrentChange
    | RegexChange
)
