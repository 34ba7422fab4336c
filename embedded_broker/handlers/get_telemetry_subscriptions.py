"""GetTelemetrySubscriptions 0: the metrics this broker wants; see ``telemetry/client_metrics.py``."""

from __future__ import annotations

from splashdam.embedded_broker.execution.turns import Steps
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.model.broker_errors import BrokerResponseError
from splashdam.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)


@handles(GetTelemetrySubscriptionsRequest, versions=range(1))
def get_telemetry_subscriptions(
    request: GetTelemetrySubscriptionsRequest, context: RequestContext
) -> Steps[GetTelemetrySubscriptionsResponse]:
    """Answer with the subscription; a client without an instance id gets one."""
    broker = context.broker
    telemetry = broker.telemetry
    try:
        instance_id, subscription_id, wanted = yield from telemetry.asked(
            request.client_instance_id, context.client_id or "", broker.clock.now_ms()
        )
    except BrokerResponseError as error:
        return GetTelemetrySubscriptionsResponse(error_code=error.code)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=subscription_id,
        accepted_compression_types=telemetry.codecs,
        push_interval_ms=wanted.interval_ms,
        telemetry_max_bytes=telemetry.max_bytes,
        delta_temporality=True,
        requested_metrics=list(wanted.metrics),
    )
