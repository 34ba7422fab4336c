"""JoinGroup (key 11), versions 0 to 9: a member joins a classic group, or joins again in a rebalance."""

from __future__ import annotations

from splashdam.wire.fields import array, binary, boolean, int16, int32, string
from splashdam.wire.message import Request, Response, Struct


class JoinGroupRequestProtocol(Struct):
    """An assignor that the member supports, with its metadata for that assignor."""

    name: str = string()
    metadata: bytes = binary()


class JoinGroupRequest(Request["JoinGroupResponse"], key=11, versions="0-9", flexible="6+"):
    """An empty ``member_id`` requests a new one. Version 0 has no ``rebalance_timeout_ms``."""

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string("8+", nullable="8+", default=None, ignorable=True)


class JoinGroupResponseMember(Struct):
    """A member, for the leader, which computes the assignment."""

    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    metadata: bytes = binary()


class JoinGroupResponse(Response, key=11, versions="0-9", flexible="6+", throttles="3+"):
    """The leader's response lists all members; those of followers list none."""

    throttle_time_ms: int = int32("2+", ignorable=True)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean("9+")
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)
