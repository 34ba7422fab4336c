"""A group of the consumer protocol as a function of its records; a draft of it decides what comes next.

A `Change` is what can happen to a group: each is a record of ``__consumer_offsets``, None its tombstone.
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
    """What the records of a group add up to; ``apply`` is the only way to change it.

    Attributes:
        group_id: its name.
        epoch: the group epoch: +1 with every change of what it subscribes to, and of what there is of that.
        assignment_epoch: the group epoch for which the target assignment was computed.
        topics: the subscribed topics that were there when the epoch last moved.
        members: by member id, in the order in which they came.
        target: the share of each member.
        regexes: what the patterns in use match.
        static_members: member id by instance id.
        holders: who holds a partition, until it is given up.
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
        """One that changes by itself."""
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
        """Kafka's name of where the group stands."""
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        if all(each.current.is_reconciled_to(self.assignment_epoch) for each in self.members.values()):
            return "Stable"
        return "Reconciling"

    def member(self, member_id: str) -> ConsumerMember:
        """A member by id.

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
        """The member that has this instance id."""
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def share_of(self, member_id: str) -> Share:
        """What the target assignment has for a member."""
        return self.target.get(member_id, NOTHING)

    def subscription_of(self, metadata: MemberMetadata) -> frozenset[str]:
        """The names of the topics that a member wants, those that its pattern matches among them."""
        resolved = self.regexes.get(metadata.topic_regex) if metadata.topic_regex else None
        return metadata.topic_names | resolved.topics if resolved else metadata.topic_names

    def subscribed_names(self) -> frozenset[str]:
        """The names of the topics that any member wants; known until a subscription changes."""
        if self._names is None:
            first, *others = self._subscriptions() or [NO_NAMES]
            self._names = first.union(*others) if others else first
        return self._names

    def _subscriptions(self) -> list[frozenset[str]]:
        """What the members want, the same names once."""
        wanted = (self.subscription_of(each.metadata) for each in self.members.values())
        return list({id(each): each for each in wanted}.values())

    def known_names(self, names: frozenset[str]) -> frozenset[str]:
        """The same names as another member has them, where one does: mostly all want the same."""
        known = (each.metadata.topic_names for each in self.members.values())
        return next((each for each in known if each == names), names)

    def regexes_in_use(self) -> set[str]:
        """The patterns of its members."""
        return {each.metadata.topic_regex for each in self.members.values() if each.metadata.topic_regex}

    def is_held(self, partition: TopicIdPartition) -> bool:
        """Whether a member holds a partition."""
        return partition in self.holders

    def apply(self, change: Change) -> None:
        """Takes in a record, be it new or read at the start."""
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
        """A tombstone of this comes before that of the member itself, and makes none."""
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
        """Everything that the log has of the group, unsaid."""
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
    """A group and what one request changes of it; the group itself stays as it is.

    Whoever asks writes ``changes`` to the log and then lets ``group`` take the group's place; where the log
    refuses, nothing has happened.

    Args:
        group: as it is.
    """

    def __init__(self, group: ConsumerGroup) -> None:
        self.group = group
        self.changes: list[Change] = []

    def change(self, *changes: Change) -> None:
        """Adds changes; ``group`` shows them at once."""
        if not self.changes:
            self.group = self.group.copy()
        for each in changes:
            self.group.apply(each)
        self.changes += changes


class TopicShape(NamedTuple):
    """What a group wants to know of a topic that it subscribes to."""

    topic_id: bytes
    partitions: int


class ResolvedRegex(NamedTuple):
    """The topics that a pattern matched.

    Attributes:
        topics: their names.
        timestamp_ms: when they were looked at, wall clock.
    """

    topics: frozenset[str]
    timestamp_ms: int


class GroupEpochChange(NamedTuple):
    """The group epoch moved; None: the group is gone."""

    epoch: int | None


class TopicsChange(NamedTuple):
    """The subscribed topics that are there, by name."""

    topics: Mapping[str, TopicShape] | None


class MetadataChange(NamedTuple):
    """What a member says of itself; None: it left."""

    member_id: str
    metadata: MemberMetadata | None


class TargetEpochChange(NamedTuple):
    """A target assignment was computed for this group epoch."""

    epoch: int | None


class TargetChange(NamedTuple):
    """The share of a member."""

    member_id: str
    share: Share | None


class CurrentChange(NamedTuple):
    """How far a member has come."""

    member_id: str
    current: CurrentAssignment | None


class RegexChange(NamedTuple):
    """What a pattern matches; None: nobody uses it any more."""

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
