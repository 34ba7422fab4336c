"""Heartbeat (key 12), versions 0 to 4: keeps a member in its classic group."""

from __future__ import annotations

from splashdam.wire.fields import int16, int32, string
from splashdam.wire.message import Request, Response


class HeartbeatRequest(Request["HeartbeatResponse"], key=12, versions="0-4", flexible="4+"):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


class HeartbeatResponse(Response, key=12, versions="0-4", flexible="4+", throttles="2+"):
    """Error 27 (REBALANCE_IN_PROGRESS) tells the member to join again."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
