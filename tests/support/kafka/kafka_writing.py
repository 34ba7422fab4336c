"""Makes a real Kafka write what a log can hold: codecs, kinds of timestamps, transactions, compaction."""

from __future__ import annotations

import time
from typing import Any

import confluent_kafka

from support.kafka.kafka_jars import KafkaBroker
from support.kafka.kafka_reading import make_topic

START_MS = 1_795_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
INDEX_INTERVAL_BYTES = 512
SEGMENT_MS = 60_000
TOPICS = ("codecs", "appended", "transactions", "compacted")
BROKER_SETTINGS = {
    "log.cleaner.backoff.ms": "200",
    "log.initial.task.delay.ms": "500",
    "producer.id.expiration.ms": "2147483647",  # or a restart forgets producers whose records are a day old
}

_SMALL = {
    "index.interval.bytes": str(INDEX_INTERVAL_BYTES),
    "segment.index.bytes": "4096",
    "retention.ms": "-1",
}
_BY_TIME = {**_SMALL, "segment.ms": str(SEGMENT_MS), "segment.jitter.ms": "0"}
_CLEANED = {
    **_BY_TIME,
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "86400000",
}
_WAIT_SECONDS = 30


def write_everything(broker: KafkaBroker) -> confluent_kafka.Producer:
    """Fills ``TOPICS``; the broker is restarted in between, so that logs have several leader epochs.

    Returns:
        The producer with the open transaction: the caller keeps it until the broker has stopped.
    """
    servers = broker.bootstrap_servers
    make_topic(servers, "codecs", _BY_TIME)
    make_topic(servers, "appended", {**_SMALL, "message.timestamp.type": "LogAppendTime"})
    make_topic(servers, "transactions", _BY_TIME)
    make_topic(servers, "compacted", _CLEANED)
    _write_codecs(servers, first=0)
    _write_compacted(servers)
    broker.stop()
    broker.start()
    servers = broker.bootstrap_servers
    _write_codecs(servers, first=1000)
    _send(servers, "appended", range(40), codec="lz4")
    _send(servers, "appended", range(40, 60))
    _wait_for_compaction(broker)
    return _write_transactions(servers)


def _producer(servers: str, **options: Any) -> confluent_kafka.Producer:
    dotted = {name.replace("_", "."): value for name, value in options.items()}
    return confluent_kafka.Producer(
        {"bootstrap.servers": servers, "log_level": 0, "enable.idempotence": True, "linger.ms": 20, **dotted}
    )


def _send(servers: str, topic: str, numbers: range, codec: str = "none", later_ms: int = 0) -> None:
    """Ten records at a time, so that there are several batches."""
    producer = _producer(servers, compression_type=codec)
    for number in numbers:
        producer.produce(
            topic,
            b"value %d " % number * 4,
            b"key %d" % (number % 7) if number % 5 else None,
            timestamp=START_MS + number + later_ms,
            headers=[("codec", codec.encode()), ("none", None)] if number % 3 == 0 else None,
        )
        if number % 10 == 9:
            assert producer.flush(_WAIT_SECONDS) == 0
    assert producer.flush(_WAIT_SECONDS) == 0


def _write_codecs(servers: str, first: int) -> None:
    """A segment per codec: each is written a while after the one before."""
    for number, codec in enumerate(CODECS):
        start = first + number * 100
        _send(servers, "codecs", range(start, start + 50), codec, later_ms=start * SEGMENT_MS)


def _write_compacted(servers: str) -> None:
    """The same keys again and again, with tombstones; the last segment is not cleaned."""
    for round_ in range(4):
        producer = _producer(servers, compression_type="gzip" if round_ % 2 else "none")
        for number in range(30):
            value = None if number % 6 == round_ else b"round %d" % round_
            moment = START_MS + round_ * 2 * SEGMENT_MS
            producer.produce("compacted", value, b"key %d" % number, timestamp=moment)
        assert producer.flush(_WAIT_SECONDS) == 0


def _wait_for_compaction(broker: KafkaBroker) -> None:
    checkpoint = broker.data / "cleaner-offset-checkpoint"
    deadline = time.monotonic() + _WAIT_SECONDS
    while "compacted 0 90" not in checkpoint.read_text():
        assert time.monotonic() < deadline, checkpoint.read_text()
        time.sleep(0.2)


def _write_transactions(servers: str) -> confluent_kafka.Producer:
    """Committed, aborted, committed, and one that is still open; plain records between them."""
    producer = _producer(servers, transactional_id="worker", transaction_timeout_ms=900_000)
    producer.init_transactions(_WAIT_SECONDS)
    for number, end in enumerate(("commit", "abort", "commit", "")):
        producer.begin_transaction()
        for record in range(5):
            producer.produce(
                "transactions", b"%d of %d" % (record, number), timestamp=START_MS + number * 2 * SEGMENT_MS
            )
        assert producer.flush(_WAIT_SECONDS) == 0
        if end == "commit":
            producer.commit_transaction(_WAIT_SECONDS)
        elif end == "abort":
            producer.abort_transaction(_WAIT_SECONDS)
        _send(servers, "transactions", range(number * 10, number * 10 + 2), later_ms=number * 2 * SEGMENT_MS)
    return producer
