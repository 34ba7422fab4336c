"""A Delta table with one row per key, into which the newest rows of a batch are merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from splashdam.pipeline.tables.delta_table import delta_options, deltalake_module
from splashdam.pipeline.tables.locations import Location
from splashdam.pipeline.tables.opening import open_table
from splashdam.pipeline.tables.table import TableConflictError

if TYPE_CHECKING:
    import pyarrow as pa

_ATTEMPTS = 5


@attrs.frozen
class UpsertTable:
    """The table; made with the first batch if it is not there.

    Attributes:
        place: a folder, or an address in object storage.
        keys: columns that tell one row from the other, and are never null.
        newer: a column that grows with each version of a row. A row is not replaced by an older one.
        gone: an SQL condition over ``source``, whose rows delete.
        options: of the storage.
    """

    place: str
    keys: Sequence[str]
    newer: str
    gone: str
    options: Mapping[str, str] = attrs.field(factory=dict)

    def merge(self, rows: pa.Table, query: str, batch: int) -> bool:
        """Inserts, replaces and deletes in one commit of Delta's log, unless the batch is there already.

        Args:
            rows: at most one for each key.
            query: whose batch.
            batch: its number.

        Returns:
            Whether it was new.

        Raises:
            TableConflictError: others change the table all the time.
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
        merging = merging.when_not_matched_insert_all(predicate=f"NOT ({self.gone})")
        try:
            merging.execute()
        except CommitFailedError:
            return False
        return True
