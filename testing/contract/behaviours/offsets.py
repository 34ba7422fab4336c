"""ListOffsets, by time and by name."""

from __future__ import annotations

from splashdam.testing.contract.behaviour import Run, behaviour, expect, expect_one_of
from splashdam.testing.contract.behaviours.produce import NOON_MS, values
from splashdam.testing.contract.vocabulary import Record


@behaviour("offsets")
def an_empty_partition_begins_and_ends_at_0(run: Run) -> None:
    """Earliest and latest are 0 if nothing was written."""
    topic = run.topic()
    expect((run.client.offsets(topic, "earliest"), run.client.offsets(topic, "latest")), (0, 0), "offsets")


@behaviour("offsets")
def latest_is_the_offset_after_the_last_record(run: Run) -> None:
    """Latest is the offset of the next record."""
    topic = run.topic()
    run.helper.produce(topic, values("a", "b", "c"))
    expect(run.client.offsets(topic, "latest"), 3, "latest")


@behaviour("offsets")
def earliest_moves_with_deleted_records(run: Run) -> None:
    """Earliest is the log start offset."""
    topic = run.topic()
    run.helper.produce(topic, values("a", "b", "c"))
    run.helper.call("delete_records", topic=topic, partition=0, before_offset=2)
    expect(run.client.offsets(topic, "earliest"), 2, "earliest")


@behaviour("offsets")
def a_time_finds_the_first_record_that_is_not_older(run: Run) -> None:
    """The search works within batches and across them."""
    topic = run.topic()
    run.helper.produce(topic, [Record(b"v", timestamp_ms=NOON_MS + 10 * number) for number in range(5)])
    run.helper.produce(topic, [Record(b"v", timestamp_ms=NOON_MS + 100)])
    found = [run.client.offsets(topic, NOON_MS + ahead) for ahead in (-1, 0, 1, 40, 41)]
    expect(found, [0, 0, 1, 4, 5], "offsets")


@behaviour("offsets")
def a_time_beyond_all_records_finds_none(run: Run) -> None:
    """The broker answers -1; some clients turn that into the log end offset."""
    topic = run.topic()
    run.helper.produce(topic, [Record(b"v", timestamp_ms=NOON_MS)])
    expect_one_of(run.client.offsets(topic, NOON_MS + 1), (-1, 1), "offset")


@behaviour("offsets")
def the_largest_timestamp_is_found(run: Run) -> None:
    """The largest timestamp need not be that of the last record (KIP-734)."""
    topic = run.topic()
    for ahead in (0, 50, 20):
        run.helper.produce(topic, [Record(b"v", timestamp_ms=NOON_MS + ahead)])
    expect(run.client.offsets(topic, "max_timestamp"), 1, "offset")
