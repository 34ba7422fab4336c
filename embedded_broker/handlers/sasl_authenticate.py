"""SaslAuthenticate 0–2: one token of an exchange; 34 on listeners without SASL."""

from __future__ import annotations

from functools import partial

from splashdam.embedded_broker.execution.answers import Parked
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.model.broker_errors import ErrorCode
from splashdam.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


@handles(SaslAuthenticateRequest, versions=range(3))
def sasl_authenticate(
    request: SaslAuthenticateRequest, context: RequestContext
) -> SaslAuthenticateResponse | Parked:
    """Answer with the next token of the connection's SASL session."""
    session, message = context.session, bytes(request.auth_bytes)
    if session is None:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received after successful authentication",
        )
    if session.takes_long:
        return Parked(partial(session.authenticate_beside, message))
    return session.authenticate(message)
