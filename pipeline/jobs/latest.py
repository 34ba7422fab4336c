"""``latest``: the newest value of each key, as log compaction would leave it.

A key belongs to its partition, as for the broker: offsets of different partitions cannot be compared, so a
key that was written to two partitions, perhaps because partitions were added, has two rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import attrs

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.jobs.continuing import need_table
from splashdam.pipeline.jobs.micro_batches import Batch, Running, held, run_batches
from splashdam.pipeline.jobs.outputs import Output, TableOutput
from splashdam.pipeline.tables.delta_table import delta_options, deltalake_module
from splashdam.pipeline.tables.locations import Location
from splashdam.pipeline.tables.opening import open_table
from splashdam.pipeline.tables.table import TableConflictError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


_ATTEMPTS = 5


@attrs.frozen
class UpsertTable:
    """A Delta table into which rows are merged; created with the first batch if it does not exist.

    Attributes:
        place: a folder, or a URI in object storage.
        keys: columns that identify a row, and are never null.
        newer: a column that grows with each version of a row. A row is not replaced by an older one.
        gone: an SQL condition over ``source``; rows that satisfy it delete.
        options: of the storage.
    """

    place: str
    keys: Sequence[str]
    newer: str
    gone: str
    options: Mapping[str, str] = attrs.field(factory=dict)

    def merge(self, rows: pa.Table, query: str, batch: int) -> bool:
        """Inserts, replaces and deletes in one commit of Delta's log, unless the batch is committed already.

        Args:
            rows: at most one for each key.
            query: name of the query.
            batch: its number.

        Returns:
            Whether the batch was new.

        Raises:
            TableConflictError: other writers changed the table at every attempt.
        """
        table = open_table("delta", self.place, schema=rows.schema, options=self.options)
        try:
            if table.is_committed(query, batch) or not rows.num_rows:
                return False
        finally:
            table.close()
        location = Location.of(self.place, self.options)
        delta = deltalake_module().DeltaTable(location.uri, storage_options=delta_options(location))
        for _ in range(_ATTEMPTS):
            if self._try(delta, rows, query, batch):
                return True
            delta.update_incremental()
            version = delta.transaction_version(query)
            if version is not None and version >= batch:
                return False
        raise TableConflictError(f"batch {batch} could not be merged into {location.uri}")

    def _try(self, delta: Any, rows: pa.Table, query: str, batch: int) -> bool:
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError

        same = " AND ".join(f"target.`{key}` = source.`{key}`" for key in self.keys)
        newer = f"source.`{self.newer}` > target.`{self.newer}`"
        merging = delta.merge(
            rows,
            predicate=same,
            source_alias="source",
            target_alias="target",
            commit_properties=CommitProperties(app_transactions=[Transaction(query, batch)]),
        )
        merging = merging.when_matched_delete(predicate=f"{newer} AND {self.gone}")
        merging = merging.when_matched_update_all(predicate=newer)
        # A deleted key has no offset to compare with: only the order of batches keeps its older rows out.
        merging = merging.when_not_matched_insert_all(predicate=f"NOT ({self.gone})")
        try:
            merging.execute()
        except CommitFailedError:
            return False
        return True


KEYS = ("topic", "partition", "key")
_NEEDED = (*KEYS, "offset", "value")
_NEWEST, _ROWS = "__newest", "__rows"


@attrs.define
class LatestReport:
    """Totals of a run of ``latest``; batches that an earlier run finished count, too.

    Attributes:
        batches: batches with rows.
        records: records that were read.
        without_key: records that were dropped, because a compacted topic does not accept them.
        keys: newest rows that were written; in a stream a key counts once per batch.
        tombstones: newest rows with a null value, whose keys were deleted.
    """

    batches: int = 0
    records: int = 0
    without_key: int = 0
    keys: int = 0
    tombstones: int = 0


def newest(rows: DataFrame) -> DataFrame:
    """Return the row with the highest offset of each topic, partition and key, including tombstones.

    Args:
        rows: a batch DataFrame with ``topic``, ``partition``, ``offset``, ``key`` and ``value``; other
            columns are kept. Rows without a key are dropped.

    Raises:
        KafkaConfigurationError: a column is missing.
    """
    return _plain(_grouped(rows).where("key IS NOT NULL"), rows)


def latest(rows: DataFrame) -> DataFrame:
    """Return the newest row of each key, without keys whose newest value is null, of a batch DataFrame.

    Raises:
        KafkaConfigurationError: see ``newest``.
    """
    return newest(rows).where("value IS NOT NULL")


def latest_into(source: DataFrame, output: Output, running: Running) -> LatestReport:
    """Write what ``latest`` returns for a batch DataFrame.

    Raises:
        KafkaConfigurationError: a column is missing, or ``source`` is a stream: use ``latest_into_delta``.
        KafkaError: raised by the output.
    """
    if source.isStreaming:
        raise KafkaConfigurationError(
            "the newest values of a stream replace older ones, which needs a Delta table"
        )
    report = LatestReport()

    def step(batch: Batch) -> int:
        with _counted(batch, report) as (rows, count):
            output.write(rows.where("value IS NOT NULL"), f"{batch.query}-latest", batch.number)
        return count

    run_batches(source, step, running)
    return report


def latest_into_delta(
    source: DataFrame, place: str, running: Running, options: Mapping[str, str] | None = None
) -> LatestReport:
    """Keep a Delta table at the newest value of each key, with one commit per micro-batch.

    The newest rows of a batch, one for each of its keys, pass through the driver: if they exceed its memory,
    read fewer records at a time (``maxOffsetsPerTrigger``).

    Args:
        source: batch or stream; see ``newest`` for its columns.
        place: of the table: a folder, or a URI in object storage.
        running: checkpoint, name and interval.
        options: of the storage.

    Raises:
        KafkaConfigurationError: a column is missing, a stream has no checkpoint, or one that is not new, as
            the table is; or deltalake is not installed.
        TableConflictError: other writers changed the table at every attempt.
    """
    if source.isStreaming and running.checkpoint is not None:
        need_table(running.checkpoint, TableOutput("delta", place, options=options or {}))
    report = LatestReport()
    table = UpsertTable(place, KEYS, "offset", "source.value IS NULL", options or {})

    def step(batch: Batch) -> int:
        from splashdam.pipeline.tables.streaming import table_schema

        with _counted(batch, report) as (rows, count):
            table.merge(rows.toArrow().cast(table_schema(rows)), f"{batch.query}-latest", batch.number)
        return count

    run_batches(source, step, running)
    return report


@contextmanager
def _counted(batch: Batch, report: LatestReport) -> Iterator[tuple[DataFrame, int]]:
    """Yield the newest rows of a batch, which is read once, and its number of rows; update the report."""
    with held(_grouped(batch.rows)) as groups:
        found = groups.selectExpr(
            f"coalesce(sum({_ROWS}), 0) AS records",
            f"coalesce(sum({_ROWS}) FILTER (WHERE key IS NULL), 0) AS without_key",
            "count(key) AS newest",
            f"count_if(key IS NOT NULL AND {_NEWEST}.value IS NULL) AS tombstones",
        ).first()
        assert found is not None, "an aggregate has one row"
        report.batches += found["records"] > 0
        report.records += found["records"]
        report.without_key += found["without_key"]
        report.keys += found["newest"] - found["tombstones"]
        report.tombstones += found["tombstones"]
        yield _plain(groups.where("key IS NOT NULL"), batch.rows), int(found["records"])


def _grouped(rows: DataFrame) -> DataFrame:
    """Group by key, null included: the newest row, and the number of rows."""
    from pyspark.sql import functions as F

    missing = [name for name in _NEEDED if name not in rows.columns]
    if missing:
        raise KafkaConfigurationError(f"latest needs column {missing[0]!r}, as Kafka's sources have it")
    others = F.struct(*(F.col(name) for name in rows.columns if name not in KEYS))
    return rows.groupBy(*KEYS).agg(
        F.max_by(others, F.col("offset")).alias(_NEWEST),
        F.count(F.lit(1)).alias(_ROWS),
    )


def _plain(groups: DataFrame, rows: DataFrame) -> DataFrame:
    """Restore the original columns."""
    return groups.select(*(name if name in KEYS else f"{_NEWEST}.{name}" for name in rows.columns))
