"""Where the rows of a batch are written, each batch once: a table or a topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import attrs

from splashdam.pipeline.tables.opening import open_table
from splashdam.pipeline.tables.streaming import FilesSink, table_schema, write_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EXACTLY_ONCE = "exactly_once"


class Output(Protocol):
    """Writes the rows of a batch; writing the same batch again changes nothing."""

    @property
    def takes_records(self) -> bool:
        """Whether rows become records: only key, value, headers and timestamp are written."""

    def write(self, rows: DataFrame, query: str, batch: int) -> None:
        """Write and commit a batch.

        Args:
            rows: of the batch.
            query: name of the query; outputs of one query that share a place need different names.
            batch: its number.
        """


@attrs.frozen
class TableOutput:
    """A table, created with the first batch if it does not exist.

    Attributes:
        table_format: ``parquet``, ``delta`` or ``iceberg``.
        place: a folder, or an address in object storage.
        partition_by: columns whose values are folders.
        options: of the storage and the catalog.
    """

    table_format: str
    place: str
    partition_by: Sequence[str] = ()
    options: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def takes_records(self) -> bool:
        """False: a table may have any columns."""
        return False

    def write(self, rows: DataFrame, query: str, batch: int) -> None:
        """See ``Output``.

        Raises:
            KafkaConfigurationError: the table has other columns or partitions.
            TableConflictError: other writers changed the table at every attempt.
        """
        schema = table_schema(rows)
        table = open_table(
            self.table_format, self.place, schema=schema, partition_by=self.partition_by, options=self.options
        )
        try:
            if not table.is_committed(query, batch):
                rows.sparkSession.dataSource.register(FilesSink)
                table.commit(query, batch, write_rows(rows, table.writing()))
        finally:
            table.close()


@attrs.frozen
class TopicOutput:
    """A topic, through the sink of ``kafka-local``.

    Attributes:
        topic: its name.
        kafka: options of the sink, ``kafka.bootstrap.servers`` among them.
        delivery: the sink's guarantee. With ``dedup`` a repeated batch is sent again, and readers drop it
            with `drop_duplicates`; with ``at_least_once`` it remains twice.
    """

    topic: str
    kafka: Mapping[str, str]
    delivery: str = EXACTLY_ONCE

    @property
    def takes_records(self) -> bool:
        return True

    def write(self, rows: DataFrame, query: str, batch: int) -> None:
        """See ``Output``. The columns of the sink except ``partition`` are sent."""
        sent = [name for name in ("key", "value", "headers", "timestamp") if name in rows.columns]
        writer = rows.select(*sent).write.format("kafka-local").mode("append").options(**self.kafka)
        writer.options(topic=self.topic, delivery=self.delivery, queryName=query, batchId=str(batch)).save()
