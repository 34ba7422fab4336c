"""The members of a classic group: static ones, ids given out, common assignors, the leader, waiting ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

import attrs

from splashdam.model.broker_errors import ErrorCode, error_for
from splashdam.model.log_text import quoted
from splashdam.wire.primitives import MAX_STRING_BYTES


class AssignorProtocol(NamedTuple):
    """An assignor that a member supports, and its metadata for it: mostly its subscription."""

    name: str
    metadata: bytes


@attrs.define
class ClassicMember:
    """One member.

    Attributes:
        member_id: assigned by the coordinator.
        instance_id: of a static member (KIP-345), which keeps its assignment while it is away.
        client_id: from the request header.
        client_host: address of the client, as Kafka writes it: ``/127.0.0.1``.
        rebalance_timeout_ms: how long a rebalance waits for it to join.
        session_timeout_ms: without a heartbeat for so long it is removed.
        protocols: the assignors that it supports, in the order of preference.
        assignment: from the leader.
        is_new: its first JoinGroup is not answered yet, so it cannot send heartbeats.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[AssignorProtocol, ...]
    assignment: bytes = b""
    is_new: bool = False

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return its metadata for this assignor."""
        return next((each.metadata for each in self.protocols if each.name == protocol_name), b"")


class JoinRequest(NamedTuple):
    """A JoinGroup of any version.

    Attributes:
        member_id: empty for a new member.
        instance_id: of a static member.
        client_id: see `ClassicMember`.
        client_host: see `ClassicMember`.
        rebalance_timeout_ms: see `ClassicMember`.
        session_timeout_ms: see `ClassicMember`.
        protocol_type: ``consumer``, ``connect``, ….
        protocols: the assignors that it supports.
        asks_for_id: the client joins again with the id of a MEMBER_ID_REQUIRED answer (version 4 and later).
        may_skip_assignment: the client understands ``skip_assignment`` (version 9).
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: tuple[AssignorProtocol, ...]
    asks_for_id: bool = True
    may_skip_assignment: bool = True

    def new_member_id(self, uuid: str) -> str:
        """Return a new member id, as Kafka makes them: the name of the instance or client, and a UUID.

        The name is cut if the id would exceed the longest string of the protocol.
        """
        name = self.client_id if self.instance_id is None else self.instance_id
        room = MAX_STRING_BYTES - len(uuid) - 1
        return f"{name.encode()[:room].decode(errors='ignore')}-{uuid}"


class JoinResult(NamedTuple):
    """The answer to a JoinGroup; only the leader's has ``members``."""

    error_code: int
    member_id: str
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    members: tuple[ClassicMember, ...] = ()
    skip_assignment: bool = False


class SyncResult(NamedTuple):
    """The answer to a SyncGroup."""

    error_code: int
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


JoinReply: TypeAlias = Callable[[JoinResult], None]
SyncReply: TypeAlias = Callable[[SyncResult], None]


