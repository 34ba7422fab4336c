"""Keys, headers, partitions and timestamps that are not columns of the data, but arrays beside them.

Two libraries, or two calls of one, rarely cut their data into chunks of equal length. So each part is read in
its own chunks, and cut to rows that all parts have in common; nothing is copied for that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any, TypeAlias

from splashdam.model.errors import IllegalArgumentError
from splashdam.record.arrow.schema import column_type
from splashdam.record.arrow.source import ArrowChunk, ArrowSource, column_of, parts
from splashdam.record.arrow.structs import Arrays, Held, released_at_end
from splashdam.record.kernel.bulk.blob_column import ArrowParts
from splashdam.record.kernel.bulk.header_lists import ListParts

Part: TypeAlias = ArrowParts | ListParts | Sequence[Any]
"""Rows of one part: buffers of Arrow, or a sequence of objects."""


class ArrowRows:
    """The rows of an ``ArrowSource``, with parts of the rows from elsewhere; used like the source.

    Args:
        source: the data. It belongs to this object from now on.
        beside: by name (key, headers, partition, timestamp_ms) an Arrow array or stream of arrays, a sequence
            of objects, or ``repeat(value)`` for one value of all rows.

    Raises:
        TypeError, IllegalArgumentError: as ``ArrowSource``, for an array of another type than its part has.
    """

    def __init__(self, source: ArrowSource, beside: Mapping[str, Any]) -> None:
        self._source = source
        self._lines: dict[str, _Line] = {}
        self._row = 0
        self._chunk: ArrowChunk | None = None
        self._at = 0
        try:
            for name, given in beside.items():
                self._lines[name] = _line(name, given)
        except BaseException:
            self.close()
            raise

    @property
    def has_partitions(self) -> bool:
        """Whether there are partitions, one for each row."""
        return self._source.has_partitions or "partition" in self._lines

    @property
    def has_keys(self) -> bool:
        """Whether there are keys."""
        return self._source.has_keys or "key" in self._lines

    def next(self) -> ArrowChunk | None:
        """Return the next chunk; None at the end.

        Its ``keys``, ``headers``, ``partitions`` and ``timestamps`` are sequences where such were given.

        Raises:
            IllegalArgumentError: as ``ArrowSource.next``, or a part has more rows than another one.
        """
        if not self._lines:
            return self._source.next()
        while self._chunk is None or self._at == self._chunk.values.length:
            self._chunk, self._at = self._source.next(), 0
            if self._chunk is None:
                self._check_ends()
                return None
        count = self._chunk.values.length - self._at
        for name, line in self._lines.items():
            ahead = line.ahead()
            if not ahead:
                raise IllegalArgumentError(f"there are {self._row} {_FIELDS[name]}, but more values")
            count = min(count, ahead)
        start, end = self._at, self._at + count
        self._at, self._row = end, self._row + count
        fields: dict[str, Any] = {
            name: None if part is None else _cut(part, start, end)
            for name, part in self._chunk._asdict().items()
        }
        fields.update((_FIELDS[name], line.take(count)) for name, line in self._lines.items())
        return ArrowChunk(**fields)

    def _check_ends(self) -> None:
        for name, line in self._lines.items():
            if not isinstance(line, _Same) and line.ahead():
                raise IllegalArgumentError(f"there are {self._row} values, but more {_FIELDS[name]}")

    def close(self) -> None:
        """Release what was not read; a repeated call does nothing."""
        self._source.close()
        for line in self._lines.values():
            line.close()


_FIELDS = {"key": "keys", "headers": "headers", "partition": "partitions", "timestamp_ms": "timestamps"}
"""Fields of ``ArrowChunk``."""


class _Line:
    """A part of the rows: its chunks, of which a beginning was taken.

    Args:
        read: returns the next chunk, None at the end.
        close: releases what was not read.
    """

    def __init__(self, read: Callable[[], Part | None], close: Callable[[], None] = lambda: None) -> None:
        self.close = close
        self._read = read
        self._chunk: Part | None = ()
        self._at = 0

    def ahead(self) -> int:
        """Return how many rows can be taken together; 0 at the end."""
        while self._chunk is not None and self._at == _length(self._chunk):
            self._chunk, self._at = self._read(), 0
        return 0 if self._chunk is None else _length(self._chunk) - self._at

    def take(self, count: int) -> Part:
        """Take rows; at most as many as are ``ahead``."""
        start, self._at = self._at, self._at + count
        taken: Part = _cut(self._chunk, start, self._at)
        return taken


class _Same(_Line):
    """A line without an end, of one value."""

    def __init__(self, value: object) -> None:
        super().__init__(lambda: None)
        self._value = value

    def ahead(self) -> int:
        return 1 << 62

    def take(self, count: int) -> Part:
        return [self._value] * count


def _line(name: str, given: Any) -> _Line:
    if isinstance(given, repeat):
        return _Same(next(given))
    if isinstance(given, Sequence):
        whole = iter((given,))
        return _Line(lambda: next(whole, None))
    arrays = Arrays(given)
    try:
        with released_at_end(arrays.schema()) as schema:
            read = _reader(name, schema)
    except BaseException:
        arrays.release()
        raise

    def read_next() -> Part | None:
        held = arrays.next()
        return None if held is None else read(held)

    return _Line(read_next, arrays.release)


def _reader(name: str, schema: Any) -> Callable[[Held], Part]:
    what = f"the array of {_FIELDS[name]}"
    if name == "key":
        kind = column_type(schema, what)
        return lambda held: parts(held, held.struct, kind, 0, None)
    column = column_of(name, what, schema)
    return lambda held: column.read(held, held.struct, 0, held.struct.length)


def _length(part: Part) -> int:
    return part.length if isinstance(part, ArrowParts | ListParts) else len(part)


def _cut(part: Any, start: int, end: int) -> Any:
    """Return the rows from ``start`` to ``end``."""
    if isinstance(part, ArrowParts | ListParts):
        return part._replace(first=part.first + start, length=end - start)
    return part[start:end]
