"""Iceberg tables, through ``pyiceberg``: a batch is one snapshot.

The snapshot's summary has query and batch, for people and tools that list snapshots. The newest batch of each
query is also in a property of the table, written in the same commit. The property is authoritative, because
snapshots expire.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.tables.locations import Location, StoredFile
from splashdam.pipeline.tables.table import (
    Table,
    TableConflictError,
    TableMissingError,
    TablePart,
    plain_schema,
)
from splashdam.pipeline.tables.writing import DataFile, Writing

if TYPE_CHECKING:
    from pyiceberg import table as pyiceberg_table
    from pyiceberg.catalog import Catalog

QUERY = "splashdam.query"
BATCH = "splashdam.batch"
COMMITTED = "splashdam.committed."
"""Prefix of the table's properties; the query's id follows."""
NAMESPACE = "splashdam"
"""The default namespace."""
_CATALOG = "catalog."
_CATALOG_FILE = "catalog.sqlite"
_ATTEMPTS = 5
_NO_RETRIES = {"commit.retry.num-retries": "0"}


class IcebergTable(Table):
    """An Iceberg table; made by ``open`` and ``create``."""

    def __init__(self, location: Location, catalog: Catalog, table: pyiceberg_table.Table) -> None:
        self.location = location
        self._catalog = catalog
        self._table = table

    @classmethod
    def open(cls, location: Location) -> IcebergTable:
        """Open a table that its catalog has.

        Raises:
            TableMissingError: the catalog does not have it.
            KafkaConfigurationError: the options name no catalog, and the table is not on disk.
        """
        if _has_own_catalog(location) and not location.exists(_CATALOG_FILE):
            raise TableMissingError(f"{location.uri} holds no Iceberg table: there is no {_CATALOG_FILE}")
        name = identifier(location)
        with _closed_on_failure(_catalog(location)) as catalog:
            from pyiceberg.exceptions import NoSuchTableError

            try:
                return cls(location, catalog, catalog.load_table(name))
            except NoSuchTableError as error:
                raise TableMissingError(f"the catalog knows no table {name} for {location.uri}") from error

    @classmethod
    def create(cls, location: Location, schema: pa.Schema, partition_by: tuple[str, ...]) -> IcebergTable:
        """Create a table; if it exists by now, open it."""
        name = identifier(location)
        with _closed_on_failure(_catalog(location)) as catalog:
            from pyiceberg.exceptions import TableAlreadyExistsError

            catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
            with suppress(TableAlreadyExistsError):
                transaction = catalog.create_table_transaction(name, schema, location=location.uri)
                with transaction, transaction.update_spec() as spec:
                    for column in partition_by:
                        spec.add_identity(column)
            return cls(location, catalog, catalog.load_table(name))

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The columns with an identity partition transform."""
        names = self._table.schema().find_column_name
        fields = [field for field in self._table.spec().fields if str(field.transform) == "identity"]
        return tuple(name for field in fields if (name := names(field.source_id)))

    @property
    def schema(self) -> pa.Schema:
        return plain_schema(self._table.schema().as_arrow())

    def is_committed(self, query: str, batch: int) -> bool:
        """Look the batch up in the table's property, or, if it was removed, in the snapshots' summaries."""
        self._table.refresh()
        newest = self._table.properties.get(COMMITTED + query)
        if newest is not None:
            return int(newest) >= batch
        return max(self._batches_in_snapshots(query), default=-1) >= batch

    def _batches_in_snapshots(self, query: str) -> list[int]:
        summaries = [snapshot.summary for snapshot in self._table.snapshots() if snapshot.summary is not None]
        return [int(summary[BATCH] or -1) for summary in summaries if summary[QUERY] == query]

    def commit(self, query: str, batch: int, files: Sequence[DataFile]) -> bool:
        """Commit a snapshot with the files, and the property with the batch's number."""
        if not files or self.is_committed(query, batch):
            return False
        from pyiceberg.exceptions import CommitFailedException

        for _ in range(_ATTEMPTS):
            with suppress(CommitFailedException):
                self._commit_once(query, batch, [self.location.full_uri(file.path) for file in files])
                return True
            if self.is_committed(query, batch):
                return False
        raise TableConflictError(f"batch {batch} could not be committed to {self.location.uri}")

    def _commit_once(self, query: str, batch: int, paths: list[str]) -> None:
        # pyiceberg would retry after a concurrent commit, which may be that of this very batch. The property
        # that forbids it is set only in this copy of the metadata; only the changes below are committed.
        metadata = self._table.metadata
        given = {**metadata.properties, **_NO_RETRIES}
        self._table.metadata = metadata.model_copy(update={"properties": given})
        summary = {QUERY: query, BATCH: str(batch)}
        with self._table.transaction() as transaction:
            transaction.set_properties({COMMITTED + query: str(batch)})
            transaction.add_files(paths, snapshot_properties=summary, check_duplicate_files=False)

    def add_columns(self, fields: Sequence[pa.Field]) -> None:
        with self._table.update_schema() as update:
            update.union_by_name(pa.schema([*self.schema, *fields]))

    def writing(self) -> Writing:
        """Partition columns stay in the files: Iceberg reads their values there."""
        return Writing(
            self.location, self.schema, self.partition_by, folder="data", keeps_partition_columns=True
        )

    def parts(self) -> list[TablePart]:
        self._table.refresh()
        tasks = list(self._table.scan().plan_files())
        if any(task.delete_files for task in tasks):
            raise KafkaConfigurationError(f"{self.location.uri} has delete files: compact it first")
        return [TablePart(self.location.below(task.file.file_path)) for task in tasks]

    def _unreferenced(self, files: Sequence[StoredFile]) -> list[StoredFile]:
        self._table.refresh()
        paths = self._table.inspect.all_files().column("file_path").to_pylist()
        known = {self.location.below(path) for path in paths}
        return [file for file in files if file.path not in known]

    def close(self) -> None:
        """Close the catalog's connections."""
        _close(self._catalog)


