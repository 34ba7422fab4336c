"""DescribeGroups (key 15), versions 0 to 6: state and members of classic groups."""

from __future__ import annotations

from splashdam.wire.fields import array, binary, boolean, int16, int32, string
from splashdam.wire.message import Request, Response, Struct


class DescribeGroupsRequest(Request["DescribeGroupsResponse"], key=15, versions="0-6", flexible="5+"):
    groups: list[str] = array("string")
    include_authorized_operations: bool = boolean("3+")


class DescribedGroupMember(Struct):
    """One member; metadata and assignment are in the format of the group's protocol type."""

    member_id: str = string()
    group_instance_id: str | None = string("4+", nullable="4+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = binary()
    member_assignment: bytes = binary()


class DescribedGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string("6+", nullable="6+", default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32("3+", default=-2147483648)


class DescribeGroupsResponse(Response, key=15, versions="0-6", flexible="5+", throttles="2+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup)
