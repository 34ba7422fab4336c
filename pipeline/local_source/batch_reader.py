"""``kafka-local`` as a batch: ranges are planned once, tasks read them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from splashdam.pipeline.filters import EVERY_ROW, WantedRows, wanted_rows
from splashdam.pipeline.local_source.batch_planning import batch_ranges
from splashdam.pipeline.local_source.options import SourceOptions
from splashdam.pipeline.local_source.reading import Reading
from splashdam.pipeline.local_source.topic_ids import for_topics, topic_ids
from splashdam.pipeline.schema import Columns

if TYPE_CHECKING:
    import pyarrow as pa


class BatchReader(DataSourceReader):
    """Reads without looking at filters, which Spark applies.

    Args:
        options: of the query.
        columns: those that are read.
    """

    def __init__(self, options: SourceOptions, columns: Columns) -> None:
        self._options = options
        self._reading = Reading.of(options, columns)
        self._wanted: WantedRows = EVERY_ROW

    def partitions(self) -> list[InputPartition]:
        """One for each task. Asks the cluster, and changes nothing."""
        cluster = self._reading.cluster()
        ranges = batch_ranges(self._options, cluster, self._wanted, _cores())
        ids = topic_ids((each.where.topic for each in ranges), cluster)
        return [InputPartition(each) for each in for_topics(ranges, ids)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one task; none of Spark's own partition, which stands for an empty list."""
        return iter(()) if partition.value is None else self._reading.read(partition.value)


class FilteringBatchReader(BatchReader):
    """Leaves out what cannot pass the filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Notes the filters, and returns them all: Spark applies them again, since what is left out is
        whole ranges of offsets."""
        self._wanted = wanted_rows(filters)
        return filters


def _cores() -> int:
    """Of this machine, which is the driver's; Spark tells a Python source of no others."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
