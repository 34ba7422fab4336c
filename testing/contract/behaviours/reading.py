"""Records as consumers read them."""

from __future__ import annotations

from splashdam.testing.contract.behaviour import Run, behaviour, expect
from splashdam.testing.contract.behaviours.produce import NOON_MS, values
from splashdam.testing.contract.vocabulary import Record


@behaviour("fetch")
def reading_begins_at_the_requested_offset(run: Run) -> None:
    """The first record is the one at the offset, even within a batch."""
    topic = run.topic()
    run.helper.produce(topic, values("a", "b", "c", "d", "e"), compression="gzip")
    expect([each.value for each in run.client.fetch(topic, offset=3, count=2)], [b"d", b"e"], "values")


@behaviour("fetch")
def a_reader_at_the_end_waits_for_more(run: Run) -> None:
    """At the log end offset there are no records, and no error."""
    topic = run.topic()
    run.helper.produce(topic, values("a"))
    expect(run.client.fetch(topic, offset=1, count=1, timeout_ms=300), [], "records")


@behaviour("fetch")
def partitions_have_offsets_of_their_own(run: Run) -> None:
    """Each partition has its own offsets."""
    topic = run.topic(partitions=3)
    for partition in range(3):
        run.helper.produce(topic, [Record(f"{partition}".encode(), partition=partition)] * 2)
    found = [run.client.fetch(topic, partition, 1, count=1)[0] for partition in range(3)]
    expect([(each.offset, each.value) for each in found], [(1, b"0"), (1, b"1"), (1, b"2")], "records")


@behaviour("fetch")
def uncommitted_records_are_for_read_uncommitted(run: Run) -> None:
    """Records of an aborted transaction reach read_uncommitted, never read_committed."""
    topic = run.topic()
    run.helper.produce(topic, values("aborted"), transactional_id=run.name(), commit=False)
    run.helper.produce(topic, values("committed"), transactional_id=run.name())
    everything = run.client.fetch(topic, count=2)
    expect([each.value for each in everything], [b"aborted", b"committed"], "read_uncommitted")
    committed = run.client.fetch(topic, count=1, isolation="read_committed")
    expect([each.value for each in committed], [b"committed"], "read_committed")


@behaviour("fetch")
def records_before_the_log_start_are_gone(run: Run) -> None:
    """After DeleteRecords, reading begins at the new log start offset."""
    topic = run.topic()
    run.helper.produce(topic, values("a", "b", "c"))
    run.helper.call("delete_records", topic=topic, partition=0, before_offset=2)
    expect([each.value for each in run.client.fetch(topic, offset=2, count=1)], [b"c"], "values")


@behaviour("fetch")
def a_large_batch_comes_whole(run: Run) -> None:
    """A batch larger than the reader's limit is returned all the same."""
    topic = run.topic(max_message_bytes="4000000")
    record = Record(b"\x07" * 900_000, timestamp_ms=NOON_MS)
    for _ in range(3):
        run.helper.produce(topic, [record])
    expect([len(each.value or b"") for each in run.client.fetch(topic, count=3)], [900_000] * 3, "sizes")
