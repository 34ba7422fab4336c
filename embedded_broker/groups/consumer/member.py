"""One member of a group: what it says of itself, and how far it has come towards its share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

import attrs

from splashdam.embedded_broker.groups.classic.members import AssignorProtocol
from splashdam.model.lifecycle import Stage

JOINING = 0
"""Member epoch of somebody who is not a member yet, or no longer."""
LEAVING = -1
"""Member epoch that ends a membership."""
LEAVING_FOR_A_WHILE = -2
"""Member epoch of a static member that is away: its share waits until its session ends."""


class TopicIdPartition(NamedTuple):
    """A partition by the id of its topic: one made anew under the name is another."""

    topic_id: bytes
    partition: int


Share: TypeAlias = frozenset[TopicIdPartition]
"""What the target assignment has for one member."""

Held: TypeAlias = Mapping[TopicIdPartition, int]
"""Partitions of a member, each with the member epoch in which it was assigned."""

NOTHING: Share = frozenset()


class MemberState(Stage):
    """How a member stands to its share; the numbers are those of the records."""

    STABLE = 0
    """It has its share, or a newer one was not looked at yet."""
    UNREVOKED_PARTITIONS = 1
    """It has to give partitions up, and has not said that it did."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that others have not given up."""
    UNKNOWN = 127
    """A record of a later Kafka has a state that this broker does not know."""


@attrs.frozen
class ClassicSide:
    """What is known of a member that speaks the classic protocol, in a group of the new one."""

    session_timeout_ms: int
    supported_protocols: tuple[AssignorProtocol, ...]


@attrs.frozen(kw_only=True)
class MemberMetadata:
    """What a member says of itself; heartbeats leave out what has not changed.

    Attributes:
        instance_id: of a static member, None for others.
        rack_id: where it is; kept and not looked at.
        client_id: of its client.
        client_host: the address of its client.
        rebalance_timeout_ms: how long it may take to give partitions up.
        topic_names: what it subscribes to by name.
        topic_regex: what it subscribes to by pattern; None or empty for none.
        server_assignor: the assignor it would like, None for the broker's choice.
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
    """How far a member has come.

    Attributes:
        state: how it stands to its share.
        member_epoch: what its next heartbeat has to name.
        previous_member_epoch: what it may name if the last answer got lost.
        assigned: what it may read.
        pending_revocation: what it has to give up, and may still be reading.
    """

    state: MemberState = MemberState.STABLE
    member_epoch: int = JOINING
    previous_member_epoch: int = JOINING
    assigned: Held = attrs.field(factory=dict)
    pending_revocation: Held = attrs.field(factory=dict)

    def holds(self) -> Held:
        """What nobody else may get: what it reads, and what it may still be reading."""
        return {**self.assigned, **self.pending_revocation} if self.pending_revocation else self.assigned

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """It has all of its share of this epoch and nothing else."""
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch


@attrs.frozen
class ConsumerMember:
    """A member as its group knows it."""

    member_id: str
    metadata: MemberMetadata = attrs.field(factory=MemberMetadata)
    current: CurrentAssignment = attrs.field(factory=CurrentAssignment)

    @property
    def is_classic(self) -> bool:
        """It speaks the classic protocol."""
        return self.metadata.classic is not None
