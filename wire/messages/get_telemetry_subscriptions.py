"""GetTelemetrySubscriptions (key 71), version 0: the metrics that a broker subscribes to (KIP-714)."""

from __future__ import annotations

from splashdam.wire.fields import array, boolean, int16, int32, uuid
from splashdam.wire.message import Request, Response


class GetTelemetrySubscriptionsRequest(
    Request["GetTelemetrySubscriptionsResponse"], key=71, versions="0", flexible="0+"
):
    """A ``client_instance_id`` of zeros requests a new id."""

    client_instance_id: bytes = uuid()


class GetTelemetrySubscriptionsResponse(Response, key=71, versions="0", flexible="0+"):
    """An empty ``requested_metrics`` means that nothing is to be pushed."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    client_instance_id: bytes = uuid()
    subscription_id: int = int32()
    accepted_compression_types: list[int] = array("int8")
    push_interval_ms: int = int32()
    telemetry_max_bytes: int = int32()
    delta_temporality: bool = boolean()
    requested_metrics: list[str] = array("string")
