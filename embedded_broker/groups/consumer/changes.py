"""What can happen to a group: each a record of ``__consumer_offsets``, None standing for its tombstone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from splashdam.embedded_broker.groups.consumer.member import CurrentAssignment, MemberMetadata, Share


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
