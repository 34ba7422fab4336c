"""The ledgers of a trial: numbered records with their results, which are compared with the log.

A `Ledger` numbers the records of one stream, and stores the result of each: acknowledged, given up, aborted.
`compared_with_log` reads the topic back with kafka-python, under both isolation levels, and reports records
that are missing, duplicated, out of order, at another offset, or there although they must not be.
"""

from __future__ import annotations

import enum
import random
import struct
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import attrs
import kafka
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from lab.trial import Verdict
from splashdam.client.future import RecordFuture
from splashdam.model.errors import KafkaError, KafkaTimeoutError, PurgedError, TransactionAbortedError

TOPIC = "endurance"
PARTITIONS = 4

_ENTRY = struct.Struct("<BBIq")
_FILLER = random.Random(0).randbytes(2000) * 2


class Fate(enum.IntEnum):
    """The result of a record, as far as the application knows."""

    ACKNOWLEDGED = 1
    """Delivered, and committed if it was in a transaction."""
    PERHAPS_WRITTEN = 2
    """Given up, but perhaps written."""
    NOT_WRITTEN = 3
    """Given up; its error says that it was never sent."""
    ABORTED = 4
    """Its transaction was aborted, by its producer or by the next one with the same transactional id."""


class Entry(NamedTuple):
    """An entry of a ledger; ``offset`` is -1 if the record was not written."""

    partition: int
    fate: Fate
    number: int
    offset: int


