"""FindCoordinator (key 10), versions 0 to 6: the coordinator of a group or of a transactional id."""

from __future__ import annotations

from splashdam.wire.fields import array, int8, int16, int32, string
from splashdam.wire.message import Request, Response, Struct


class FindCoordinatorRequest(Request["FindCoordinatorResponse"], key=10, versions="0-6", flexible="3+"):
    """``key_type``: 0 group, 1 transactional id, 2 share group. One ``key`` up to version 3, then a list."""

    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: list[str] = array("string", "4+")


class Coordinator(Struct):
    """The coordinator of one key; ``node_id`` is -1 on error."""

    key: str = string("4+")
    node_id: int = int32("4+")
    host: str = string("4+")
    port: int = int32("4+")
    error_code: int = int16("4+")
    error_message: str | None = string("4+", nullable="4+", ignorable=True)


class FindCoordinatorResponse(Response, key=10, versions="0-6", flexible="3+", throttles="2+"):
    """Up to version 3 one coordinator in the response's own fields, from version 4 on a list."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="1-3", ignorable=True)
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")
