"""DeleteGroups (key 42), versions 0 to 3: deletes groups without members."""

from __future__ import annotations

from splashdam.wire.fields import array, int16, int32, string
from splashdam.wire.message import Request, Response, Struct


class DeleteGroupsRequest(Request["DeleteGroupsResponse"], key=42, versions="0-3", flexible="2+"):
    groups_names: list[str] = array("string")


class DeletableGroupResult(Struct):
    """Error code 0: the group is deleted."""

    group_id: str = string()
    error_code: int = int16()
    error_message: str | None = string("3+", nullable="3+", default=None, ignorable=True)


class DeleteGroupsResponse(Response, key=42, versions="0-3", flexible="2+", throttles="1+"):
    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