class Ledger:
    """Numbers the records of one stream by partition, and stores their results on disk.

    Args:
        folder: where its file is written.
        name: name of the stream; the value of each record begins with it.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.taken = [0] * PARTITIONS
        self.results = dict.fromkeys(Fate, 0)
        self._file = (folder / f"{name}.ledger").open("wb")
        self._lock = threading.Lock()

    def take(self, partition: int) -> int:
        """Return the next number of the partition; only one thread or task may call this for a partition."""
        number = self.taken[partition]
        self.taken[partition] = number + 1
        return number

    def note(self, partition: int, number: int, fate: Fate, offset: int = -1) -> None:
        """Store the result of a record; may be called from any thread."""
        with self._lock:
            self.results[fate] += 1
            self._file.write(_ENTRY.pack(partition, fate, number, offset))

    def note_future(self, partition: int, number: int, future: RecordFuture) -> None:
        """Store the result of a record from its future, which must be done."""
        metadata = future.value
        if metadata is not None:
            self.note(partition, number, Fate.ACKNOWLEDGED, metadata.offset)
        else:
            self.note(partition, number, fate_of(future.exception))

    def close(self) -> None:
        """Write everything to disk."""
        self._file.close()


def entries(path: Path) -> Iterator[Entry]:
    """Yield the entries of a closed ledger."""
    for partition, fate, number, offset in _ENTRY.iter_unpack(path.read_bytes()):
        yield Entry(partition, Fate(fate), number, offset)


def value_of(name: str, partition: int, number: int) -> bytes:
    """Return the value of a record: stream, partition and number, then bytes that depend on the number."""
    begin = number * 31 % 2000
    return b"%s %d %d " % (name.encode(), partition, number) + _FILLER[begin : begin + 20 + number * 7 % 400]


def name_of(value: bytes) -> tuple[str, int, int]:
    """Return stream, partition and number of a value."""
    name, partition, number, _ = value.split(b" ", 3)
    return name.decode(), int(partition), int(number)


def fate_of(error: BaseException | None) -> Fate:
    """Return what an error says about the record in the log."""
    text = str(error)
    if isinstance(error, TransactionAbortedError):
        return Fate.NOT_WRITTEN
    if isinstance(error, PurgedError):
        return Fate.NOT_WRITTEN if "not sent" in text else Fate.PERHAPS_WRITTEN
    if isinstance(error, KafkaTimeoutError) and " 0 attempts failed;" in text:
        return Fate.PERHAPS_WRITTEN if "has not answered the last one" in text else Fate.NOT_WRITTEN
    if isinstance(error, KafkaError):
        return Fate.PERHAPS_WRITTEN
    raise TypeError(f"a record failed with an error that is no KafkaError: {error!r}")


# --- comparing the log with the ledgers -------------------------------------------------------------------

_SILENCE_MS = 60_000
_PROMISES = {
    (Fate.ACKNOWLEDGED, "read_committed"): (1, 1),
    (Fate.ACKNOWLEDGED, "read_uncommitted"): (1, 1),
    (Fate.PERHAPS_WRITTEN, "read_committed"): (0, 1),
    (Fate.PERHAPS_WRITTEN, "read_uncommitted"): (0, 1),
    (Fate.NOT_WRITTEN, "read_committed"): (0, 0),
    (Fate.NOT_WRITTEN, "read_uncommitted"): (0, 0),
    (Fate.ABORTED, "read_committed"): (0, 0),
    (Fate.ABORTED, "read_uncommitted"): (0, 1),
}
"""How often a record must and may be in the log: the least and the greatest number of times."""


@attrs.define
class Found:
    """The records of one stream that a consumer has read from one partition.

    Attributes:
        times: how often it has read each number.
        offsets: the last offset of each number.
        last: the last number; -1 before the first record.
        wrong: faults that are seen without the ledger: changed values, a wrong order, records that nobody
            sent.
    """

    times: bytearray
    offsets: list[int]
    last: int = -1
    wrong: Counter[str] = attrs.field(factory=Counter)

    def add(self, number: int, offset: int, is_content_right: bool) -> None:
        """Add a record; call this in the order of offsets."""
        if number >= len(self.times):
            self.wrong["records that nobody sent"] += 1
            return
        if not is_content_right:
            self.wrong["records with a changed value"] += 1
        if number < self.last:
            self.wrong["records out of order"] += 1
        self.times[number] = min(255, self.times[number] + 1)
        self.offsets[number] = offset
        self.last = number


ISOLATIONS = ("read_committed", "read_uncommitted")


def compared_with_log(
    address: str, taken: dict[str, list[int]], folder: Path, isolation: str, console: Console
) -> Verdict:
    """Read everything back with kafka-python and compare it with the ledgers.

    Args:
        address: the bootstrap servers.
        taken: number of records that each stream sent to each partition.
        folder: has the ledgers.
        isolation: Kafka's isolation level.
        console: shows progress.
    """
    log, verdict = empty_log(taken), Verdict()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(isolation, total=sum(map(sum, taken.values())))
        try:
            for partition, records in read_topic(address, TOPIC, PARTITIONS, isolation):
                bar.advance(task, len(records))
                for record in records:
                    add_record(log, partition, record.offset, record.value)
        except ReadingEndedError as error:
            verdict.violations.append(str(error))
    verdict.violations += compare(log, isolation, sorted(folder.glob("*.ledger")))
    found = sum(sum(each.times) for each in log.values())
    verdict.facts.append((f"records found, {isolation}", f"{found:,}"))
    return verdict


Log = dict[tuple[str, int], Found]
"""The records read, by stream and partition."""


def empty_log(taken: dict[str, list[int]]) -> Log:
    """Return the log before the first record is read; ``taken`` as for `compared_with_log`."""
    return {
        (name, partition): Found(bytearray(count), [-1] * count)
        for name, counts in taken.items()
        for partition, count in enumerate(counts)
    }


class ReadingEndedError(Exception):
    """The consumer got no more records before the end of the log."""


def read_topic(
    address: str, topic: str, partitions: int, isolation: str = "read_uncommitted"
) -> Iterator[tuple[int, Sequence[Any]]]:
    """Read a topic from beginning to end with kafka-python; yield a partition and some of its records.

    Raises:
        ReadingEndedError: there was no record for a minute.
    """
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=address,
        isolation_level=isolation,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        consumer_timeout_ms=_SILENCE_MS,
    )
    try:
        places = [kafka.TopicPartition(topic, partition) for partition in range(partitions)]
        ends = consumer.end_offsets(places)
        consumer.assign(places)
        consumer.seek_to_beginning()
        while any(consumer.position(place) < ends[place] for place in places):
            polled = consumer.poll(timeout_ms=_SILENCE_MS, max_records=5000)
            if not polled and any(consumer.position(place) < ends[place] for place in places):
                raise ReadingEndedError(f"{isolation}: reading ended before {ends}")
            for place, records in polled.items():
                yield place.partition, records
    finally:
        consumer.close()


def add_record(log: Log, partition: int, offset: int, value: bytes) -> None:
    """Add a record that a consumer has read."""
    name, meant, number = name_of(value)
    right = meant == partition and value == value_of(name, partition, number)
    log[name, partition].add(number, offset, right)


def compare(log: Log, isolation: str, ledgers: Iterable[Path]) -> list[str]:
    """Compare the log with the ledgers; return the broken promises."""
    wrong: Counter[str] = Counter()
    for path in ledgers:
        name = path.stem
        counts_of = {key[1]: bytearray(len(found.times)) for key, found in log.items() if key[0] == name}
        for entry in entries(path):
            counts_of[entry.partition][entry.number] += 1
            wrong.update(_broken(entry, log[name, entry.partition], isolation, name))
        for counts in counts_of.values():
            wrong[f"{name}: futures that nobody resolved"] += counts.count(0)
            wrong[f"{name}: records with more than one result"] += sum(count > 1 for count in counts)
    for (name, partition), found in log.items():
        for what, times in found.wrong.items():
            wrong[f"{name}, partition {partition}: {what}"] += times
    return [f"{isolation}: {what}: {times}" for what, times in sorted(wrong.items()) if times]


def _broken(entry: Entry, found: Found, isolation: str, name: str) -> list[str]:
    times = found.times[entry.number]
    least, most = _PROMISES[entry.fate, isolation]
    fate = entry.fate.name.lower().replace("_", " ")
    if times < least:
        return [f"{name}: records {fate}, but missing in the log"]
    if times > max(1, most):
        return [f"{name}: records {fate}, but in the log more than once"]
    if times > most:
        return [f"{name}: records {fate}, but in the log"]
    if times and entry.offset not in {-1, found.offsets[entry.number]}:
        return [f"{name}: records {fate}, but in the log at another offset"]
    return []
