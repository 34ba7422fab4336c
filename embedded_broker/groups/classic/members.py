"""The members of a classic group, and what they are asked and answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import attrs

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
