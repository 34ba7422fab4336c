"""Delta tables, through ``deltalake``: a batch is a commit with an application transaction in it.

The transaction's id is the query's id, its version the batch's number. Delta keeps the newest version of each
id in its log and its log checkpoints, so a look-up needs no search; a concurrent commit with the same id is a
conflict."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.tables.locations import S3_TO_DELTA, Location, StoredFile
from splashdam.pipeline.tables.table import (
    Table,
    TableConflictError,
    TableMissingError,
    TablePart,
    plain_schema,
)
from splashdam.pipeline.tables.writing import DataFile, Writing

if TYPE_CHECKING:
    import deltalake

_ATTEMPTS = 5


class DeltaTable(Table):
    """A Delta table; made by ``open`` and ``create``."""

    def __init__(self, location: Location, table: deltalake.DeltaTable) -> None:
        self.location = location
        self._table = table

    @classmethod
    def open(cls, location: Location) -> DeltaTable:
        """Open an existing table.

        Raises:
            TableMissingError: it does not exist.
        """
        module = deltalake_module()
        from deltalake.exceptions import TableNotFoundError

        try:
            return cls(location, module.DeltaTable(location.uri, storage_options=delta_options(location)))
        except TableNotFoundError as error:
            raise TableMissingError(f"{location.uri} holds no Delta table") from error

    @classmethod
    def create(cls, location: Location, schema: pa.Schema, partition_by: tuple[str, ...]) -> DeltaTable:
        """Create a table; if it exists by now, open it."""
        table = deltalake_module().DeltaTable.create(
            location.uri,
            schema=schema,
            partition_by=list(partition_by),
            mode="ignore",
            storage_options=delta_options(location),
        )
        return cls(location, table)

    @property
    def partition_by(self) -> tuple[str, ...]:
        return tuple(self._table.metadata().partition_columns)

    @property
    def schema(self) -> pa.Schema:
        return plain_schema(pa.schema(self._table.schema().to_arrow()))

    def is_committed(self, query: str, batch: int) -> bool:
        """Compare with the version of the query's transaction."""
        self._table.update_incremental()
        version = self._table.transaction_version(query)
        return version is not None and version >= batch

    def commit(self, query: str, batch: int, files: Sequence[DataFile]) -> bool:
        """Add the files in one commit of Delta's log."""
        if not files or self.is_committed(query, batch):
            return False
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError

        properties = CommitProperties(app_transactions=[Transaction(query, batch)])
        for _ in range(_ATTEMPTS):
            with suppress(CommitFailedError):
                self._table.create_write_transaction(
                    _added(files),
                    "append",
                    self._table.schema(),
                    list(self.partition_by),
                    commit_properties=properties,
                )
                return True
            # Another driver may have committed this very batch. The look-up also loads the version to try on
            # next.
            if self.is_committed(query, batch):
                return False
        raise TableConflictError(f"batch {batch} could not be committed to {self.location.uri}")

    def add_columns(self, fields: Sequence[pa.Field]) -> None:
        added = deltalake_module().Schema.from_arrow(pa.schema(fields)).fields
        self._table.alter.add_columns(added)
        self._table.update_incremental()

    def writing(self) -> Writing:
        """Files are written to their final paths; only the log has the partition columns."""
        return Writing(self.location, self.schema, self.partition_by)

    def parts(self) -> list[TablePart]:
        self._table.update_incremental()
        if any(batch.num_rows for batch in self._table.deletion_vectors()):
            raise KafkaConfigurationError(f"{self.location.uri} has deletion vectors: purge them first")
        actions = pa.table(self._table.get_add_actions(flatten=True))
        prefix = "partition."
        columns = {
            name.removeprefix(prefix): actions.column(name).cast(pa.string()).to_pylist()
            for name in actions.column_names
            if name.startswith(prefix)
        }
        return [
            TablePart(path, tuple((name, values[at]) for name, values in columns.items()))
            for at, path in enumerate(actions.column("path").to_pylist())
        ]

    def _unreferenced(self, files: Sequence[StoredFile]) -> list[StoredFile]:
        self._table.update_incremental()
        # A full vacuum also lists files that were removed from the table, which older versions still need.
        without_log, removed = (
            self._table.vacuum(retention_hours=0, dry_run=True, enforce_retention_duration=False, full=full)
            for full in (True, False)
        )
        lost = set(without_log) - set(removed)
        return [file for file in files if file.path in lost]


def _added(files: Sequence[DataFile]) -> list[Any]:
    from deltalake.transaction import AddAction

    now_ms = int(time.time() * 1000)
    return [
        AddAction(file.path, file.size_bytes, dict(file.partition), now_ms, True, file.statistics)
        for file in files
    ]


def delta_options(location: Location) -> dict[str, str]:
    """Return a location's options by Delta's names."""
    given = dict(location.options)
    options = {theirs: given[name] for name, theirs in S3_TO_DELTA.items() if name in given}
    if options.get("AWS_ENDPOINT_URL", "").startswith("http://"):
        options["AWS_ALLOW_HTTP"] = "true"
    return options


def deltalake_module() -> Any:
    """Import ``deltalake``.

    Raises:
        KafkaConfigurationError: it is not installed.
    """
    try:
        import deltalake
    except ImportError as error:
        raise KafkaConfigurationError("Delta tables need: pip install 'splashdam[delta]'") from error
    return deltalake
