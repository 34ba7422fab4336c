"""One record, and what the application was told of it."""

from __future__ import annotations

import attrs

from splashdam.client.future import RecordFuture
from splashdam.model.values import RecordMetadata


@attrs.define(eq=False)
class SentRecord:
    """One record for which there is a future.

    Attributes:
        value: unique in the run.
        topic: where it was sent.
        future: as ``send`` returned it.
        is_chained: a callback has sent it.
        metadata: of its delivery, None where it failed.
        error: why it failed.
        told: how many times the application was told.
    """

    value: bytes
    topic: str
    future: RecordFuture
    is_chained: bool = False
    metadata: RecordMetadata | None = None
    error: BaseException | None = None
    told: int = 0
