"""``delivery=dedup``: the headers that identify a row, and `drop_duplicates` for readers.

A row that a retried task or a replayed batch wrote twice has equal headers in both records (query, batch,
partition, row number), as long as the batch is split into the same partitions with the same order of rows. So
the rule for readers is: of all records of a topic with equal values of these four headers, keep any one.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.sink.tasks import TaskIdentity

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_COLUMN = "__splashdam_identity"


def drop_duplicates(df: DataFrame, *, within_watermark: bool = False) -> DataFrame:
    """Keep one record of each row that a sink with ``delivery=dedup`` wrote, and all other records.

    In a stream Spark keeps its state for ever, unless ``within_watermark`` bounds it.

    Args:
        df: read from topics, with ``includeHeaders`` and the columns ``topic``, ``partition``, ``offset``.
        within_watermark: only look for duplicates within the stream's watermark
            (``df.withWatermark("timestamp", …)``), and forget older rows.

    Raises:
        KafkaConfigurationError: one of these columns is missing.
    """
    from pyspark.sql import functions as f

    needed = ("headers", "topic", "partition", "offset")
    missing = [name for name in needed if name not in df.columns]
    if missing:
        raise KafkaConfigurationError(
            f"drop_duplicates needs the columns {', '.join(needed)}, and {', '.join(missing)} is missing:"
            ' read with .option("includeHeaders", "true"), and drop columns afterwards'
        )
    place = f.concat_ws("/", f.lit("offset"), f.col("partition"), f.col("offset"))
    texts = [  # the last of each name: rows that were read from such a topic have older ones before
        f.expr(f"decode(get(reverse(filter(headers, h -> h.key = '{name}')), 0).value, 'utf-8')")
        for name in IDENTITY_HEADERS
    ]
    has_all = f.lit(True)
    for each in texts:
        has_all = has_all & each.isNotNull()
    identity = f.when(f.coalesce(has_all, f.lit(False)), f.concat_ws("/", *texts)).otherwise(place)
    marked = df.withColumn(_COLUMN, identity)
    keys = ["topic", _COLUMN]
    kept = marked.dropDuplicatesWithinWatermark(keys) if within_watermark else marked.dropDuplicates(keys)
    return kept.drop(_COLUMN)


QUERY_HEADER = "splashdam.query"
BATCH_HEADER = "splashdam.batch"
PARTITION_HEADER = "splashdam.partition"
ROW_HEADER = "splashdam.row"

IDENTITY_HEADERS = (QUERY_HEADER, BATCH_HEADER, PARTITION_HEADER, ROW_HEADER)
"""In this order, after the row's own headers."""

_COUNT = len(IDENTITY_HEADERS)


def with_identity(headers: pa.Array | None, task: TaskIdentity, first: int, count: int) -> pa.Array:
    """Return the headers of rows with identity headers added.

    Args:
        headers: lists of key and value, with nulls; None if the rows have none.
        task: that writes the rows.
        first: number of the first row in the task.
        count: number of rows.

    Returns:
        Lists of structs of a key and a value, both dictionary-encoded.
    """
    import pyarrow as pa

    entries = _identities(task, first, count)
    if headers is None or headers.null_count == count:
        offsets = array("i", range(0, _COUNT * (count + 1), _COUNT))
        return pa.ListArray.from_arrays(_int32(offsets), entries.coded())
    return _behind(headers, entries, count)


class _Entries(NamedTuple):
    """Distinct keys and values, and the codes of the headers in them."""

    keys: pa.Array
    values: pa.Array
    key_codes: pa.Array
    value_codes: pa.Array

    def coded(self) -> pa.Array:
        """Return the headers as structs of dictionary-encoded columns: no text is copied per row."""
        import pyarrow as pa

        keys = pa.DictionaryArray.from_arrays(self.key_codes, self.keys)
        values = pa.DictionaryArray.from_arrays(self.value_codes, self.values)
        return pa.StructArray.from_arrays([keys, values], names=["key", "value"])


def _identities(task: TaskIdentity, first: int, count: int) -> _Entries:
    """Return four headers for each row, row by row."""
    import pyarrow as pa

    same = [task.query, str(task.batch), str(task.partition)]
    numbers = pa.array(range(first, first + count), pa.int64()).cast(pa.string())
    values = pa.concat_arrays([pa.array(same), numbers]).cast(pa.binary())
    codes = array("i", range(_COUNT)) * count
    key_codes = _int32(codes[:])
    codes[_COUNT - 1 :: _COUNT] = array("i", range(_COUNT - 1, _COUNT - 1 + count))
    return _Entries(pa.array(IDENTITY_HEADERS, pa.string()), values, key_codes, _int32(codes))


def _behind(headers: pa.Array, own: _Entries, count: int) -> pa.Array:
    """Return the rows' own headers, each row's followed by its identity headers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    keys, values = headers.flatten().flatten()
    numbers, row_of_own = array("i", range(count)), array("i", bytes(4 * _COUNT * count))
    for place in range(_COUNT):
        row_of_own[place::_COUNT] = numbers
    rows = pa.concat_arrays([pc.list_parent_indices(headers).cast(pa.int32()), _int32(row_of_own)])
    order = pc.array_sort_indices(rows)  # a stable sort: own headers stay before identity headers
    theirs = _int32(array("i", range(len(keys))))
    both = _Entries(
        pa.concat_arrays([keys.cast(own.keys.type), own.keys]),
        pa.concat_arrays([values.cast(own.values.type), own.values]),
        pa.concat_arrays([theirs, pc.add(own.key_codes, len(keys)).cast(pa.int32())]).take(order),
        pa.concat_arrays([theirs, pc.add(own.value_codes, len(keys)).cast(pa.int32())]).take(order),
    )
    lengths = pc.add(pc.fill_null(pc.list_value_length(headers), 0), _COUNT)
    ends = pc.cumulative_sum(lengths).cast(pa.int32())
    return pa.ListArray.from_arrays(pa.concat_arrays([pa.array([0], pa.int32()), ends]), both.coded())


def _int32(numbers: array[int]) -> pa.Array:
    import pyarrow as pa

    return pa.Array.from_buffers(pa.int32(), len(numbers), [None, pa.py_buffer(numbers)])
