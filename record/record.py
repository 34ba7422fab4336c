"""One record as readers get it, and what a scan or a compaction tells of all records of a batch."""

from __future__ import annotations

from typing import NamedTuple


class Record(NamedTuple):
    """One record of a log.

    Attributes:
        offset: its place in the partition.
        timestamp_ms: milliseconds since the epoch: the producer's, or the broker's with LogAppendTime.
        key: None for a null key.
        value: None for a null value.
        headers: in order; keys may repeat, values may be None.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class RecordScan(NamedTuple):
    """What a scan found in records that are sound.

    Attributes:
        min_timestamp_ms: the smallest of the timestamps; with no record 2^63 - 1.
        max_timestamp_ms: the largest; with no record -2^63.
        null_keys: how many records have no key.
        misplaced: the first record whose offset delta is not its number in the batch, -1 for none.
        misplaced_delta: that record's offset delta.
        misplaced_position: where that delta stands.
    """

    min_timestamp_ms: int
    max_timestamp_ms: int
    null_keys: int
    misplaced: int
    misplaced_delta: int
    misplaced_position: int


class KeptRecords(NamedTuple):
    """What compaction leaves of the records of a batch.

    Attributes:
        record_count: how many.
        base_timestamp: what their timestamps are relative to.
        max_timestamp_ms: the largest of them, -1 with no record.
        gets_horizon: ``base_timestamp`` is a delete horizon, and was none before.
        records: encoded; None where all stay as they are.
    """

    record_count: int
    base_timestamp: int
    max_timestamp_ms: int
    gets_horizon: bool
    records: bytes | None
