"""``kafka-local`` as Spark knows it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from splashdam.pipeline.local_source.batch_reader import BatchReader, FilteringBatchReader
from splashdam.pipeline.local_source.options import NAME, includes_headers, source_options
from splashdam.pipeline.local_source.stream_reader import StreamReader
from splashdam.pipeline.schema import all_columns, columns_of, ddl

if TYPE_CHECKING:
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
