"""AddOffsetsToTxn (key 25), versions 0 to 4: adds a group to a transaction that commits its offsets."""

from __future__ import annotations

from splashdam.wire.fields import int16, int32, int64, string
from splashdam.wire.message import Request, Response


class AddOffsetsToTxnRequest(Request["AddOffsetsToTxnResponse"], key=25, versions="0-4", flexible="3+"):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


class AddOffsetsToTxnResponse(Response, key=25, versions="0-4", flexible="3+", throttles="1+"):
    """``error_code`` 0: the group's partition of ``__consumer_offsets`` is in the transaction."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
