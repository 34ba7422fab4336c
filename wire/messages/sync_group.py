"""SyncGroup (key 14), versions 0 to 5: the leader sends the assignment, and each member receives its part."""

from __future__ import annotations

from splashdam.wire.fields import array, binary, int16, int32, string
from splashdam.wire.message import Request, Response, Struct


class SyncGroupRequestAssignment(Struct):
    """The assignment of one member."""

    member_id: str = string()
    assignment: bytes = binary()


class SyncGroupRequest(Request["SyncGroupResponse"], key=14, versions="0-5", flexible="4+"):
    """Only the leader sends ``assignments``."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class SyncGroupResponse(Response, key=14, versions="0-5", flexible="4+", throttles="2+"):
    """The assignment of this member."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignment: bytes = binary()
