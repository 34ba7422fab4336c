"""What every table promises, whatever its format."""

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
    """There is no such table."""


class TableFailedError(KafkaError):
    """A table's log cannot be read or written; the text says what the format's package makes of it."""

    remedy = "mend the table with the tools of its format, or take another folder"


class TableConflictError(KafkaError):
    """Somebody else changed the table again and again while a batch was to be committed."""

    remedy = "start again: what was committed is not repeated; let one query write a table at a time"


@attrs.frozen
class TablePart:
    """A file of a table as it is now.

    Attributes:
        path: below the table's location.
        partition: values of partition columns that the file itself may lack.
    """

    path: str
    partition: tuple[tuple[str, str | None], ...] = ()


class Table(ABC):
    """A table that takes a micro-batch exactly once.

    A batch is known by the query that makes it and its number: Spark's id of the query, which stays the same
    for as long as its checkpoint does, and the batch id, which is the same again when a batch is repeated.
    Numbers of one query ascend. Both are kept in the table's own log, in the same atomic step that makes the
    batch's files part of the table, so that no crash can come between the two.

    Attributes:
        location: where it is.
    """

    location: Location

    @classmethod
    @abstractmethod
    def open(cls, location: Location) -> Table:
        """One that is there.

        Raises:
            TableMissingError: it is not.
        """

    @classmethod
    @abstractmethod
    def create(cls, location: Location, schema: pa.Schema, partition_by: tuple[str, ...]) -> Table:
        """A new one; where it exists by now, that one."""

    @property
    @abstractmethod
    def partition_by(self) -> tuple[str, ...]:
        """Columns whose values choose the file, from the outermost folder on."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """Of its rows, with partition columns."""

    @abstractmethod
    def is_committed(self, query: str, batch: int) -> bool:
        """Whether this batch of this query, or a later one, is in the table."""

    @abstractmethod
    def commit(self, query: str, batch: int, files: Sequence[DataFile]) -> bool:
        """Make files part of the table, all or none, unless the batch is there already.

        Args:
            query: who wrote them.
            batch: which of its batches, from 0.
            files: what the tasks that won said they wrote; a batch without files is not remembered.

        Returns:
            Whether they are new; False where the batch was there, and these files are orphans.

        Raises:
            TableConflictError: others change the table all the time.
        """

    @abstractmethod
    def add_columns(self, fields: Sequence[pa.Field]) -> None:
        """Add columns at the end; rows that are there have nulls in them."""

    @abstractmethod
    def writing(self) -> Writing:
        """What tasks need to know, for the schema as it is now."""

    @abstractmethod
    def parts(self) -> list[TablePart]:
        """The files of the table as it is now.

        Raises:
            KafkaConfigurationError: rows were deleted through a format's deletion vectors or delete files,
                which are not read here.
        """

    @abstractmethod
    def _unreferenced(self, files: Sequence[StoredFile]) -> list[StoredFile]:
        """Which of the files of its folder no version of the table names."""

    def close(self) -> None:  # noqa: B027  (most formats keep nothing open)
        """Let go of what is open; the table can be opened again."""

    def evolve(self, schema: pa.Schema) -> None:
        """Make room for rows of a schema: columns that are new are added.

        Raises:
            KafkaConfigurationError: a column is there with another type.
        """
        now = self.schema
        for field in schema:
            if field.name in now.names and not same_type(now.field(field.name).type, field.type):
                raise KafkaConfigurationError(
                    f"{self.location.uri}: column {field.name} is {now.field(field.name).type}, and the rows "
                    f"have {field.type}; cast them, or name the column otherwise"
                )
        added = [field for field in schema if field.name not in now.names]
        if added:
            self.add_columns(added)

    def orphans(self, modified_before_ms: int) -> list[StoredFile]:
        """Files of attempts that failed or lost: in the table's folder, and in no version of the table.

        Args:
            modified_before_ms: younger files are left out, since a task may just be writing them.
        """
        stored = self.location.files()
        old = [file for file in stored if _is_ours(file.path) and file.modified_ms < modified_before_ms]
        return sorted(self._unreferenced(old)) if old else []

    def remove_orphans(self, modified_before_ms: int) -> list[StoredFile]:
        """Delete ``orphans``, and returns what they were."""
        found = self.orphans(modified_before_ms)
        for file in found:
            self.location.remove(file.path)
        return found

    def iter_rows(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """All rows, file by file, in no order.

        Args:
            columns: which; all of them by default.
        """
        for part in self.parts():
            yield from self.iter_part(part, columns)

    def iter_part(self, part: TablePart, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of one of its files; ``columns`` as of ``iter_rows``."""
        wanted = self.schema if columns is None else pa.schema([self.schema.field(name) for name in columns])
        yield from read_part(self.location, part, wanted)


def _is_ours(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.startswith("part-") and (name.endswith((".parquet", ".parquet.part")))


def same_type(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether two types hold the same values, whatever width their ends have."""
    return bool(plain_type(one).equals(plain_type(other)))


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type as Spark has it: with 32-bit ends, and no names or metadata of formats in lists."""
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
    """All columns with plain types, nullable and without metadata."""
    return pa.schema([pa.field(field.name, plain_type(field.type)) for field in schema])


def read_part(location: Location, part: TablePart, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of one file, with the columns of a schema: from the file, its partition values, or null."""
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
