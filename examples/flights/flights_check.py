"""Reads the flights back with kafka-python, and lists the differences."""

from __future__ import annotations

import hashlib
import json
import time
import warnings

from flights_report import counted, progress_bar
from rich.console import Console

with warnings.catch_warnings():
    # kafka-python reads its message schemas through a call that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, TopicPartition

POLL_MS = 500
STALLED_SECONDS = 30
"""Reading ends after this time without a record, even if some are missing."""


class Ledger:
    """Digests by key; each covers the contents, the number and the order of the key's records."""

    def __init__(self) -> None:
        self.count = 0
        self.bytes = 0
        self.by_key: dict[bytes, hashlib._Hash] = {}
        self.last_row: dict[bytes, int] = {}
        self.out_of_order: list[str] = []

    def add(self, key: bytes, value: bytes) -> None:
        self.count += 1
        self.bytes += len(value)
        digest = self.by_key.get(key)
        if digest is None:
            digest = self.by_key[key] = hashlib.sha256()
        digest.update(len(value).to_bytes(4, "big") + value)

    def check_order(self, key: bytes, value: bytes) -> None:
        """Note a row that does not come in ascending order within its key."""
        row = json.loads(value)["row"]
        if row <= self.last_row.get(key, -1):
            self.out_of_order.append(f"{key.decode()}: row {row} came after row {self.last_row[key]}")
        self.last_row[key] = row

    def digest(self) -> str:
        """Return one digest of all records, which does not depend on the partitions of the keys."""
        together = hashlib.sha256()
        for key in sorted(self.by_key):
            together.update(key + b"\0" + self.by_key[key].digest())
        return together.hexdigest()


def read_back(
    bootstrap_servers: str, topic: str, partitions: int, expected: int, console: Console
) -> tuple[Ledger, float]:
    """Read all partitions from beginning to end; return their ledger, and the seconds it took."""
    assigned = [TopicPartition(topic, number) for number in range(partitions)]
    consumer = KafkaConsumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest")
    ledger, started = Ledger(), time.perf_counter()
    try:
        consumer.assign(assigned)
        ends = consumer.end_offsets(assigned)
        with progress_bar(console) as progress:
            bar = progress.add_task("reading ", total=expected)
            last_news = time.perf_counter()
            while any(consumer.position(partition) < end for partition, end in ends.items()):
                records = consumer.poll(timeout_ms=POLL_MS, max_records=5_000)
                for record in (record for batch in records.values() for record in batch):
                    ledger.add(record.key, record.value)
                    ledger.check_order(record.key, record.value)
                progress.update(bar, completed=ledger.count)
                if records:
                    last_news = time.perf_counter()
                elif time.perf_counter() - last_news > STALLED_SECONDS:
                    break  # compare() will say what is missing
    finally:
        consumer.close()
    return ledger, time.perf_counter() - started


def compare(sent: Ledger, received: Ledger, *, expected: int) -> list[str]:
    """Return the differences between the flights expected, the flights sent and the flights read."""
    differences = list(received.out_of_order[:10])
    if sent.count != expected:
        differences.append(f"to be sent: {counted(expected, 'record')}, in the data file: {sent.count:,}")
    if sent.count != received.count:
        differences.append(f"sent: {counted(sent.count, 'record')}, came back: {received.count:,}")
    for key in sorted(sent.by_key.keys() | received.by_key.keys()):
        before, after = sent.by_key.get(key), received.by_key.get(key)
        if before is None or after is None or before.digest() != after.digest():
            differences.append(f"carrier {key.decode()}: content or order differs")
    return differences
