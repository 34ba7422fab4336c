"""SaslHandshake 0–1: choose the mechanism; 34 on listeners without SASL."""

from __future__ import annotations

from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.model.broker_errors import ErrorCode
from splashdam.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


@handles(SaslHandshakeRequest, versions=range(2))
def sasl_handshake(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    """Begin an exchange in the connection's SASL session."""
    if context.session is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    return context.session.choose(request.mechanism, context.version)
