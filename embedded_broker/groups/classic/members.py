"""The members of a classic group: static ones, ids given out, common assignors, the leader, who waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

import attrs

from splashdam.model.broker_errors import ErrorCode, error_for
from splashdam.model.log_text import quoted
from splashdam.wire.primitives import MAX_STRING_BYTES


class AssignorProtocol(NamedTuple):
    """An assignor that a member knows, and what it says to whoever assigns: its subscription mostly."""

    name: str
    metadata: bytes


@attrs.define
class ClassicMember:
    """One member.

    Attributes:
        member_id: as the coordinator made it.
        instance_id: of a static member, which keeps its place while it is away.
        client_id: as the client calls itself.
        client_host: where it came from, as Kafka writes it: ``/127.0.0.1``.
        rebalance_timeout_ms: for how long a rebalance waits for it to join.
        session_timeout_ms: after so long without a heartbeat it is out.
        protocols: what it can be assigned by, what it likes best first.
        assignment: what the leader gave it.
        is_new: it has not heard its id yet, so sends no heartbeats.
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
        """What it says for this assignor."""
        return next((each.metadata for each in self.protocols if each.name == protocol_name), b"")


class JoinRequest(NamedTuple):
    """A JoinGroup of some version.

    Attributes:
        member_id: empty for who has none yet.
        instance_id: of a static member.
        client_id: as the client calls itself.
        client_host: where it came from.
        rebalance_timeout_ms: see `ClassicMember`.
        session_timeout_ms: likewise.
        protocol_type: ``consumer``, ``connect``, ….
        protocols: what it can be assigned by.
        asks_for_id: it knows to come again with the id it is given (version 4 and later).
        may_skip_assignment: as a leader it can be told not to assign (version 9).
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
        """An id that tells whose it is, as in Kafka: the name of the instance or of the client, and a UUID.

        A name may be as long as a string of the protocol, and the id has to be one: the name is cut.
        """
        name = self.client_id if self.instance_id is None else self.instance_id
        room = MAX_STRING_BYTES - len(uuid) - 1
        return f"{name.encode()[:room].decode(errors='ignore')}-{uuid}"


class JoinResult(NamedTuple):
    """The answer to a JoinGroup; ``members`` is empty but for the leader's."""

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


class Roster:
    """The members of a group; who waits for an answer is told when the member goes.

    Attributes:
        members: by id, in the order in which they came.
        pending: ids that were given to clients which have to join with them yet.
        pending_syncs: members that have to ask for their assignment yet.
        joins: who waits for the answer to JoinGroup.
        syncs: who waits for the answer to SyncGroup.
        leader: the id of the member that assigns.
    """

    def __init__(self, members: Iterable[ClassicMember] = (), leader: str | None = None) -> None:
        self.members: dict[str, ClassicMember] = {}
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
        return len(self.members)

    @property
    def has_all_joined(self) -> bool:
        """Nobody is waited for any more."""
        return len(self.members) == len(self.joins) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """For how long a rebalance waits: for the most patient member."""
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0)

    def static_id(self, instance_id: str) -> str | None:
        """The member id of a static member."""
        return self._static.get(instance_id)

    def validate(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """The member that a request says it comes from.

        Raises:
            BrokerResponseError: UNKNOWN_MEMBER_ID (25), or FENCED_INSTANCE_ID (82): another client took the
                instance's place.
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
        member = self.members.get(member_id)
        if member is None:
            raise error_for(ErrorCode.UNKNOWN_MEMBER_ID, f"the group has no member {quoted(member_id)}")
        return member

    # --- coming and going -----------------------------------------------------------------------------------

    def add(self, member: ClassicMember) -> None:
        """A member comes in; the first one leads."""
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        self.leader = self.leader or member.member_id
        self.members[member.member_id] = member
        self._count(member, 1)
        self.pending.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """A member, or an id that was given out, is no more; where it led, somebody else does."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member, -1)
            if member.instance_id is not None:
                del self._static[member.instance_id]
            self._answer_both(member_id, ErrorCode.UNKNOWN_MEMBER_ID, "")
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending.discard(member_id)
        self.pending_syncs.discard(member_id)

    def replace(self, old_id: str, new_id: str) -> ClassicMember:
        """A static member comes back under a new id; whoever waits with the old one is fenced (82)."""
        old = self.members.pop(old_id)
        assert old.instance_id is not None
        self._answer_both(old_id, ErrorCode.FENCED_INSTANCE_ID, old_id)
        member = self.members[new_id] = attrs.evolve(old, member_id=new_id, is_new=False)
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
        """A member says something else than before."""
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    # --- answers that wait ----------------------------------------------------------------------------------

    def wait_join(self, member_id: str, reply: JoinReply) -> None:
        """Keeps a JoinGroup; one that the same member sent before is answered: it asked twice."""
        self.answer_join(member_id, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member_id))
        self.joins[member_id] = reply

    def wait_sync(self, member_id: str, reply: SyncReply) -> None:
        """Keeps a SyncGroup, likewise."""
        self.answer_sync(member_id, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        self.syncs[member_id] = reply

    def answer_join(self, member_id: str, result: JoinResult) -> None:
        """Answers a JoinGroup that waits, if one does."""
        reply = self.joins.pop(member_id, None)
        if reply is not None:
            reply(result)

    def answer_sync(self, member_id: str, result: SyncResult) -> bool:
        """Answers a SyncGroup that waits; whether one did."""
        reply = self.syncs.pop(member_id, None)
        if reply is not None:
            reply(result)
        return reply is not None

    def _answer_both(self, member_id: str, code: ErrorCode, told_id: str) -> None:
        self.answer_join(member_id, JoinResult(code, told_id))
        self.answer_sync(member_id, SyncResult(code))

    # --- what all agree on ----------------------------------------------------------------------------------

    def is_supported(self, names: Iterable[str]) -> bool:
        """Whether one of these assignors is known to every member."""
        return any(self._support[name] == len(self.members) for name in names)

    def selected_protocol(self) -> str:
        """The assignor that most members like best, of those that all know."""
        common = {name for name, count in self._support.items() if count == len(self.members)}
        votes = Counter(
            next(each.name for each in member.protocols if each.name in common)
            for member in self.members.values()
        )
        return max(votes, key=votes.__getitem__)

    def elect(self) -> bool:
        """Somebody who has joined leads: the leader of before if it has; whether there is anybody."""
        if self.leader is None:
            return False
        if self.leader not in self.joins:
            joined = next((each for each in self.members if each in self.joins), None)
            if joined is None:
                return False
            self.leader = joined
        return True

    def _count(self, member: ClassicMember, change: int) -> None:
        for name in {each.name for each in member.protocols}:
            self._support[name] += change
            if not self._support[name]:
                del self._support[name]
