"""InitProducerId (key 22), versions 0 to 5: assigns producer id and epoch, for idempotence and transactions.

Version 6 (two-phase commit, KIP-939) is not declared: its schema may still change.
"""

from __future__ import annotations

from splashdam.wire.fields import int16, int32, int64, string
from splashdam.wire.message import Request, Response


class InitProducerIdRequest(Request["InitProducerIdResponse"], key=22, versions="0-5", flexible="2+"):
    """``transactional_id=None`` is for idempotence alone. A known id and epoch request the next epoch."""

    transactional_id: str | None = string(nullable="0+")
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)


class InitProducerIdResponse(Response, key=22, versions="0-5", flexible="2+", throttles="1+"):
    throttle_time_ms: int = int32(ignorable=True)
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
