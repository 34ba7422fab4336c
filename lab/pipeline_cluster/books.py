"""Sends the records, and compares the results of the jobs with them: an ingest, windows, a copy."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs

from lab.ledger import read_topic
from lab.pipeline_chaos.table_check import compare
from splashdam import KafkaProducer
from splashdam.pipeline.tables import existing_table

TOPIC, COPY = "departures", "departures-copy"
PARTITIONS = 2
SCHEMA = "number bigint NOT NULL, carrier string NOT NULL"
WINDOW_MS = 60_000
_CARRIERS = ("AA", "DL", "UA")
_STEP_MS = 20
_BEGIN_MS = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)


@attrs.define
class Count:
    """The differences between the result of a job and the expected result.

    Attributes:
        job: name of the job.
        gaps: records that are missing.
        duplicates: copies of a record beyond the first.
        wrong: other rows or records that must not be there.
    """

    job: str
    gaps: int = 0
    duplicates: int = 0
    wrong: int = 0

    @property
    def is_good(self) -> bool:
        return not (self.gaps or self.duplicates or self.wrong)


def send(servers: str, records: int) -> None:
    """Send numbered records, whose timestamps are `_STEP_MS` apart."""
    with KafkaProducer(bootstrap_servers=servers) as producer:
        for number in range(records):
            producer.send(
                TOPIC,
                value(number),
                partition=number % PARTITIONS,
                timestamp_ms=_BEGIN_MS + number * _STEP_MS,
            )
        producer.flush()


def value(number: int) -> bytes:
    """Return the value of a record."""
    return json.dumps({"number": number, "carrier": _CARRIERS[number % len(_CARRIERS)]}).encode()


def ingested(servers: str, place: Path) -> Count:
    """Compare the table with the log, record by record."""
    log = {
        (partition, record.offset): record.value
        for partition, records in read_topic(servers, TOPIC, PARTITIONS)
        for record in records
    }
    found = compare("parquet", place, log)
    return Count("ingest", found.gaps, found.duplicates, found.wrong)


def windowed(records: int, hours: Path, late: Path) -> Count:
    """Compare the counts by window and carrier, late rows included, with the counts of the records sent."""
    wanted = expected_windows(records)
    counted: Counter[tuple[int, str]] = Counter()
    rows: Counter[tuple[int, str]] = Counter()
    for row in _rows(hours):
        key = int(row["window_start"].timestamp() * 1000), row["carrier"]
        counted[key] += row["count"]
        rows[key] += 1
    for row in _rows(late):
        number = json.loads(row["value"])["number"]
        counted[window_of(number)] += 1
    return Count(
        "window",
        gaps=sum(max(0, wanted[key] - counted[key]) for key in wanted),
        duplicates=sum(max(0, counted[key] - wanted[key]) for key in wanted),
        wrong=len(counted.keys() - wanted.keys()) + sum(times - 1 for times in rows.values()),
    )


def expected_windows(records: int) -> Counter[tuple[int, str]]:
    """Return the number of records by start of their window, in milliseconds, and carrier."""
    return Counter(map(window_of, range(records)))


def window_of(number: int) -> tuple[int, str]:
    """Return the window and the carrier of a record."""
    time_ms = _BEGIN_MS + number * _STEP_MS
    return time_ms // WINDOW_MS * WINDOW_MS, _CARRIERS[number % len(_CARRIERS)]


def copied(servers: str, records: int, rejected: Path) -> Count:
    """Compare the copy, as a read_committed consumer sees it, with the records sent."""
    values: Counter[bytes] = Counter(
        record.value
        for _, found in read_topic(servers, COPY, PARTITIONS, "read_committed")
        for record in found
    )
    wanted = {value(number) for number in range(records)}
    bad = sum(1 for _ in _rows(rejected)) if rejected.exists() else 0
    return Count(
        "decode",
        gaps=len(wanted - values.keys()),
        duplicates=sum(times - 1 for times in values.values()),
        wrong=len(values.keys() - wanted) + bad,
    )


def _rows(place: Path) -> Iterator[Mapping[str, Any]]:
    if not place.exists():
        return
    table = existing_table("parquet", place)
    for batch in table.iter_rows():
        yield from batch.to_pylist()
    table.close()
