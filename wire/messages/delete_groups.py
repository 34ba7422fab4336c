"""DeleteGroups (key 42), versions 0 to 3: deletes groups without members."""

from __future__ import annotations

from splashdam.wire.fields import array, int16, int32, string
from splashdam.wire.message import Request, Response, Struct


class DeleteGroupsRequest(Request["DeleteGroupsResponse"], key=42, versions="0-3", flexible="2+"):
    """Groups by id."""

    groups_names: list[str] = array("string")


class DeletableGroupResult(Struct):
    """Whether it is gone."""

    group_id: str = string()
    error_code: int = int16()
    error_message: str | None = string("3+", nullable="3+", default=None, ignorable=True)


class DeleteGroupsResponse(Response, key=42, versions="0-3", flexible="2+", throttles="1+"):
    """One answer per group."""

    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
