"""The columns that the sink takes, and a task's Arrow batches as rows for each topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs

from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.options import nearest_name
from splashdam.pipeline.sink.duplicates import with_identity
from splashdam.pipeline.sink.options import SinkOptions, need_writable
from splashdam.pipeline.sink.tasks import TaskIdentity

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_US = 1_000_000


class TopicRows(NamedTuple):
    """Rows of one topic.

    Attributes:
        topic: its name.
        rows: the columns to send, under the sink's names.
    """

    topic: str
    rows: pa.RecordBatch

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of ``send_arrow`` that name the columns."""
        names = self.rows.schema.names
        places = {"headers": HEADERS, "partition": PARTITION, "timestamp_ms": TIMESTAMP}
        found = {argument: name for argument, name in places.items() if name in names}
        return {**found, "key": KEY if KEY in names else None}


class RowReader:
    """Reads the batches of one task, in order.

    Args:
        columns: of the DataFrame.
        options: of the sink; its topic takes precedence over the column.
        identity: the task whose identity headers the rows get; None for no such headers.
    """

    def __init__(self, columns: SinkColumns, options: SinkOptions, identity: TaskIdentity | None) -> None:
        self._columns = columns
        self._topic = options.topic
        self._marker_topic = options.marker_topic
        self._identity = identity
        self._read = 0

    def read(self, batch: pa.RecordBatch) -> Iterator[TopicRows]:
        """Yield the rows of a batch by topic; those of one topic keep their order.

        Raises:
            KafkaConfigurationError: a row has no topic, or one that ``need_writable`` refuses.
        """
        first, self._read = self._read, self._read + batch.num_rows
        if not batch.num_rows:
            return
        rows = self._sent(batch, first)
        if self._topic is not None:
            yield TopicRows(self._topic, rows)
            return
        topics = batch.column(TOPIC)
        if topics.null_count:
            number = first + topics.is_null().index(True).as_py()
            raise KafkaConfigurationError(
                f"row {number} of the task has no topic: fill the column 'topic', or set the option"
            )
        found = topics.unique().to_pylist()
        for name in found:
            need_writable(name, self._marker_topic)
            mine = rows if len(found) == 1 else rows.filter(_equal(topics, name))
            yield TopicRows(name, mine)

    def _sent(self, batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
        import pyarrow as pa

        chosen = {name: batch.column(name) for name in (VALUE, KEY, PARTITION) if self._columns.has(name)}
        if self._columns.has(TIMESTAMP):
            times = batch.column(TIMESTAMP)
            chosen[TIMESTAMP] = _times(times) if self._columns.in_seconds else times
        headers = batch.column(HEADERS) if self._columns.has(HEADERS) else None
        if self._identity is not None:
            headers = with_identity(headers, self._identity, first, batch.num_rows)
        if headers is not None:
            chosen[HEADERS] = headers
        return pa.RecordBatch.from_arrays(list(chosen.values()), names=list(chosen))


def _equal(topics: pa.Array, name: str) -> pa.Array:
    import pyarrow.compute as pc

    return pc.equal(topics, name)


def _times(seconds: pa.Array) -> pa.Array:
    """Convert seconds to timestamps as Spark does, truncated to microseconds."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.trunc(pc.multiply(seconds, float(_US))).cast(pa.int64()).cast(pa.timestamp("us", tz="UTC"))


VALUE, KEY, TOPIC, HEADERS = "value", "key", "topic", "headers"
PARTITION, TIMESTAMP = "partition", "timestamp"

_BYTES = ("string", "binary")
_TYPES = {
    VALUE: _BYTES,
    KEY: _BYTES,
    TOPIC: ("string",),
    HEADERS: ("array<struct<key:string,value:binary>>",),
    PARTITION: ("int",),
    TIMESTAMP: ("timestamp", "double"),
}
"""The types that each column may have, as Spark writes them."""


@attrs.frozen
class SinkColumns:
    """The columns of a DataFrame that the sink uses; others are ignored, as in Spark's sink.

    Attributes:
        names: of the columns.
        in_seconds: whether ``timestamp`` is a number of seconds since the epoch.
    """

    names: frozenset[str]
    in_seconds: bool = False

    def has(self, name: str) -> bool:
        return name in self.names


def sink_columns(schema: StructType, topic: str | None) -> SinkColumns:
    """Check the columns of a DataFrame.

    Args:
        schema: of the DataFrame.
        topic: the option.

    Raises:
        KafkaConfigurationError: ``value`` is missing, or both column and option ``topic`` are, or a column
            has a type that the sink does not take.
    """
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    if VALUE not in types:
        raise KafkaConfigurationError(
            f"the DataFrame has no column 'value', it has {', '.join(types) or 'none'}."
            f"{nearest_name(VALUE, types)} Name the bytes or text to send: df.selectExpr('… AS value')"
        )
    if topic is None and TOPIC not in types:
        raise KafkaConfigurationError(
            "nothing says where the rows go: set the option 'topic', or add a column 'topic'"
        )
    for name, allowed in _TYPES.items():
        if name in types and types[name] not in allowed:
            raise KafkaConfigurationError(
                f"column {name!r} is {types[name]}; the sink takes {' or '.join(allowed)}. Cast or drop it"
            )
    return SinkColumns(frozenset(types) & frozenset(_TYPES), types.get(TIMESTAMP) == "double")
