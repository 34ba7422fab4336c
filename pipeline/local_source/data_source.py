"""``kafka-local`` as a data source of Spark, and its batch reader: ranges are planned once, tasks read
them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition

from splashdam.pipeline.filters import EVERY_ROW, WantedRows, wanted_rows
from splashdam.pipeline.local_source.options import NAME, SourceOptions, includes_headers, source_options
from splashdam.pipeline.local_source.planning import batch_ranges, for_topics, topic_ids
from splashdam.pipeline.local_source.reading import Reading
from splashdam.pipeline.local_source.stream_reader import StreamReader
from splashdam.pipeline.schema import Columns, all_columns, columns_of, ddl

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType

PUSHING_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"
"""The module of the worker process in which Spark pushes filters down."""


class KafkaLocalDataSource(DataSource):
    """Reads topics of a cluster as rows, and writes rows into topics, without Spark's Kafka connector.

    Columns and options are those of Spark's ``kafka`` format; docs/reference/pipeline.md lists the
    differences.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for ``spark.read.format``."""
        return NAME

    def schema(self) -> str:
        """Return all columns, ``headers`` among them with ``includeHeaders``."""
        return ddl(all_columns(includes_headers(self.options)))

    def reader(self, schema: StructType) -> BatchReader:
        """Return the reader of a batch query.

        Args:
            schema: the columns to read; ``DataFrameReader.schema`` may name a part of them.

        Raises:
            KafkaConfigurationError: an option or a column is invalid.
        """
        options = source_options(self.options, streaming=False)
        kind = FilteringBatchReader if filters_come() else BatchReader
        return kind(options, columns_of(schema, options.include_headers))

    def streamReader(self, schema: StructType) -> StreamReader:
        """Return the reader of a stream; arguments and errors as in `reader`."""
        options = source_options(self.options, streaming=True)
        return StreamReader(options, columns_of(schema, options.include_headers))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch job, see `splashdam.pipeline.sink`."""
        from splashdam.pipeline.sink.writers import batch_writer

        return batch_writer(schema, self.options, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of a stream, see `splashdam.pipeline.sink`."""
        from splashdam.pipeline.sink.writers import stream_writer

        return stream_writer(schema, self.options, overwrite)


def filters_come() -> bool:
    """Whether Spark pushes filters down in this process.

    A reader with ``pushFilters`` fails in every other process if pushdown is switched off, and no process is
    informed of that setting. A wrong "no" only leaves all filters to Spark, which is correct but slower.
    """
    main = getattr(sys.modules["__main__"], "__spec__", None)
    return PUSHING_WORKER in sys.modules or getattr(main, "name", None) == PUSHING_WORKER


class BatchReader(DataSourceReader):
    """Reads without filters, which Spark applies to the rows.

    Args:
        options: of the query.
        columns: the columns to read.
    """

    def __init__(self, options: SourceOptions, columns: Columns) -> None:
        self._options = options
        self._reading = Reading.of(options, columns)
        self._wanted: WantedRows = EVERY_ROW

    def partitions(self) -> list[InputPartition]:
        """Return the tasks. Planning sends requests to the cluster, and keeps nothing."""
        cluster = self._reading.cluster()
        ranges = batch_ranges(self._options.selection, cluster, self._wanted)
        ids = topic_ids((each.where.topic for each in ranges), cluster)
        pieces = self._options.splitting(_cores()).split(ranges)
        return [InputPartition(each) for each in for_topics(pieces, ids)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task; none for the partition without a value that Spark makes of an empty
        list."""
        return iter(()) if partition.value is None else self._reading.read(partition.value)


class FilteringBatchReader(BatchReader):
    """Skips ranges of offsets that cannot pass the filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Keep the filters, and return all of them: only whole ranges are skipped, so Spark must apply them
        again."""
        self._wanted = wanted_rows(filters)
        return filters


def _cores() -> int:
    """Cores of the driver's machine; Spark tells a Python source nothing about its executors."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
