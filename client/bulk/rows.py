"""What each record of a bulk has of its own: partition, timestamp and headers, as the kernels take them."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from splashdam.client.sending.headers import header_pairs
from splashdam.client.sending.numbers import check_partition, check_timestamp_ms
from splashdam.record.kernel import HeaderLists, header_block
from splashdam.record.kernel.building.headers import encode_headers
from splashdam.record.kernel.bulk.bulk import NULL_KEY_SLOT, ODD_KEY_SLOT

_HIGH_BYTE = 7 if sys.byteorder == "little" else 0
"""Of a number of 64 bits in an array: the byte with its sign."""


class RowParts(NamedTuple):
    """Of each record what is not the same for all; None where it is.

    Attributes:
        partitions: as given; None: by key, or the partitioner decides.
        slots: the same for the kernels.
        timestamps: milliseconds since the epoch.
        headers: as given.
        blocks: the same, encoded; None also where they are ``lists``.
        lists: the same, if they are a column of Arrow.
    """

    partitions: Sequence[Any] | None = None
    slots: array[int] | None = None
    timestamps: array[int] | None = None
    headers: Sequence[Any] | HeaderLists | None = None
    blocks: list[bytes] | None = None
    lists: HeaderLists | None = None


class Common(NamedTuple):
    """What all records have in common."""

    headers: Any
    partition: Any
    timestamp_ms: Any


def sort_out(
    count: int, headers: Any, partition: Any, timestamp_ms: Any, now_ms: int
) -> tuple[Common, RowParts]:
    """Tells what is given once for all ``count`` records from what is given for each.

    Raises:
        TypeError, ValueError, OverflowError: something is not what it must be; the text names the record.
    """
    each_headers = None if _is_one_for_all(headers) else _listed(headers)
    each_partition = _listed(partition) if _is_many(partition) else None
    each_timestamp = _listed(timestamp_ms) if _is_many(timestamp_ms) else None
    for what, given in (
        ("headers", each_headers),
        ("partitions", each_partition),
        ("timestamps", each_timestamp),
    ):
        if given is not None and len(given) != count:
            raise ValueError(f"{count} values, but {len(given)} {what}")
    common = Common(
        headers if each_headers is None else None,
        partition if each_partition is None else None,
        timestamp_ms if each_timestamp is None else None,
    )
    return common, row_parts(each_headers, each_partition, each_timestamp, now_ms)


def row_parts(
    headers: Sequence[Any] | HeaderLists | None,
    partitions: Sequence[Any] | None,
    timestamps: Sequence[Any] | None,
    now_ms: int,
    what: str = "record",
) -> RowParts:
    """The parts of records, checked; what is null in ``timestamps`` is ``now_ms``. Errors call each ``what``.

    Raises:
        TypeError, ValueError, OverflowError: one is not what it must be; the text names the record.
    """
    lists = headers if isinstance(headers, HeaderLists) else None
    return RowParts(
        partitions,
        None if partitions is None else _slots(partitions, what),
        None if timestamps is None else _timestamps(timestamps, now_ms, what),
        headers,
        None if headers is None or isinstance(headers, HeaderLists) else _encoded(headers, what),
        lists,
    )


def _is_many(given: Any) -> bool:
    return isinstance(given, Iterable) and not isinstance(given, str | bytes | bytearray | Mapping)


def _is_one_for_all(headers: Any) -> bool:
    """A dict, or pairs. What else is a list holds the headers of each record: None, a dict, or pairs."""
    if not _is_many(headers):
        return True
    if not isinstance(headers, list | tuple):
        return False
    first = headers[0] if headers else ("", None)
    return isinstance(first, list | tuple) and len(first) == 2 and isinstance(first[0], str)


def _listed(given: Any) -> Sequence[Any]:
    return given if isinstance(given, list | tuple) else list(given)


def _slots(partitions: Sequence[Any], what: str) -> array[int]:
    nulls = 0 if isinstance(partitions, array) else partitions.count(None)
    try:
        slots = array(
            "H", [NULL_KEY_SLOT if each is None else each for each in partitions] if nulls else partitions
        )
    except (TypeError, OverflowError):  # some are wrong, or large
        return array("H", _each(partitions, _slot, what))
    plain = ODD_KEY_SLOT not in slots and slots.count(NULL_KEY_SLOT) == nulls
    return slots if plain else array("H", _each(partitions, _slot, what))


def _slot(partition: Any) -> int:
    return NULL_KEY_SLOT if partition is None else min(check_partition(partition), ODD_KEY_SLOT)


def _timestamps(timestamps: Sequence[Any], now_ms: int, what: str) -> array[int]:
    try:
        nulls = not isinstance(timestamps, array) and None in timestamps
        taken = array("q", [now_ms if each is None else each for each in timestamps] if nulls else timestamps)
    except (TypeError, OverflowError):  # some are wrong, or of another type
        taken = array("q", (-1,))
    if taken.tobytes()[_HIGH_BYTE::8].isascii():  # no sign bit is set
        return taken
    return array(
        "q", _each(timestamps, lambda each: now_ms if each is None else check_timestamp_ms(each), what)
    )


def _encoded(headers: Sequence[Any], what: str) -> list[bytes]:
    blocks = [block for block in map(header_block, headers) if block is not None]
    if len(blocks) == len(headers):
        return blocks
    # There is a dict among them, for example, or a mistake.
    return list(_each(headers, lambda each: encode_headers(tuple(header_pairs(each))), what))


def _each(given: Iterable[Any], convert: Callable[[Any], Any], what: str) -> Iterable[Any]:
    for number, each in enumerate(given):
        try:
            yield convert(each)
        except UnicodeEncodeError as error:
            raise ValueError(f"{what} {number}: a header's key cannot be sent: {error}") from error
        except (TypeError, ValueError, OverflowError) as error:
            raise type(error)(f"{what} {number}: {error}") from error