def identifier(location: Location) -> str:
    """Return the table's name in its catalog: the option ``identifier``, or ``splashdam.`` and the folder's
    name.

    Dots in the folder's name become underscores, because they separate namespaces.
    """
    given = dict(location.options).get("identifier")
    name = given or f"{NAMESPACE}.{location.uri.rpartition('/')[2].replace('.', '_')}"
    if "." not in name:
        raise KafkaConfigurationError(f"identifier={name}: name the table as NAMESPACE.TABLE")
    return name


def _has_own_catalog(location: Location) -> bool:
    return location.is_local and not any(name.startswith(_CATALOG) for name, _ in location.options)


def _catalog(location: Location) -> Catalog:
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError as error:
        raise KafkaConfigurationError("Iceberg tables need: pip install 'splashdam[iceberg]'") from error
    properties = catalog_properties(location)
    return load_catalog(properties.pop("name", "splashdam"), **properties)


def catalog_properties(location: Location) -> dict[str, Any]:
    """Return pyiceberg's properties: options that begin with ``catalog.``, without that prefix, and ``s3.…``.

    Without ``catalog.…``, the catalog is a SQLite file beside the data.

    Raises:
        KafkaConfigurationError: the table is in object storage, where SQLite cannot work.
    """
    given = dict(location.options)
    catalog = {
        name.removeprefix(_CATALOG): value for name, value in given.items() if name.startswith(_CATALOG)
    }
    storage = {name: value for name, value in given.items() if name.startswith("s3.")}
    if not catalog:
        if not location.is_local:
            raise KafkaConfigurationError(
                f"{location.uri}: an Iceberg table in object storage needs a catalog; "
                "give catalog.type and catalog.uri"
            )
        location.filesystem.create_dir(location.root, recursive=True)
        catalog = {"type": "sql", "uri": f"sqlite:///{location.root}/{_CATALOG_FILE}"}
    return {"warehouse": location.uri, **storage, **catalog}


@contextmanager
def _closed_on_failure(catalog: Catalog) -> Iterator[Catalog]:
    try:
        yield catalog
    except BaseException:
        _close(catalog)
        raise


def _close(catalog: Catalog) -> None:
    close = getattr(catalog, "close", None)  # catalogs without connections have no close()
    if close is not None:
        close()
