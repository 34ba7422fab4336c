"""Compares a table with the log: it must have each record once, unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import attrs

from splashdam.pipeline.tables import existing_table

Records = Mapping[tuple[int, int], bytes]
"""Values by partition and offset."""


@attrs.define
class TableCounts:
    """The differences between a table and the log.

    Attributes:
        records: records of the log.
        gaps: records that the table lacks.
        duplicates: rows beyond the first of a record.
        wrong: rows that match no record of the log.
    """

    records: int = 0
    gaps: int = 0
    duplicates: int = 0
    wrong: int = 0

    @property
    def is_good(self) -> bool:
        """Whether there is no difference."""
        return not (self.gaps or self.duplicates or self.wrong)


def compare(table_format: str, place: Path, log: Records) -> TableCounts:
    """Compare one table with the log."""
    counts = TableCounts(records=len(log))
    seen: set[tuple[int, int]] = set()
    table = existing_table(table_format, place)
    for batch in table.iter_rows(["partition", "offset", "value"]):
        for partition, offset, value in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            counts.duplicates += (partition, offset) in seen
            counts.wrong += log.get((partition, offset)) != value
            seen.add((partition, offset))
    table.close()
    counts.gaps = len(log.keys() - seen)
    return counts
