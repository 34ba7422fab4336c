"""Makes tests/golden/splashdam-format-N: a small data directory as this version writes it, and its content.

    PYTHONPATH=tests .venv/bin/python -m support.storage.make_own_golden

Run it once, in the first version that writes a new format (``FORMAT`` of storage/directories/written_by.py),
and commit the directory. It is never made anew afterwards: tests open it with every later version.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from pathlib import Path

from splashdam import EmbeddedBroker, KafkaProducer
from splashdam.storage.directories.written_by import FORMAT
from support.kafka import kafka_offsets
from support.kafka.kafka_reading import make_topic, served
from support.kafka.make_golden import GOLDEN, digest

START_MS = 1_795_000_000_000
"""When it was written: a broker on a copy starts then, or offsets and producers would have expired."""

SETTINGS = {
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "log.cleaner.backoff.ms": 100,
    "log.initial.task.delay.ms": 100,
}
PLAIN, COMPACTED, TRANSACTIONAL = TOPICS = ("plain", "compacted", "transactional")
WORKER, USER = "worker", "anna"
_BY_TIME = {
    "segment.ms": "60000",
    "segment.jitter.ms": "0",
    "index.interval.bytes": "512",
    "retention.ms": "-1",
}
_CLEANED = {**_BY_TIME, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
_WAIT_SECONDS = 30


def _write(broker: EmbeddedBroker) -> KafkaProducer:
    """Fill the topics; return the producer with the open transaction."""
    servers = broker.bootstrap_servers
    make_topic(servers, PLAIN, _BY_TIME)
    make_topic(servers, COMPACTED, _CLEANED)
    make_topic(servers, TRANSACTIONAL, _BY_TIME)
    broker.users.add(USER, "s3cret", iterations=4096)
    for number, codec in enumerate(("none", "gzip", "lz4")):  # a segment for each
        with KafkaProducer(bootstrap_servers=servers, compression_type=codec, batch_size=300) as producer:
            for record in range(10):
                value, headers = b"%s %d" % (codec.encode(), record), [("h", None), ("n", b"%d" % record)]
                moment = START_MS + number * 120_000 + record
                producer.send(PLAIN, value, b"k" if record % 2 else None, headers, timestamp_ms=moment)
    for round_ in range(3):
        with KafkaProducer(bootstrap_servers=servers) as producer:
            for number in range(8):
                value = None if number == round_ else b"round %d" % round_
                moment = START_MS + round_ * 120_000
                producer.send(COMPACTED, value, b"key %d" % number, timestamp_ms=moment)
    return _write_transactions(servers)


def _write_transactions(servers: str) -> KafkaProducer:
    producer = KafkaProducer(
        bootstrap_servers=servers, transactional_id=WORKER, transaction_timeout_ms=900_000
    )
    producer.init_transactions()
    for number, end in enumerate(("commit", "abort", "open")):
        producer.begin_transaction()
        for record in range(3):
            producer.send(TRANSACTIONAL, b"%d of %d" % (record, number), timestamp_ms=START_MS + number)
        producer.flush()
        if end == "commit":
            producer.commit_transaction()
        elif end == "abort":
            producer.abort_transaction()
    return producer


def _wait_for_cleaning(checkpoint: Path) -> None:
    deadline = time.monotonic() + _WAIT_SECONDS
    while not checkpoint.exists() or f"{COMPACTED} 0 16" not in checkpoint.read_text():
        assert time.monotonic() < deadline, "compacted was not cleaned"
        time.sleep(0.1)


def summary(servers: str) -> dict[str, object]:
    """What a broker serves of the topics and says of the groups."""
    topics = {}
    for topic in TOPICS:
        records, committed = served(servers, topic), served(servers, topic, committed=True)
        topics[topic] = [len(records), digest(records), len(committed), digest(committed)]
    return {"topics": topics, "groups": kafka_offsets.answered(servers)}


def main() -> None:
    """Write the directory of this version's format."""
    target = GOLDEN / f"splashdam-format-{FORMAT}"
    with tempfile.TemporaryDirectory() as home:
        broker = EmbeddedBroker(home, config=SETTINGS)
        broker.clock.set(START_MS)
        with broker:
            open_transactions = [_write(broker), kafka_offsets.write_offsets(broker.bootstrap_servers)]
            _wait_for_cleaning(Path(home) / "cleaner-offset-checkpoint")
            found = summary(broker.bootstrap_servers)
        del open_transactions
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(home, target, ignore=shutil.ignore_patterns(".lock", "*.deleted"))
    (target / "served.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
