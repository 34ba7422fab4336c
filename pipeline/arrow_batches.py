"""Decoded records as Arrow's record batches: the kernel's buffers as they are, constants made once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from splashdam.model.values import TopicPartition
from splashdam.pipeline.schema import Columns
from splashdam.record.columns import BytesColumn, HeaderColumns, RecordColumns

_MS, _US = pa.timestamp("ms", tz="UTC"), pa.timestamp("us", tz="UTC")
_LATEST_MS = ((1 << 63) - 1) // 1000
_HEADER = (("key", pa.string()), ("value", pa.binary()))
_HEADER_FIELDS = [pa.field(*each) for each in _HEADER]
_HEADERS = pa.list_(pa.field("element", pa.struct(_HEADER_FIELDS)))

TypeRuns = Sequence[tuple[int, int]]
"""How many records have which timestamp type, in their order."""


class Constant:
    """One value as a column of any length. Columns share its memory, which grows to the longest.

    Args:
        value: what each row has.
        kind: its type.
    """

    def __init__(self, value: object, kind: pa.DataType) -> None:
        self._scalar = pa.scalar(value, kind)
        self._array = pa.repeat(self._scalar, 1024)

    def column(self, rows: int) -> pa.Array:
        """So many rows of it."""
        if rows > len(self._array):
            self._array = pa.repeat(self._scalar, max(rows, 2 * len(self._array)))
        return self._array.slice(0, rows)


class BatchMaker:
    """Makes record batches of one partition's records.

    Args:
        where: the partition.
        columns: which columns, in which order.
    """

    def __init__(self, where: TopicPartition, columns: Columns) -> None:
        self._schema, self._names = columns.arrow, columns.names
        self._topic = Constant(where.topic, pa.string())
        self._partition = Constant(where.partition, pa.int32())
        self._types = {kind: Constant(kind, pa.int32()) for kind in (-1, 0, 1)}

    def batch(self, records: RecordColumns, types: TypeRuns) -> pa.RecordBatch:
        """A record batch that shares the records' memory.

        Args:
            records: with the columns that are asked for.
            types: the timestamp types; their counts add up to that of the records.
        """
        rows = len(records)
        make = {
            "key": partial(_binary, pa.binary(), records.keys),
            "value": partial(_binary, pa.binary(), records.values),
            "topic": partial(self._topic.column, rows),
            "partition": partial(self._partition.column, rows),
            "offset": partial(_numbers, pa.int64(), records.offsets),
            "timestamp": partial(_timestamps, records.timestamps_ms),
            "timestampType": partial(self._timestamp_types, types),
            "headers": partial(_headers, records.headers),
        }
        return pa.RecordBatch.from_arrays([make[name]() for name in self._names], schema=self._schema)

    def _timestamp_types(self, runs: TypeRuns) -> pa.Array:
        arrays = [self._types[kind].column(rows) for rows, kind in runs]
        return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _numbers(kind: pa.DataType, numbers: memoryview) -> pa.Array:
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def _binary(kind: pa.DataType, column: BytesColumn | None) -> pa.Array:
    assert column is not None  # it was asked for
    buffers = [column.validity, column.offsets, column.data]
    wrapped = [None if each is None else pa.py_buffer(each) for each in buffers]
    return pa.Array.from_buffers(kind, len(column), wrapped, column.null_count)


def _timestamps(timestamps_ms: memoryview) -> pa.Array:
    """In microseconds. What is beyond them, 292,277 years from 1970, becomes the last or the first."""
    found = _numbers(_MS, timestamps_ms)
    try:
        return found.cast(_US)
    except pa.ArrowInvalid:
        bounded = pc.max_element_wise(pc.min_element_wise(found.view(pa.int64()), _LATEST_MS), -_LATEST_MS)
        return bounded.view(_MS).cast(_US)


def _headers(headers: HeaderColumns | None) -> pa.Array:
    """A list for each record, null where it has no headers, as Spark's own source has it."""
    assert headers is not None  # they were asked for
    ends = _numbers(pa.int32(), headers.ends)
    rows = len(ends) - 1
    has_some: Any = pc.greater(ends.slice(1), ends.slice(0, rows))
    pairs = pa.StructArray.from_arrays(
        [
            _binary(kind, column)
            for (_, kind), column in zip(_HEADER, (headers.keys, headers.values), strict=True)
        ],
        fields=_HEADER_FIELDS,
    )
    buffers = [has_some.buffers()[1], pa.py_buffer(headers.ends)]
    return pa.Array.from_buffers(_HEADERS, rows, buffers, rows - has_some.true_count, children=[pairs])
