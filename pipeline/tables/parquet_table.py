"""A folder of Parquet files with a log of our own, which readers that ignore the log read correctly.

::

    part-….parquet, date=…/part-….parquet     the table: every file of a committed batch, and no other
    _common_metadata                          the schema, in Parquet's form
    _commits/<query>/<batch>.json             the log: the files of a batch
    _staging/part-….parquet.part              files that are not committed

Tasks write into ``_staging``. A commit writes the batch's entry of the log, which is the decision, and then
moves the files to their places. After a crash between the two, the files are moved when the table is opened
next, or when the query's batches are looked up.
"""

from __future__ import annotations

import io
import json
import os
import uuid
from collections.abc import Sequence
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq

from splashdam.pipeline.tables.locations import Location, StoredFile
from splashdam.pipeline.tables.table import Table, TableMissingError, TablePart, plain_schema
from splashdam.pipeline.tables.writing import STAGING, DataFile, Writing, hive_value, staged_path

COMMITS = "_commits"
SCHEMA = "_common_metadata"
_PARTITION_BY = b"splashdam.partition_by"


class ParquetTable(Table):
    """A folder of Parquet files; made by ``open`` and ``create``."""

    def __init__(self, location: Location, schema: pa.Schema, partition_by: tuple[str, ...]) -> None:
        self.location = location
        self._schema = schema
        self._partition_by = partition_by
        self._newest: dict[str, int] = {}

    @classmethod
    def open(cls, location: Location) -> ParquetTable:
        """Open an existing table, and move files of decided batches to their places.

        Raises:
            TableMissingError: the folder has no ``_common_metadata``.
        """
        table = cls.look(location)
        table._settle_all()
        return table

    @classmethod
    def look(cls, location: Location) -> ParquetTable:
        try:
            stored = pq.read_schema(io.BytesIO(location.read_bytes(SCHEMA)))
        except FileNotFoundError as error:
            raise TableMissingError(f"{location.uri} holds no table: there is no {SCHEMA}") from error
        by = json.loads((stored.metadata or {}).get(_PARTITION_BY, b"[]"))
        return cls(location, plain_schema(stored), tuple(by))

    @classmethod
    def create(cls, location: Location, schema: pa.Schema, partition_by: tuple[str, ...]) -> ParquetTable:
        table = cls(location, plain_schema(schema), partition_by)
        table._write_schema()
        return table

    @property
    def partition_by(self) -> tuple[str, ...]:
        return self._partition_by

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def is_committed(self, query: str, batch: int) -> bool:
        """Look the batch up in the log, and complete the query's newest batch after a crash."""
        if query not in self._newest:
            self._settle(query)
        return self._newest[query] >= batch

    def commit(self, query: str, batch: int, files: Sequence[DataFile]) -> bool:
        """Write an entry of the log, then rename each file."""
        if not files or self.is_committed(query, batch):
            return False
        del self._newest[query]  # unknown until the batch is settled
        entry = json.dumps({"query": query, "batch": batch, "files": [file.as_json() for file in files]})
        # This write decides. After a crash from here on, `_settle` moves the files when the query is looked
        # up next.
        is_new = _put_new(self.location, _commit_path(query, batch), entry.encode())
        self._settle(query)
        return is_new

    def _settle_all(self) -> None:
        stored = self.location.files(COMMITS)
        for query in {unquote(file.path.split("/")[1]) for file in stored if file.path.endswith(".json")}:
            self._settle(query)

    def _settle(self, query: str) -> None:
        """Complete the query's newest batch."""
        folder = f"{COMMITS}/{quote(query, safe='')}"
        batches = [
            _batch_of(file.path) for file in self.location.files(folder) if file.path.endswith(".json")
        ]
        # Earlier ones need nothing: `commit` settles a query before it writes the next entry.
        newest = max(batches, default=-1)
        if newest >= 0:
            self._move(json.loads(self.location.read_bytes(_commit_path(query, newest)))["files"])
        self._newest[query] = newest

    def _move(self, files: list[dict[str, str]]) -> None:
        for path in [file["path"] for file in files]:
            staged = staged_path(path.rpartition("/")[2])
            # Otherwise an interrupted attempt has moved it already.
            if self.location.exists(staged):
                self.location.move(staged, path)

    def add_columns(self, fields: Sequence[pa.Field]) -> None:
        self._schema = plain_schema(pa.schema([*self._schema, *fields]))
        self._write_schema()

    def _write_schema(self) -> None:
        stored = self._schema.with_metadata({_PARTITION_BY: json.dumps(self._partition_by)})
        buffer = io.BytesIO()
        pq.write_metadata(stored, buffer)
        _put(self.location, SCHEMA, buffer.getvalue())

    def writing(self) -> Writing:
        """Files are staged; partition columns are in the folders' names, as in Hive."""
        return Writing(self.location, self._schema, self._partition_by, is_staged=True, has_hive_paths=True)

    def parts(self) -> list[TablePart]:
        self._settle_all()
        return [
            TablePart(file.path, _hive_partition(file.path))
            for file in self.location.files()
            if file.path.endswith(".parquet") and not _is_hidden(file.path)
        ]

    def _unreferenced(self, files: Sequence[StoredFile]) -> list[StoredFile]:
        # First, because files of a decided batch may still wait in ``_staging``.
        self._settle_all()
        staged = [file for file in files if file.path.startswith(f"{STAGING}/")]
        return [file for file in staged if self.location.exists(file.path)]


def _hive_partition(path: str) -> tuple[tuple[str, str | None], ...]:
    pairs = [folder.partition("=") for folder in path.split("/")[:-1]]
    return tuple((name, hive_value(value)) for name, _, value in pairs)


def _is_hidden(path: str) -> bool:
    return any(part.startswith(("_", ".")) for part in path.split("/"))


def _commit_path(query: str, batch: int) -> str:
    return f"{COMMITS}/{quote(query, safe='')}/{batch:020d}.json"


def _batch_of(path: str) -> int:
    return int(path.rpartition("/")[2].removesuffix(".json"))


def _put(location: Location, path: str, data: bytes) -> None:
    """Write a small file atomically: object storage does so by itself, other filesystems by a rename."""
    if location.is_s3:
        with location.open_output(path) as file:
            file.write(data)
        return
    aside = _write_aside(location, path, data)
    location.move(aside, path)


def _put_new(location: Location, path: str, data: bytes) -> bool:
    """Write a small file unless it exists; on disk only one of two concurrent writers succeeds."""
    if location.exists(path):
        return False
    if not location.is_local:
        _put(location, path, data)
        return True
    aside = _write_aside(location, path, data)
    try:
        # A rename would replace the entry of a concurrent writer; a link fails.
        os.link(location.full_path(aside), location.full_path(path))
    except FileExistsError:
        return False
    finally:
        location.remove(aside)
    return True


def _write_aside(location: Location, path: str, data: bytes) -> str:
    aside = f"{path}.{uuid.uuid4().hex}.tmp"
    with location.open_output(aside) as file:
        file.write(data)
    return aside
