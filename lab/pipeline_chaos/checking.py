"""The tables beside the log: each record once, and as it was."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import attrs
from kafka import KafkaConsumer, TopicPartition

from lab.pipeline_chaos.driver import TOPIC
from splashdam.pipeline.tables import existing_table

Records = Mapping[tuple[int, int], bytes]
"""Values by partition and offset."""


@attrs.define
class Verdict:
    """What a table lacks, and what it has too much of.

    Attributes:
        records: that the log has.
        gaps: of them, how many the table lacks.
        duplicates: rows that are there again.
        wrong: rows that are no record of the log, or differ from it.
    """

    records: int = 0
    gaps: int = 0
    duplicates: int = 0
    wrong: int = 0

    @property
    def is_good(self) -> bool:
        """Whether the table is what it should be."""
        return not (self.gaps or self.duplicates or self.wrong)


def read_log(servers: str, partitions: int) -> Records:
    """All records of the topic, read by kafka-python."""
    found: dict[tuple[int, int], bytes] = {}
    consumer = KafkaConsumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", enable_auto_commit=False
    )
    wanted = [TopicPartition(TOPIC, number) for number in range(partitions)]
    consumer.assign(wanted)
    ends = consumer.end_offsets(wanted)
    while any(consumer.position(each) < ends[each] for each in wanted):
        for where, records in consumer.poll(timeout_ms=1000, max_records=5000).items():
            found.update({(where.partition, record.offset): record.value for record in records})
    consumer.close()
    return found


def compare(table_format: str, place: Path, log: Records) -> Verdict:
    """One table."""
    verdict = Verdict(records=len(log))
    seen: set[tuple[int, int]] = set()
    table = existing_table(table_format, place)
    for batch in table.iter_rows(["partition", "offset", "value"]):
        for partition, offset, value in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            verdict.duplicates += (partition, offset) in seen
            verdict.wrong += log.get((partition, offset)) != value
            seen.add((partition, offset))
    table.close()
    verdict.gaps = len(log.keys() - seen)
    return verdict
