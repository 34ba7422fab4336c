"""The headers by which a reader knows a row again: query, batch, partition and number, all as text.

A row that a retried task or a replayed batch has written twice has equal headers in both records, as long as
the batch is split into the same partitions with the same order of rows. So the rule for readers is: of all
records of a topic with equal values of these four headers keep one, whichever.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from splashdam.pipeline.sink.tasks import TaskIdentity

if TYPE_CHECKING:
    import pyarrow as pa

QUERY_HEADER = "splashdam.query"
BATCH_HEADER = "splashdam.batch"
PARTITION_HEADER = "splashdam.partition"
ROW_HEADER = "splashdam.row"

IDENTITY_HEADERS = (QUERY_HEADER, BATCH_HEADER, PARTITION_HEADER, ROW_HEADER)
"""In this order, behind those that a row has itself."""

_COUNT = len(IDENTITY_HEADERS)


def with_identity(headers: pa.Array | None, task: TaskIdentity, first: int, count: int) -> pa.Array:
    """Headers of rows with their identities added.

    Args:
        headers: lists of key and value, with nulls; None: the rows have none.
        task: whose rows.
        first: number of the first row in the task.
        count: how many rows.
    """
    import pyarrow as pa

    own = _identities(task, first, count)
    if headers is None or headers.null_count == count:
        offsets = array("i", range(0, _COUNT * (count + 1), _COUNT))
        return pa.ListArray.from_arrays(_int32(offsets), own)
    return _behind(headers, own, count)


def _identities(task: TaskIdentity, first: int, count: int) -> pa.Array:
    """Four headers for each row, row by row, as structs of key and value."""
    import pyarrow as pa

    same = [task.query, str(task.batch), str(task.partition)]
    numbers = pa.array(range(first, first + count), pa.int64()).cast(pa.string())
    values = pa.concat_arrays([pa.array(same), numbers]).cast(pa.binary())
    which_value, which_key = array("i", bytes(4 * _COUNT * count)), array("i", bytes(4 * _COUNT * count))
    for place in range(_COUNT):
        which_key[place::_COUNT] = array("i", [place]) * count
        is_row = place == _COUNT - 1
        which_value[place::_COUNT] = array("i", range(place, place + count) if is_row else [place] * count)
    keys = pa.array(IDENTITY_HEADERS, pa.string())
    return pa.StructArray.from_arrays(
        [keys.take(_int32(which_key)), values.take(_int32(which_value))], names=["key", "value"]
    )


def _behind(headers: pa.Array, own: pa.Array, count: int) -> pa.Array:
    """The rows' own headers, then the identities."""
    import pyarrow as pa
    import pyarrow.compute as pc

    theirs = headers.flatten()
    row_of_own = array("i", bytes(4 * _COUNT * count))
    for place in range(_COUNT):
        row_of_own[place::_COUNT] = array("i", range(count))
    rows = pa.concat_arrays([pc.list_parent_indices(headers).cast(pa.int32()), _int32(row_of_own)])
    both = pa.concat_arrays([theirs.cast(own.type), own]).take(pc.array_sort_indices(rows))  # it is stable
    lengths = pc.add(pc.fill_null(pc.list_value_length(headers), 0), _COUNT)
    ends = pc.cumulative_sum(lengths).cast(pa.int32())
    return pa.ListArray.from_arrays(pa.concat_arrays([pa.array([0], pa.int32()), ends]), both)


def _int32(numbers: array[int]) -> pa.Array:
    import pyarrow as pa

    return pa.Array.from_buffers(pa.int32(), len(numbers), [None, pa.py_buffer(numbers)])
