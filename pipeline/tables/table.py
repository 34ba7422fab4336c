"""What every table guarantees, whatever its format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence

import attrs
import pyarrow as pa
import pyarrow.parquet as pq

from splashdam.model.errors import KafkaConfigurationError, KafkaError
from splashdam.pipeline.tables.locations import Location, StoredFile
from splashdam.pipeline.tables.writing import DataFile, Writing


class TableMissingError(KafkaConfigurationError):
    """The table does not exist."""


class TableFailedError(KafkaError):
    """A table's log cannot be read or written; the message is that of the format's package."""

    remedy = "repair the table with the tools of its format, or use another folder"


class TableConflictError(KafkaError):
    """Other writers changed the table at every attempt to commit a batch."""

    remedy = "start again: committed batches are not repeated; let only one query write to a table at a time"


@attrs.frozen
class TablePart:
    """A file of the table's current version.

    Attributes:
        path: relative to the table's location.
        partition: values of partition columns, which the file itself may lack.
    """

    path: str
    partition: tuple[tuple[str, str | None], ...] = ()


class Table(ABC):
    """A table that takes each micro-batch exactly once.

    A batch is identified by Spark's id of its query, which is the same as long as the checkpoint is, and its
    batch id, which is the same when a batch is repeated and ascends within a query. Both are written to the
    table's own log in the same atomic commit that adds the batch's files, so that no crash can separate the
    two.

    Attributes:
        location: of the table.
    """

    location: Location

    @classmethod
    @abstractmethod
    def open(cls, location: Location) -> Table:
        """Open an existing table.

        Raises:
            TableMissingError: it does not exist.
        """

    @classmethod
    def look(cls, location: Location) -> Table:
        """Open an existing table and change nothing, as ``open`` may do after a crash.

        Raises:
            TableMissingError: it does not exist.
        """
        return cls.open(location)

    @classmethod
    @abstractmethod
    def create(cls, location: Location, schema: pa.Schema, partition_by: tuple[str, ...]) -> Table:
        """Create a table; if it exists by now, open it."""

    @property
    @abstractmethod
    def partition_by(self) -> tuple[str, ...]:
        """Columns whose values determine a row's file, from the outermost folder inwards."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The schema of its rows, including partition columns."""

    @abstractmethod
    def is_committed(self, query: str, batch: int) -> bool:
        """Whether this batch of the query, or a later one, is in the table."""

    @abstractmethod
    def commit(self, query: str, batch: int, files: Sequence[DataFile]) -> bool:
        """Add all files of a batch atomically, unless the batch was committed already.

        Args:
            query: Spark's id of the query.
            batch: number of the batch, from 0.
            files: written by the task attempts that Spark accepted; a batch without files is not recorded.

        Returns:
            Whether the files were added; False if the batch was committed, which makes these files orphans.

        Raises:
            TableConflictError: other writers changed the table at every attempt.
        """

    @abstractmethod
    def add_columns(self, fields: Sequence[pa.Field]) -> None:
        """Add columns at the end; existing rows have nulls there."""

    @abstractmethod
    def writing(self) -> Writing:
        """Return what tasks need for writing with the current schema."""

    @abstractmethod
    def parts(self) -> list[TablePart]:
        """Return the files of the current version.

        Raises:
            KafkaConfigurationError: the table has deletion vectors or delete files, which are not supported.
        """

    @abstractmethod
    def _unreferenced(self, files: Sequence[StoredFile]) -> list[StoredFile]:
        """Return those files that no version of the table refers to."""

    def close(self) -> None:  # noqa: B027  (most formats keep nothing open)
        """Close what is open; the table can be opened again."""

    def lacking(self, schema: pa.Schema) -> list[pa.Field]:
        """Return the columns of a schema that the table lacks.

        Raises:
            KafkaConfigurationError: the table has a column with another type.
        """
        now = self.schema
        for field in schema:
            if field.name in now.names and not same_type(now.field(field.name).type, field.type):
                raise KafkaConfigurationError(
                    f"{self.location.uri}: column {field.name} is {now.field(field.name).type}, and the rows "
                    f"have {field.type}; cast them, or rename the column"
                )
        return [field for field in schema if field.name not in now.names]

    def evolve(self, schema: pa.Schema) -> None:
        """Add the columns of a schema that the table lacks.

        Raises:
            KafkaConfigurationError: the table has a column with another type.
        """
        added = self.lacking(schema)
        if added:
            self.add_columns(added)

    def orphans(self, modified_before_ms: int) -> list[StoredFile]:
        """Return files in the table's folder that no version refers to: failed or superseded attempts wrote
        them.

        Args:
            modified_before_ms: younger files are excluded, because a running task may be writing them.
        """
        stored = self.location.files()
        old = [file for file in stored if _is_ours(file.path) and file.modified_ms < modified_before_ms]
        return sorted(self._unreferenced(old)) if old else []

    def remove_orphans(self, modified_before_ms: int) -> list[StoredFile]:
        """Delete the files that ``orphans`` returns, and return them."""
        found = self.orphans(modified_before_ms)
        for file in found:
            self.location.remove(file.path)
        return found

    def iter_rows(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield all rows, file by file, in no particular order.

        Args:
            columns: to read; by default all.
        """
        for part in self.parts():
            yield from self.iter_part(part, columns)

    def iter_part(self, part: TablePart, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one file; ``columns`` as in ``iter_rows``."""
        wanted = self.schema if columns is None else pa.schema([self.schema.field(name) for name in columns])
        yield from read_part(self.location, part, wanted)


def _is_ours(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.startswith("part-") and (name.endswith((".parquet", ".parquet.part")))


def same_type(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether two types hold the same values, regardless of the width of their offsets."""
    return bool(plain_type(one).equals(plain_type(other)))


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type as Spark has it: with 32-bit offsets, and list items named ``element``."""
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", plain_type(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, plain_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    return kind


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema with plain types, all nullable, without metadata."""
    return pa.schema([pa.field(field.name, plain_type(field.type)) for field in schema])


def read_part(location: Location, part: TablePart, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one file with the columns of a schema: from the file, its partition values, or
    null."""
    values: Mapping[str, str | None] = dict(part.partition)
    with location.filesystem.open_input_file(location.full_path(part.path)) as source:
        file = pq.ParquetFile(source)
        there = [name for name in schema.names if name in file.schema_arrow.names]
        for batch in file.iter_batches(columns=there):
            columns = [_part_column(batch, field, values) for field in schema]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _part_column(batch: pa.RecordBatch, field: pa.Field, values: Mapping[str, str | None]) -> pa.Array:
    if field.name in batch.schema.names:
        column = batch.column(field.name)
        return column if column.type.equals(field.type) else column.cast(field.type)
    value = values.get(field.name)
    if value is None:
        return pa.nulls(batch.num_rows, field.type)
    return pa.repeat(pa.scalar(value, pa.string()), batch.num_rows).cast(field.type)
