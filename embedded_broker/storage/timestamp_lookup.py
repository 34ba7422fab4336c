"""From a timestamp to an offset, over the time indexes and, within one batch, over its records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from splashdam.embedded_broker.storage.scan import Head
from splashdam.embedded_broker.storage.segment import LogSegment
from splashdam.embedded_broker.storage.segment_list import SegmentList
from splashdam.model.broker_errors import CorruptMessageError, UnsupportedCompressionTypeError
from splashdam.model.errors import UnsupportedCodecError
from splashdam.record.columns import ColumnsBuilder


class TimestampOffset(NamedTuple):
    """An answer: offset and timestamp of a record, -1 where there is none, and the epoch that wrote it."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class FoundRecord(NamedTuple):
    """A record as far as a look-up by timestamp is about it."""

    offset: int
    timestamp_ms: int


def find_timestamp(
    segments: SegmentList, timestamp_ms: int | None, from_offset: int, up_to: int
) -> FoundRecord | None:
    """The first record in [``from_offset``, ``up_to``) that is at least as late as ``timestamp_ms``.

    With None, the first record that has the largest timestamp of all. A batch whose records cannot be read
    counts as one record, with its first offset and its header's largest timestamp.

    Raises:
        UnsupportedCompressionTypeError: the library of a batch's codec is not installed.
        KafkaStorageError: the log cannot be read.
    """
    if timestamp_ms is None:
        timestamp_ms = max(_largest(segment, from_offset) for segment in segments.walk_from(from_offset))
        if timestamp_ms < 0:
            return None
    for segment in segments.walk_from(from_offset):
        if segment.max_timestamp >= timestamp_ms:
            for head in segment.heads_from_timestamp(timestamp_ms, from_offset):
                found = _in_batch(segment, head, timestamp_ms, from_offset)
                if found is not None:
                    return found if found.offset < up_to else None
    return None


def _largest(segment: LogSegment, from_offset: int) -> int:
    """The largest timestamp of a segment from an offset on."""
    if from_offset <= segment.base_offset:
        return segment.max_timestamp
    largest = -1  # what DeleteRecords took from the front may hold the segment's own largest
    for head in segment.heads_from(from_offset):
        if head.base_offset >= from_offset:
            largest = max(largest, head.max_timestamp)
        elif head.last_offset >= from_offset:
            try:
                times = (found.timestamp_ms for found in _times(segment, head, from_offset))
                largest = max(largest, max(times, default=-1))
            except CorruptMessageError:
                largest = max(largest, head.max_timestamp)
    return largest


def _in_batch(segment: LogSegment, head: Head, timestamp_ms: int, from_offset: int) -> FoundRecord | None:
    try:
        for found in _times(segment, head, from_offset):
            if found.timestamp_ms >= timestamp_ms:
                return found
    except CorruptMessageError:
        if head.max_timestamp >= timestamp_ms and head.last_offset >= from_offset:
            return FoundRecord(max(head.base_offset, from_offset), head.max_timestamp)
    return None


def _times(segment: LogSegment, head: Head, from_offset: int) -> Iterator[FoundRecord]:
    """Offsets and timestamps of a batch's records, without their keys and values."""
    batch = segment.log.read(head.position, head.size_bytes)
    is_read = False
    while not is_read:  # a batch has room for more records than are looked at in one go
        builder = ColumnsBuilder(first_offset=from_offset, keys=False, values=False, headers=False)
        try:
            is_read = builder.add(batch)
        except UnsupportedCodecError as error:
            raise UnsupportedCompressionTypeError(str(error)) from error
        columns = builder.finish()
        yield from map(FoundRecord, columns.offsets, columns.timestamps_ms)
        from_offset = columns.next_offset
