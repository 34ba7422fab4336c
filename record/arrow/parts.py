"""Arrow data of any library, through the PyCapsule interface: taken over, checked, and given back once.

Nothing of Arrow has to be installed. The two structs of the C data interface are read through ``ctypes`` on
both twins, which costs some microseconds per chunk; the rows are the kernel's (``arrow_column.py``).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

from splashdam.model.errors import IllegalArgumentError
from splashdam.record.arrow.arrays import buffer, buffers, check_numbers, parts
from splashdam.record.arrow.rows import MoreColumns, select_more
from splashdam.record.arrow.schema import Selection, select
from splashdam.record.arrow.structs import (
    ArrowArray,
    ArrowArrayStream,
    ArrowSchema,
    Held,
    Stream,
    children,
    from_capsule,
    released_at_end,
)
from splashdam.record.kernel.bulk.blob_column import ArrowParts
from splashdam.record.kernel.bulk.header_lists import ListParts


class ArrowChunk(NamedTuple):
    """Some rows of the data.

    Attributes:
        values: the column of values.
        keys: the column of keys, None without.
        headers: the column of headers, None without.
        partitions, timestamps: a number or None of each row; None without such a column.
    """

    values: ArrowParts
    keys: ArrowParts | None
    headers: ListParts | None = None
    partitions: Sequence[int | None] | None = None
    timestamps: Sequence[int | None] | None = None


class ArrowSource:
    """Values and keys of something that speaks Arrow's PyCapsule interface, chunk by chunk::

        with ArrowSource(table, value="value", key="key", key_needed=False) as source:
            while (chunk := source.next()) is not None:
                ...

    A chunk keeps its memory as long as anybody refers to its ``owner``. Leaving the block ends the stream.

    Args:
        data: has ``__arrow_c_stream__`` or ``__arrow_c_array__``.
        value, key, key_needed: as ``arrow_schema.select``.
        headers, partition, timestamp_ms: names of the columns that have these of each row; None for none.

    Raises:
        TypeError: ``data`` has neither, or does not answer what it should.
        IllegalArgumentError: the columns are not there or not bytes, or the data are damaged.
    """

    def __init__(
        self,
        data: Any,
        *,
        value: str,
        key: str | None,
        key_needed: bool,
        headers: str | None = None,
        partition: str | None = None,
        timestamp_ms: str | None = None,
    ) -> None:
        self._stream: Stream | None = None
        self._array: Held | None = None
        try:
            with released_at_end(self._open(data)) as schema:
                self._selection = select(schema, value, key, key_needed=key_needed)
                self._more = select_more(schema, headers, partition, timestamp_ms)
        except BaseException:
            self.close()
            raise

    def _open(self, data: Any) -> Held:
        """Takes the data over; answers their schema."""
        kind = type(data).__name__
        if isinstance(data, type):
            pass
        elif hasattr(data, "__arrow_c_stream__"):
            giver = f"{kind}.__arrow_c_stream__()"
            capsule = data.__arrow_c_stream__()
            self._stream = Stream(from_capsule(capsule, b"arrow_array_stream", ArrowArrayStream, giver))
            return self._stream.schema()
        elif hasattr(data, "__arrow_c_array__"):
            giver = f"{kind}.__arrow_c_array__()"
            schema, array = data.__arrow_c_array__()
            self._array = from_capsule(array, b"arrow_array", ArrowArray, giver)
            return from_capsule(schema, b"arrow_schema", ArrowSchema, giver)
        raise TypeError(
            f"send_arrow() takes what has __arrow_c_stream__ or __arrow_c_array__ (a pyarrow or polars table,"
            f" for example), not {kind}; for a list of values there is send_many()"
        )

    @property
    def has_partitions(self) -> bool:
        """Whether there is a column of partitions."""
        return self._more.partition is not None

    @property
    def has_keys(self) -> bool:
        """Whether there is a column of keys."""
        return self._selection.key is not None

    def next(self) -> ArrowChunk | None:
        """The next rows; None at the end.

        Raises:
            IllegalArgumentError: the stream fails, or an array contradicts itself or the schema.
        """
        array = self._array if self._stream is None else self._stream.next()
        self._array = None
        return None if array is None else _chunk(array, self._selection, self._more)

    def close(self) -> None:
        """Ends the stream. Repeating it does nothing."""
        if self._stream is not None:
            self._stream.release()
        if self._array is not None:
            self._array.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _chunk(held: Held, selection: Selection, more: MoreColumns) -> ArrowChunk:
    array = held.struct
    if selection.value < 0:
        return ArrowChunk(parts(held, array, selection.value_type, 0, None), None)
    what = "the table"
    check_numbers(array, what)
    nulls = buffer(array, 0, what) if buffers(array, 1, what) else 0
    if nulls and array.null_count and _has_null(nulls, array.offset, array.length):
        raise IllegalArgumentError(f"{what} has rows that are null as a whole; fill or filter them first")
    columns = list(children(array, what))
    if len(columns) != selection.column_count:
        raise IllegalArgumentError(f"{what} has {len(columns)} columns, its schema {selection.column_count}")
    rows = (array.offset, array.length)
    values = parts(held, columns[selection.value], selection.value_type, *rows)
    keys = None
    if selection.key is not None and selection.key_type is not None:
        keys = parts(held, columns[selection.key], selection.key_type, *rows)
    return ArrowChunk(values, keys, *more.read(held, columns, *rows))


def _has_null(validity: int, first: int, length: int) -> bool:
    """Whether a bit of a row is not set."""
    if not length:
        return False
    low, high = first >> 3, (first + length + 7) >> 3
    bits = int.from_bytes(ctypes.string_at(validity + low, high - low), "little") >> (first & 7)
    wanted = (1 << length) - 1
    return bits & wanted != wanted