class GroupMembers:
    """The members of a group, and their requests that wait for an answer.

    Attributes:
        by_id: the members by member id, in the order in which they joined.
        pending: ids that were handed out with MEMBER_ID_REQUIRED and have not joined yet.
        pending_syncs: members of the generation that have not sent SyncGroup yet.
        joins: waiting JoinGroup requests, by member id.
        syncs: waiting SyncGroup requests, by member id.
        leader: member id of the leader, which assigns.
    """

    def __init__(self, members: Iterable[ClassicMember] = (), leader: str | None = None) -> None:
        self.by_id: dict[str, ClassicMember] = {}
        self.pending: set[str] = set()
        self.pending_syncs: set[str] = set()
        self.joins: dict[str, JoinReply] = {}
        self.syncs: dict[str, SyncReply] = {}
        self.leader = leader
        self._static: dict[str, str] = {}
        self._support: Counter[str] = Counter()
        for member in members:
            self.add(member)

    def __len__(self) -> int:
        return len(self.by_id)

    @property
    def has_all_joined(self) -> bool:
        """Whether every member has sent JoinGroup, and no handed-out id is pending."""
        return len(self.by_id) == len(self.joins) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of the members: so long a rebalance waits."""
        return max((each.rebalance_timeout_ms for each in self.by_id.values()), default=0)

    def static_id(self, instance_id: str) -> str | None:
        """Return the member id of a static member, None if the group has no such member."""
        return self._static.get(instance_id)

    def validate(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """Return the member that sent a request.

        Raises:
            BrokerResponseError: UNKNOWN_MEMBER_ID (25), or FENCED_INSTANCE_ID (82): another client uses the
                instance id now.
        """
        if instance_id is not None:
            current = self._static.get(instance_id)
            if current is not None and current != member_id:
                raise error_for(
                    ErrorCode.FENCED_INSTANCE_ID,
                    f"instance {quoted(instance_id)} is member {quoted(current)} now",
                )
            if current is None:
                raise error_for(
                    ErrorCode.UNKNOWN_MEMBER_ID, f"the group has no instance {quoted(instance_id)}"
                )
        member = self.by_id.get(member_id)
        if member is None:
            raise error_for(ErrorCode.UNKNOWN_MEMBER_ID, f"the group has no member {quoted(member_id)}")
        return member

    # --- adding and removing --------------------------------------------------------------------------------

    def add(self, member: ClassicMember) -> None:
        """Add a member; the first one becomes leader."""
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        self.leader = self.leader or member.member_id
        self.by_id[member.member_id] = member
        self._count(member, 1)
        self.pending.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending id; if it was the leader, another member becomes leader."""
        member = self.by_id.pop(member_id, None)
        if member is not None:
            self._count(member, -1)
            if member.instance_id is not None:
                del self._static[member.instance_id]
            self._answer_both(member_id, ErrorCode.UNKNOWN_MEMBER_ID, "")
        if self.leader == member_id:
            self.leader = next(iter(self.by_id), None)
        self.pending.discard(member_id)
        self.pending_syncs.discard(member_id)

    def replace(self, old_id: str, new_id: str) -> ClassicMember:
        """Give a static member a new id; requests that wait with the old id are fenced (82)."""
        old = self.by_id.pop(old_id)
        assert old.instance_id is not None
        self._answer_both(old_id, ErrorCode.FENCED_INSTANCE_ID, old_id)
        member = self.by_id[new_id] = attrs.evolve(old, member_id=new_id, is_new=False)
        self._static[old.instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        if old_id in self.pending_syncs:
            self.pending_syncs.discard(old_id)
            self.pending_syncs.add(new_id)
        return member

    def update(
        self,
        member: ClassicMember,
        protocols: tuple[AssignorProtocol, ...],
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        """Update a member by its new JoinGroup."""
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    # --- waiting requests -----------------------------------------------------------------------------------

    def wait_join(self, member_id: str, reply: JoinReply) -> None:
        """Let a JoinGroup wait; an earlier one of the same member is answered with REBALANCE_IN_PROGRESS."""
        self.answer_join(member_id, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member_id))
        self.joins[member_id] = reply

    def wait_sync(self, member_id: str, reply: SyncReply) -> None:
        """Let a SyncGroup wait, likewise."""
        self.answer_sync(member_id, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        self.syncs[member_id] = reply

    def answer_join(self, member_id: str, result: JoinResult) -> None:
        """Answer the member's waiting JoinGroup, if there is one."""
        reply = self.joins.pop(member_id, None)
        if reply is not None:
            reply(result)

    def answer_sync(self, member_id: str, result: SyncResult) -> bool:
        """Answer the member's waiting SyncGroup; return whether there was one."""
        reply = self.syncs.pop(member_id, None)
        if reply is not None:
            reply(result)
        return reply is not None

    def _answer_both(self, member_id: str, code: ErrorCode, told_id: str) -> None:
        self.answer_join(member_id, JoinResult(code, told_id))
        self.answer_sync(member_id, SyncResult(code))

    # --- assignor and leader --------------------------------------------------------------------------------

    def is_supported(self, names: Iterable[str]) -> bool:
        """Whether every member supports one of these assignors."""
        return any(self._support[name] == len(self.by_id) for name in names)

    def selected_protocol(self) -> str:
        """Return the assignor that most members prefer, of those that all support."""
        common = {name for name, count in self._support.items() if count == len(self.by_id)}
        votes = Counter(
            next(each.name for each in member.protocols if each.name in common)
            for member in self.by_id.values()
        )
        return max(votes, key=votes.__getitem__)

    def elect(self) -> bool:
        """Elect a leader among those who joined, the present one if possible; return whether there is one."""
        if self.leader is None:
            return False
        if self.leader not in self.joins:
            joined = next((each for each in self.by_id if each in self.joins), None)
            if joined is None:
                return False
            self.leader = joined
        return True

    def _count(self, member: ClassicMember, change: int) -> None:
        for name in {each.name for each in member.protocols}:
            self._support[name] += change
            if not self._support[name]:
                del self._support[name]
