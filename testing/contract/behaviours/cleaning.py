"""Retention and compaction, as consumers see them."""

from __future__ import annotations

import time
from collections.abc import Callable

from splashdam.testing.contract.behaviour import BrokenPromise, Run, behaviour, expect
from splashdam.testing.contract.behaviours.produce import NOON_MS
from splashdam.testing.contract.vocabulary import NOT_IN_CLIENT, PROTOCOL, Read, Record, Refused

_CLEANING_SECONDS = 20.0
_PAUSE_SECONDS = 0.1
_LATER_MS = 60_000
"""Later than ``segment.ms``: the record goes into a new segment."""

_COMPACTED = {
    "cleanup_policy": "compact",
    "segment_ms": "10000",
    "min_cleanable_dirty_ratio": "0.01",
    "delete_retention_ms": "0",
}


def once_cleaned(look: Callable[[], None]) -> None:
    """Repeat ``look`` until it passes: the cluster cleans its logs in the background.

    Raises:
        Refused: the cluster has not cleaned for twenty seconds, so the behaviour is left out.
    """
    until = time.monotonic() + _CLEANING_SECONDS
    while True:
        try:
            return look()
        except BrokenPromise as error:
            if time.monotonic() > until:
                text = f"not cleaned within {_CLEANING_SECONDS:g} s: {error}"
                raise Refused(NOT_IN_CLIENT, text) from error
        time.sleep(_PAUSE_SECONDS)


def read_all(run: Run, topic: str) -> list[Read]:
    """Read a partition from its log start offset to its end."""
    found: list[Read] = []
    end = run.helper.offsets(topic, "latest")
    position = run.helper.offsets(topic, "earliest")
    while position < end:
        (read,) = run.helper.fetch(topic, offset=position, count=1)
        found.append(read)
        position = read.offset + 1
    return found


def segments(run: Run, topic: str, *records: Record) -> None:
    """Produce each record into a segment of its own."""
    for number, record in enumerate(records):
        run.helper.produce(topic, [record._replace(timestamp_ms=NOON_MS + number * _LATER_MS)])


@behaviour(PROTOCOL)
def compaction_keeps_the_last_value_of_each_key(run: Run) -> None:
    """Records keep their offsets, and the active segment is not compacted."""
    topic = run.topic(1, **_COMPACTED)
    texts = ((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"end", b""))
    segments(run, topic, *(Record(value, key) for key, value in texts))

    def compacted() -> None:
        found = [(each.offset, each.key, each.value) for each in read_all(run, topic)]
        expect(found, [(1, b"b", b"1"), (2, b"a", b"2"), (3, b"end", b"")], "records")

    once_cleaned(compacted)
    expect(run.helper.offsets(topic, "latest"), 4, "log end offset")


@behaviour(PROTOCOL)
def compaction_deletes_keys_with_a_null_value(run: Run) -> None:
    """A key whose last value is null is removed, and the tombstone after delete.retention.ms."""
    topic = run.topic(1, **_COMPACTED)
    records = (Record(b"1", b"a"), Record(b"1", b"b"), Record(None, b"a"), Record(b"", b"end"))
    segments(run, topic, *records)

    def compacted() -> None:
        found = [each.key for each in read_all(run, topic)]
        expect(found in ([b"b", b"end"], [b"b", b"a", b"end"]), True, f"keys {found} without the value of a")

    once_cleaned(compacted)


@behaviour(PROTOCOL)
def records_that_are_too_old_are_deleted(run: Run) -> None:
    """retention.ms goes by the newest record of a segment; offsets continue."""
    topic = run.topic(retention_ms="3600000", segment_ms="10000")
    segments(run, topic, Record(b"old"), Record(b"old, too"))
    once_cleaned(lambda: expect(run.helper.offsets(topic, "earliest"), 2, "log start offset"))
    (outcome,) = run.helper.produce(topic, [Record(b"new")])
    expect(outcome.offset, 2, "offset of the next record")
