"""The log beside the ledgers: read back with kafka-python, with both isolation levels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import attrs
import kafka

from lab.endurance.records import PARTITIONS, TOPIC, Fate, Told, entries, name_of, value_of

_SILENCE_MS = 60_000
_PROMISES = {
    (Fate.ACKNOWLEDGED, "read_committed"): (1, 1),
    (Fate.ACKNOWLEDGED, "read_uncommitted"): (1, 1),
    (Fate.PERHAPS, "read_committed"): (0, 1),
    (Fate.PERHAPS, "read_uncommitted"): (0, 1),
    (Fate.NOT_WRITTEN, "read_committed"): (0, 0),
    (Fate.NOT_WRITTEN, "read_uncommitted"): (0, 0),
    (Fate.ABORTED, "read_committed"): (0, 0),
    (Fate.ABORTED, "read_uncommitted"): (0, 1),
}
"""How often a record may be found, at least and at most."""


@attrs.define
class Found:
    """What a consumer has found of one stream in one partition.

    Attributes:
        times: how often each number, of those that were sent.
        offsets: where each was last.
        wrong: what no ledger is needed for: another content, a wrong order, records nobody sent.
    """

    times: bytearray
    offsets: list[int]
    last: int = -1
    wrong: Counter[str] = attrs.field(factory=Counter)

    def add(self, number: int, offset: int, is_content_right: bool) -> None:
        """One record, in the order of offsets."""
        if number >= len(self.times):
            self.wrong["records that nobody sent"] += 1
            return
        if not is_content_right:
            self.wrong["records with a content of their own"] += 1
        if number < self.last:
            self.wrong["records out of order"] += 1
        self.times[number] = min(255, self.times[number] + 1)
        self.offsets[number] = offset
        self.last = number


Log = dict[tuple[str, int], Found]
"""By stream and partition."""


def empty_log(taken: dict[str, list[int]]) -> Log:
    """Nothing read yet; ``taken``: how many records each stream sent to each partition."""
    return {
        (name, partition): Found(bytearray(count), [-1] * count)
        for name, counts in taken.items()
        for partition, count in enumerate(counts)
    }


def read_back(address: str, log: Log, isolation: str, on_records: Callable[[int], None]) -> list[str]:
    """Reads the topic from begin to end into ``log``; what was wrong with the reading itself."""
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=address,
        isolation_level=isolation,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        consumer_timeout_ms=_SILENCE_MS,
    )
    try:
        places = [kafka.TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
        ends = consumer.end_offsets(places)
        consumer.assign(places)
        consumer.seek_to_beginning()
        while any(consumer.position(place) < ends[place] for place in places):
            polled = consumer.poll(timeout_ms=_SILENCE_MS, max_records=5000)
            if not polled and any(consumer.position(place) < ends[place] for place in places):
                return [f"{isolation}: reading ended before {ends}"]
            for place, records in polled.items():
                on_records(len(records))
                for record in records:
                    add_record(log, place.partition, record.offset, record.value)
    finally:
        consumer.close()
    return []


def add_record(log: Log, partition: int, offset: int, value: bytes) -> None:
    """One record that a consumer has read."""
    name, meant, number = name_of(value)
    right = meant == partition and value == value_of(name, partition, number)
    log[name, partition].add(number, offset, right)


def compare(log: Log, isolation: str, ledgers: Iterable[Path]) -> list[str]:
    """What the log holds beside what applications were told."""
    wrong: Counter[str] = Counter()
    for path in ledgers:
        name = path.stem
        told = {key[1]: bytearray(len(found.times)) for key, found in log.items() if key[0] == name}
        for entry in entries(path):
            told[entry.partition][entry.number] += 1
            wrong.update(_broken(entry, log[name, entry.partition], isolation, name))
        for counts in told.values():
            wrong[f"{name}: futures that nobody resolved"] += counts.count(0)
            wrong[f"{name}: records told of more than once"] += sum(count > 1 for count in counts)
    for (name, partition), found in log.items():
        for what, times in found.wrong.items():
            wrong[f"{name}, partition {partition}: {what}"] += times
    return [f"{isolation}: {what}: {times}" for what, times in sorted(wrong.items()) if times]


def _broken(entry: Told, found: Found, isolation: str, name: str) -> list[str]:
    times = found.times[entry.number]
    least, most = _PROMISES[entry.fate, isolation]
    fate = entry.fate.name.lower().replace("_", " ")
    if times < least:
        return [f"{name}: records {fate} and missing"]
    if times > max(1, most):
        return [f"{name}: records {fate} and there more than once"]
    if times > most:
        return [f"{name}: records {fate} and there"]
    if times and entry.offset not in {-1, found.offsets[entry.number]}:
        return [f"{name}: records {fate} at another offset than where they are"]
    return []
