"""``kafka-log`` as a data source of Spark: slices are planned once, tasks read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.filters import EVERY_ROW, WantedRows, wanted_rows
from splashdam.pipeline.local_source.data_source import filters_come
from splashdam.pipeline.local_source.planning import batch_ranges
from splashdam.pipeline.log_source.batches import batch_columns, batch_ddl, read_batches
from splashdam.pipeline.log_source.offline_logs import OfflineLogs
from splashdam.pipeline.log_source.options import NAME, LogOptions, log_options
from splashdam.pipeline.log_source.records import RecordRules, read_records
from splashdam.pipeline.log_source.slices import LogSlice, ReadingRules
from splashdam.pipeline.schema import Columns, all_columns, columns_of, ddl

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamReader
    from pyspark.sql.types import StructType


class KafkaLogDataSource(DataSource):
    """Reads segment files as rows, without a broker: records, or with ``mode=batches`` record batches.

    Columns and options are those of ``kafka-local``, with ``path`` instead of a cluster's address;
    docs/reference/pipeline.md.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for ``spark.read.format``."""
        return NAME

    def schema(self) -> str:
        """Return all columns of the mode, ``headers`` among them with ``includeHeaders``."""
        options = log_options(self.options)
        return batch_ddl() if options.batches else ddl(all_columns(options.include_headers))

    def reader(self, schema: StructType) -> LogReader:
        """Return the reader of a batch query.

        Args:
            schema: the columns to read; ``DataFrameReader.schema`` may name a part of them.

        Raises:
            KafkaConfigurationError: an option or a column is invalid.
        """
        options = log_options(self.options)
        columns = batch_columns(schema) if options.batches else columns_of(schema, options.include_headers)
        return (FilteringLogReader if filters_come() else LogReader)(options, columns)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Refuse: files are not followed.

        Raises:
            KafkaConfigurationError: always.
        """
        raise KafkaConfigurationError(
            f"{NAME} reads files once and has no stream: use kafka-local, which follows a topic"
        )


class LogReader(DataSourceReader):
    """Reads without filters, which Spark applies to the rows.

    Args:
        options: of the query.
        columns: the columns to read; with ``mode=batches`` their names.
    """

    def __init__(self, options: LogOptions, columns: Columns | tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._wanted: WantedRows = EVERY_ROW

    def partitions(self) -> list[InputPartition]:
        """Return one task for each slice. Planning lists the directories, and keeps nothing."""
        options = self._options
        logs = OfflineLogs(
            options.locations,
            read_committed=options.read_committed,
            fails=options.fails,
            torn_ends=options.batches,
        )
        return [
            InputPartition(each)
            for whole in batch_ranges(options.selection, logs, self._wanted)
            for each in logs.slices(whole.where, whole.first, whole.end, max_bytes=options.max_bytes)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one slice; none for the partition without a value that Spark makes of an empty
        list."""
        if partition.value is None:
            return iter(())
        whole: LogSlice = partition.value
        options, columns = self._options, self._columns
        if not isinstance(columns, Columns):
            headers_only = not options.check_crcs
            return read_batches(
                whole, columns, ReadingRules(options.fails, options.check_crcs, headers_only=headers_only)
            )
        reading = ReadingRules(options.fails, is_checked_later=options.fails)
        since_ms = self._wanted.timestamps_ms.first
        return read_records(whole, RecordRules(columns, options.read_committed, since_ms, reading))


class FilteringLogReader(LogReader):
    """Skips batches that cannot pass the filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Keep the filters, and return all of them: only whole batches are skipped, so Spark must apply them
        again."""
        self._wanted = wanted_rows(filters)
        return filters
