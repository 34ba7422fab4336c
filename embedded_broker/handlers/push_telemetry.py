"""PushTelemetry 0: store a client's metrics; see ``telemetry/client_metrics.py``."""

from __future__ import annotations

import logging
import uuid

from splashdam.embedded_broker.execution.turns import Steps
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.embedded_broker.telemetry.client_metrics import Push
from splashdam.model.broker_errors import BrokerResponseError
from splashdam.model.log_text import quoted
from splashdam.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

_log = logging.getLogger(__name__)


@handles(PushTelemetryRequest, versions=range(1))
def push_telemetry(request: PushTelemetryRequest, context: RequestContext) -> Steps[PushTelemetryResponse]:
    """Store the metrics, or refuse the push."""
    broker = context.broker
    push = Push(
        client_instance_id=uuid.UUID(bytes=bytes(request.client_instance_id)),
        client_id=context.client_id or "",
        terminating=request.terminating,
        wall_ms=broker.clock.wall_ms(),
        metrics=b"",
    )
    try:
        yield from broker.telemetry.pushed(
            push,
            bytes(request.metrics),
            request.compression_type,
            request.subscription_id,
            broker.clock.now_ms(),
        )
    except BrokerResponseError as error:
        _log.debug("a push of metrics by %s was refused: %s", quoted(push.client_id), error.message)
        return PushTelemetryResponse(error_code=error.code)
    _log.debug("%s (%s) pushed metrics", quoted(push.client_id), push.client_instance_id)
    return PushTelemetryResponse()
