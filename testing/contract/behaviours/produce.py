"""Produced records: their offsets, their contents, and the errors of refused ones."""

from __future__ import annotations

from splashdam.testing.contract.behaviour import Run, behaviour, expect
from splashdam.testing.contract.vocabulary import Record, Refused

NOON_MS = 1_700_000_000_000


def values(*texts: str) -> list[Record]:
    """Return records with these values, for partition 0."""
    return [Record(text.encode()) for text in texts]


@behaviour("produce")
def offsets_are_consecutive(run: Run) -> None:
    """Records of one partition get the offsets 0, 1, 2, …, whatever batches they come in."""
    topic = run.topic()
    first = run.client.produce(topic, values("a", "b", "c"))
    second = run.client.produce(topic, values("d", "e"))
    expect([each.error for each in first + second], [None] * 5, "errors")
    expect([each.offset for each in first + second], [0, 1, 2, 3, 4], "offsets")


@behaviour("produce", "fetch")
def every_part_of_a_record_comes_back(run: Run) -> None:
    """Key, value, headers and timestamp are read as sent; nulls stay nulls and empty stays empty."""
    topic = run.topic()
    sent = [
        Record(b"value", b"key", 0, [("a", b"1"), ("b", b"")], NOON_MS),
        Record(b"", b"", 0, [], NOON_MS + 1),
        Record(b"\x00\xff" * 500, None, 0, [], NOON_MS + 2),
        Record(None, b"tombstone", 0, [], NOON_MS + 3),
    ]
    run.client.produce(topic, sent)
    read = run.client.fetch(topic, count=len(sent))
    expect(
        [(each.value, each.key, each.headers, each.timestamp_ms) for each in read],
        [(each.value, each.key, tuple(each.headers), each.timestamp_ms) for each in sent],
        "records",
    )


@behaviour("produce", "fetch")
def acks_0_and_1_store_records_too(run: Run) -> None:
    """Records that are sent without waiting, or only for the leader, can be read as well."""
    topic = run.topic()
    run.client.produce(topic, values("leader"), acks="1")
    run.client.produce(topic, values("nobody"), acks="0")
    expect([each.value for each in run.client.fetch(topic, count=2)], [b"leader", b"nobody"], "values")


@behaviour("produce", "fetch")
def compressed_batches_are_read_as_they_were_sent(run: Run) -> None:
    """Batches are compressed with gzip, which every client and every broker has."""
    topic = run.topic()
    sent = [Record(f"{number:>100}".encode(), timestamp_ms=NOON_MS) for number in range(50)]
    run.client.produce(topic, sent, compression="gzip")
    expect(
        [each.value for each in run.client.fetch(topic, count=50)], [each.value for each in sent], "values"
    )


@behaviour("produce")
def a_record_above_the_topics_limit_is_refused(run: Run) -> None:
    """A batch above max.message.bytes is answered with MESSAGE_TOO_LARGE, and nothing is written."""
    topic = run.topic(max_message_bytes="1000")
    (outcome,) = run.client.produce(topic, [Record(b"x" * 5000)])
    expect(
        outcome.error in ("MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"), True, f"refused ({outcome.error})"
    )
    expect(run.helper.offsets(topic, "latest"), 0, "log end offset")


@behaviour("produce")
def a_compacted_topic_requires_keys(run: Run) -> None:
    """A record without a key is INVALID_RECORD, and nothing is written."""
    topic = run.topic(cleanup_policy="compact")
    (outcome,) = run.client.produce(topic, [Record(b"no key")])
    expect(outcome.error, "INVALID_RECORD", "outcome")
    expect(run.helper.offsets(topic, "latest"), 0, "log end offset")


@behaviour("produce", "fetch")
def log_append_time_is_the_brokers(run: Run) -> None:
    """With message.timestamp.type=LogAppendTime records get the broker's time."""
    topic = run.topic(message_timestamp_type="LogAppendTime")
    run.client.produce(topic, [Record(b"old", timestamp_ms=NOON_MS)])
    (read,) = run.client.fetch(topic, count=1)
    expect(
        read.timestamp_ms > NOON_MS, True, f"timestamp {read.timestamp_ms} later than the one that was sent"
    )


@behaviour("produce")
def a_timestamp_too_far_ahead_is_refused(run: Run) -> None:
    """Beyond message.timestamp.after.max.ms a record is INVALID_TIMESTAMP, and nothing is written."""
    topic = run.topic(message_timestamp_after_max_ms="60000")
    (outcome,) = run.client.produce(topic, [Record(b"v", timestamp_ms=NOON_MS * 3)])
    expect(outcome.error, "INVALID_TIMESTAMP", "outcome")
    expect(run.helper.offsets(topic, "latest"), 0, "log end offset")


@behaviour("produce")
def sending_to_a_missing_topic_is_an_error(run: Run) -> None:
    """If neither side creates topics, sending to a missing topic ends with an error."""
    topic = run.new_topic()
    try:
        (outcome,) = run.client.produce(topic, [Record(b"v")])
        name = outcome.error
    except Refused as error:
        name = error.name
    with run.without_creation(topic):
        expect(
            name in ("UNKNOWN_TOPIC_OR_PARTITION", "REQUEST_TIMED_OUT", "KafkaTimeoutError"),
            True,
            f"refused ({name})",
        )


@behaviour("produce", "fetch")
def an_idempotent_producer_neither_loses_nor_duplicates(run: Run) -> None:
    """A hundred records in several batches are read once each, in order."""
    topic = run.topic()
    sent = [Record(str(number).encode(), timestamp_ms=NOON_MS) for number in range(100)]
    for start in range(0, 100, 25):
        run.client.produce(topic, sent[start : start + 25], idempotent=True)
    read = run.client.fetch(topic, count=100)
    expect([each.value for each in read], [each.value for each in sent], "values")
    expect(run.helper.offsets(topic, "latest"), 100, "log end offset")
