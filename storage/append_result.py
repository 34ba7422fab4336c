"""What an append answers, and the states of a log."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class LogState(Enum):
    """Life of a log: open → failed → closed, or open → closed.

    Open allows everything, failed reads and ``close``, closed nothing but a second ``close``.
    """

    OPEN = "open"
    FAILED = "failed"  # a sync failed: what the disk has is unknown, so nothing more is promised
    CLOSED = "closed"


class AppendResult(NamedTuple):
    """Where a batch went.

    Attributes:
        base_offset: offset of its first record.
        last_offset: offset of its last record.
        log_append_time_ms: when it was written, -1 where the topic uses CreateTime; of a duplicate, as in
            Kafka, the newest timestamp of its records in either case.
        log_start_offset: first offset of the log.
        duplicate: nothing was written: the log has this batch of this producer already, at these offsets.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool
