"""EndTxn (key 26), versions 0 to 5: commits or aborts a transaction.

From version 5 (KIP-890) on the response contains producer id and epoch for the next transaction.
"""

from __future__ import annotations

from splashdam.wire.fields import boolean, int16, int32, int64, string
from splashdam.wire.message import Request, Response


class EndTxnRequest(Request["EndTxnResponse"], key=26, versions="0-5", flexible="3+"):
    """``committed`` is False for an abort."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


class EndTxnResponse(Response, key=26, versions="0-5", flexible="3+", throttles="1+"):
    """Sent when the decision is durable; the markers may be written later."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64("5+", default=-1, ignorable=True)
    producer_epoch: int = int16("5+", default=-1, ignorable=True)
