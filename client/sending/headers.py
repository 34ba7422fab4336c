"""Record headers as applications write them, turned into the pairs a batch holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from splashdam.client.serializers import SerializerHeaders

_WANTED = "headers must be (str, bytes or None) pairs in a list, a tuple or a dict"


def header_pairs(headers: Any) -> SerializerHeaders:
    """A fresh list of ``(key, value)`` pairs in order; keys may repeat, a value may be null.

    Args:
        headers: ``None``, a list or tuple of pairs (tuples or lists), or a mapping. Values are bytes-like or
            ``None``; one that is not ``bytes`` is copied, since the record may be encoded later than now.

    Raises:
        TypeError: anything else; the text names the entry.
    """
    if headers is None:
        return []
    pairs: Iterable[Any]
    if isinstance(headers, list | tuple):
        pairs = headers
    elif isinstance(headers, Mapping):
        pairs = headers.items()
    else:
        raise TypeError(f"{_WANTED}, not {type(headers).__name__}")
    return [_pair(pair) for pair in pairs]


def _pair(pair: Any) -> tuple[str, bytes | None]:
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        raise TypeError(f"{_WANTED}; {pair!r} is not a pair")
    key, value = pair
    if not isinstance(key, str):
        raise TypeError(f"{_WANTED}; the key {key!r} is not a str")
    if value is None or type(value) is bytes:
        return key, value
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"{_WANTED}; the value of {key!r} is {type(value).__name__}")
    return key, bytes(value)
