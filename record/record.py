"""A decoded record, and the results of scanning and compacting the records of a batch."""

from __future__ import annotations

from typing import NamedTuple


class Record(NamedTuple):
    """A record of a log.

    Attributes:
        offset: offset in the partition.
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
    """The result of scanning records without damage.

    Attributes:
        min_timestamp_ms: smallest timestamp; 2^63 - 1 without records.
        max_timestamp_ms: largest timestamp; -2^63 without records.
        null_keys: number of records without a key.
        misplaced: number of the first record whose offset delta is not its number in the batch, -1 for none.
        misplaced_delta: that record's offset delta.
        misplaced_position: position of that delta.
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
        record_count: number of records left.
        base_timestamp: base of their timestamps.
        max_timestamp_ms: largest timestamp, -1 without records.
        gets_horizon: whether ``base_timestamp`` has become a delete horizon.
        records: encoded; None if all records stay unchanged.
    """

    record_count: int
    base_timestamp: int
    max_timestamp_ms: int
    gets_horizon: bool
    records: bytes | None
