"""A member of a consumer group: its metadata, and its current assignment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

import attrs

from splashdam.embedded_broker.groups.classic.members import AssignorProtocol
from splashdam.model.lifecycle import Stage

JOINING = 0
"""Member epoch of a heartbeat that joins, or joins again after being fenced."""
LEAVING = -1
"""Member epoch of a heartbeat that leaves the group."""
LEAVING_FOR_A_WHILE = -2
"""Member epoch of a static member that leaves for now: its assignment is kept until its session times out."""


class TopicIdPartition(NamedTuple):
    """A partition by topic id: a topic that was created anew under the same name is another topic."""

    topic_id: bytes
    partition: int


Share: TypeAlias = frozenset[TopicIdPartition]
"""The target assignment of one member."""

Held: TypeAlias = Mapping[TopicIdPartition, int]
"""Partitions of a member, each with the member epoch in which it was assigned (KIP-1251)."""

NOTHING: Share = frozenset()


class MemberState(Stage):
    """Reconciliation state of a member; the numbers are those of the records."""

    STABLE = 0
    """It has its target assignment, or has not sent a heartbeat since a new one."""
    UNREVOKED_PARTITIONS = 1
    """It has to revoke partitions, and has not confirmed that."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that other members have not revoked yet."""
    UNKNOWN = 127
    """A record of a later Kafka has a state that this broker does not know."""


@attrs.frozen
class ClassicSide:
    """The classic protocol's data of a member that still speaks it in a consumer group."""

    session_timeout_ms: int
    supported_protocols: tuple[AssignorProtocol, ...]


@attrs.frozen(kw_only=True)
class MemberMetadata:
    """A member's own data; heartbeats leave out what has not changed.

    Attributes:
        instance_id: of a static member, None for others.
        rack_id: stored, and not used for assignments.
        client_id: of its client.
        client_host: address of its client.
        rebalance_timeout_ms: how long it may take to revoke partitions.
        topic_names: topics that it subscribes to by name.
        topic_regex: the pattern that it subscribes to; None or empty for none.
        server_assignor: the assignor that it prefers, None for the broker's choice.
        classic: for a member that speaks the classic protocol.
    """

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = None
    server_assignor: str | None = None
    classic: ClassicSide | None = None


@attrs.frozen(kw_only=True)
class CurrentAssignment:
    """A member's current assignment and epoch.

    Attributes:
        state: of the reconciliation with the target assignment.
        member_epoch: the epoch that its next heartbeat has to name.
        previous_member_epoch: the epoch that it may name instead if the last answer got lost.
        assigned: partitions that it may read.
        pending_revocation: partitions that it has to revoke, and may still be reading.
    """

    state: MemberState = MemberState.STABLE
    member_epoch: int = JOINING
    previous_member_epoch: int = JOINING
    assigned: Held = attrs.field(factory=dict)
    pending_revocation: Held = attrs.field(factory=dict)

    def holds(self) -> Held:
        """Return all partitions that no other member may get: assigned ones and those pending revocation."""
        return {**self.assigned, **self.pending_revocation} if self.pending_revocation else self.assigned

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether it has exactly its target assignment of this epoch."""
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch


@attrs.frozen
class ConsumerMember:
    """A member as its group knows it."""

    member_id: str
    metadata: MemberMetadata = attrs.field(factory=MemberMetadata)
    current: CurrentAssignment = attrs.field(factory=CurrentAssignment)

    @property
    def is_classic(self) -> bool:
        """Whether it speaks the classic protocol."""
        return self.metadata.classic is not None
