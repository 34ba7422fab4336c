"""What makes files of the rows of a DataFrame: a sink whose tasks write Parquet, and that commits nothing.

Spark's ``mapInArrow`` would do the same, and asks for pandas.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING

import attrs
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

from splashdam.model.errors import IllegalArgumentError
from splashdam.pipeline.option_values import from_text, to_text
from splashdam.pipeline.tables.data_files import DataFile, files_from_rows
from splashdam.pipeline.tables.writing import Writing, write_files

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

FORMAT = "splashdam-files"
"""Internal: tables are written through ``splashdam.pipeline.tables.streaming``."""
WRITING = "secret.writing"
"""Keys of object storage may be in it, and Spark hides options whose names say so."""
HAND_OVER = "handOver"


@attrs.frozen
class FilesWritten(WriterCommitMessage):
    """What a task wrote."""

    files: tuple[DataFile, ...]


class FilesSink(DataSource):
    """The sink; see ``write_rows``."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> FilesWriter:
        if overwrite:
            raise IllegalArgumentError(f"{FORMAT} appends")
        return FilesWriter(from_text(self.options[WRITING]), self.options[HAND_OVER])


@attrs.frozen
class FilesWriter(DataSourceArrowWriter):
    """Tasks write files; the driver side writes their names into one file, for the program to read.

    Attributes:
        writing: how and where.
        hand_over: a file on the driver's machine.
    """

    writing: Writing
    hand_over: str

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesWritten:
        """One task's rows; another attempt of it writes other files."""
        return FilesWritten(tuple(write_files(self.writing, iterator)))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Names the files of the attempts that won."""
        files = [file for message in messages if isinstance(message, FilesWritten) for file in message.files]
        with open(self.hand_over, "w", encoding="utf-8") as file:
            json.dump([attrs.astuple(each, recurse=False) for each in files], file)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Leaves the files: no table names them, and ``remove_orphans`` finds them."""


def write_rows(rows: DataFrame, writing: Writing) -> list[DataFile]:
    """Writes the rows of a batch, and says what the attempts that won wrote.

    The session must know `FilesSink`.
    """
    descriptor, hand_over = tempfile.mkstemp(prefix="splashdam-files-", suffix=".json")
    os.close(descriptor)
    options = {WRITING: to_text(writing), HAND_OVER: hand_over}
    try:
        rows.write.format(FORMAT).options(**options).mode("append").save()
        with open(hand_over, encoding="utf-8") as file:
            rows_of_files = json.load(file)
    finally:
        os.unlink(hand_over)
    return files_from_rows([(*row[:3], json.dumps(row[3]), row[4]) for row in rows_of_files])
