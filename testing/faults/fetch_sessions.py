"""Faults and fetch sessions (KIP-227): a request of a session does not name the partitions it is about.

While a fault waits for certain partitions, or is to be told of each, sessions therefore end: the client is
told that its session is not known, asks for everything, which it names then, and is given no new session.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from splashdam.model.error_codes import ErrorCode
from splashdam.testing.faults.fault import Fault
from splashdam.wire.message import Response
from splashdam.wire.messages.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from splashdam.embedded_broker.serving.interception import Arrived


def ends_session(arrived: Arrived, faults: Iterable[Fault]) -> bool:
    """Whether a fault waits for what this client fetches, so that it may have no session."""
    context = arrived.context
    return isinstance(arrived.request, FetchRequest) and any(
        (fault.which.is_about_places or fault.action.error is not None)
        and fault.which.admits("fetch", context.client_id, context.broker.node_id)
        and fault.concerns(arrived)
        for fault in faults
    )


def refused(arrived: Arrived) -> FetchResponse | None:
    """What a request is answered that does not name all it is about; None: it does."""
    request = arrived.request
    if isinstance(request, FetchRequest) and request.session_id and request.session_epoch > 0:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    return None


def without_session(answer: Response | None) -> None:
    """Gives the client no session."""
    if isinstance(answer, FetchResponse):
        answer.session_id = 0
