"""PushTelemetry (key 72), version 0: a client's metrics, as an OpenTelemetry message (KIP-714)."""

from __future__ import annotations

from splashdam.wire.fields import binary, boolean, int8, int16, int32, uuid
from splashdam.wire.message import Request, Response


class PushTelemetryRequest(Request["PushTelemetryResponse"], key=72, versions="0", flexible="0+"):
    """``metrics`` is compressed with the codec number ``compression_type``."""

    client_instance_id: bytes = uuid()
    subscription_id: int = int32()
    terminating: bool = boolean()
    compression_type: int = int8()
    metrics: bytes = binary()


class PushTelemetryResponse(Response, key=72, versions="0", flexible="0+"):
    """Error code 0: the broker has accepted the metrics."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
