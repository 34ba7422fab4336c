"""``kafka-local`` as Spark knows it.

``kafka-local`` as a batch: ranges are planned once, tasks read them.
"""

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
"""The program of Spark's planning process that hands filters over."""


class KafkaLocalDataSource(DataSource):
    """Topics of a cluster as rows, and rows into topics, over the wire and without Spark's Kafka connector.

    Columns and options are those of Spark's ``kafka`` format; docs/pipeline.md has the differences.
    """

    @classmethod
    def name(cls) -> str:
        """The word for ``spark.read.format``."""
        return NAME

    def schema(self) -> str:
        """All columns, with ``headers`` where ``includeHeaders`` says so."""
        return ddl(all_columns(includes_headers(self.options)))

    def reader(self, schema: StructType) -> BatchReader:
        """Reads a batch.

        Args:
            schema: the columns that are read; ``DataFrameReader.schema`` may name fewer than there are.

        Raises:
            KafkaConfigurationError: an option or a column is wrong.
        """
        options = source_options(self.options, streaming=False)
        kind = FilteringBatchReader if filters_come() else BatchReader
        return kind(options, columns_of(schema, options.include_headers))

    def streamReader(self, schema: StructType) -> StreamReader:
        """Reads a stream; arguments and errors as of `reader`."""
        options = source_options(self.options, streaming=True)
        return StreamReader(options, columns_of(schema, options.include_headers))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Writes a batch, see `splashdam.pipeline.sink`."""
        from splashdam.pipeline.sink.writers import batch_writer

        return batch_writer(schema, self.options, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Writes a stream, see `splashdam.pipeline.sink`."""
        from splashdam.pipeline.sink.writers import stream_writer

        return stream_writer(schema, self.options, overwrite)


def filters_come() -> bool:
    """Whether this process is the one in which Spark hands filters to a reader.

    A reader that takes filters fails in every other process where pushdown is switched off, and no process is
    told of the switch. Where this is asked by mistake, filters stay with Spark, which is right, and slower.
    """
    main = getattr(sys.modules["__main__"], "__spec__", None)
    return PUSHING_WORKER in sys.modules or getattr(main, "name", None) == PUSHING_WORKER


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
        ranges = batch_ranges(self._options.selection, cluster, self._wanted)
        ids = topic_ids((each.where.topic for each in ranges), cluster)
        pieces = self._options.splitting(_cores()).split(ranges)
        return [InputPartition(each) for each in for_topics(pieces, ids)]

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
