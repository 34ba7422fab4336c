"""From a timestamp to a record, within one batch."""

from __future__ import annotations

from splashdam.model.values import Buffer
from splashdam.record.kernel.reading.walk import Walk, wrapped


def find_by_time(
    records: Buffer,
    record_count: int,
    *,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None,
    from_offset: int,
    timestamp_ms: int | None,
) -> tuple[int, int] | None:
    """Offset and timestamp of the first record that is at least so late, or None.

    The records behind it are not looked at, and of none more than where it lies and when it was written. The
    compiled twin lets other threads run meanwhile.

    Args:
        records: what follows the header of a batch, unpacked.
        record_count: as the header says; likewise ``base_offset`` and ``base_timestamp``.
        base_offset: that of the first record.
        base_timestamp: the timestamps are relative to it.
        append_time: what all records count as written at instead.
        from_offset: records before it are passed over.
        timestamp_ms: the earliest wanted; None: the largest of all, and the first record that has it.

    Raises:
        DamagedError: the bytes are not so many records, as far as they were looked at.
    """
    walk = Walk(records, record_count)
    wanted, found = timestamp_ms, None
    while walk.number < record_count:
        walk.begin()
        offset = walk.offset(base_offset)
        walk.pass_over()
        timestamp = wrapped(base_timestamp + walk.timestamp_delta) if append_time is None else append_time
        if offset < from_offset or (wanted is not None and timestamp < wanted):
            continue
        if found is not None and timestamp == found[1]:
            continue
        found = offset, timestamp
        if timestamp_ms is not None:
            break
        wanted = timestamp
    return found
