"""Topics as a stream of files: the source of an ingest without a transformation.

A task fetches, decodes and writes its file in one go, so that records never cross to Spark's JVM and back;
what Spark sees are names of files. It plans, checkpoints and repeats as for ``kafka-local``, whose options it
has.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, InputPartition

from splashdam.pipeline.local_source.options import SourceOptions, source_options
from splashdam.pipeline.local_source.stream_reader import StreamReader
from splashdam.pipeline.option_values import from_text
from splashdam.pipeline.schema import all_columns
from splashdam.pipeline.tables.data_files import FILES_DDL, files_to_arrow
from splashdam.pipeline.tables.files_sink import WRITING
from splashdam.pipeline.tables.writing import Writing, write_files

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

FORMAT = "kafka-local-files"
"""Internal: `splashdam.pipeline.jobs.ingest` is how it is used."""


class IngestSource(DataSource):
    """The source; its options are those of ``kafka-local`` and a `Writing`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return FILES_DDL

    def streamReader(self, schema: StructType) -> IngestReader:
        given = {name: value for name, value in self.options.items() if name.lower() != WRITING}
        return IngestReader(source_options(given, streaming=True), from_text(self.options[WRITING]))


class IngestReader(StreamReader):
    """Plans as ``kafka-local`` does; its tasks write.

    Args:
        options: of the query.
        writing: how and where.
    """

    def __init__(self, options: SourceOptions, writing: Writing) -> None:
        super().__init__(options, all_columns(options.include_headers))
        self._writing = writing

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Writes the records of one task, and names the files; another attempt writes other files."""
        return files_to_arrow(write_files(self._writing, super().read(partition)))
