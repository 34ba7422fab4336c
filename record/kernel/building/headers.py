"""Record headers: check what applications pass, and encode it.

A record carries its headers in order; keys are UTF-8 strings and may repeat, values are bytes or null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from splashdam.model.values import HeaderPairs
from splashdam.record.kernel.building.varint import encode_varint

NO_HEADERS = b"\x00"
_NULL = b"\x01"  # varint -1


class HeaderBlock(bytes):
    """Headers that ``encode_headers`` has encoded already."""

    __slots__ = ()


def checked_headers(headers: Any) -> tuple[tuple[str, bytes | None], ...]:
    """Copy ``headers`` to exactly the form that the encoders accept.

    Args:
        headers: a sequence of ``(str, bytes-like or None)`` pairs.

    Raises:
        TypeError: it is not a sequence of such pairs.
    """
    if isinstance(headers, str | bytes | bytearray | Mapping) or not isinstance(headers, Sequence):
        raise TypeError(
            f"headers must be a sequence of (str, bytes or None) pairs, not {type(headers).__name__}"
        )
    return tuple(_checked_pair(pair) for pair in tuple(headers))


def _checked_pair(pair: Any) -> tuple[str, bytes | None]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise TypeError(f"a header must be a (str, bytes or None) pair, not {type(pair).__name__}")
    key, value = pair
    if not isinstance(key, str):
        raise TypeError(f"a header's key must be str, not {type(key).__name__}")
    return key, None if value is None else as_bytes(value, "a header's value")


def as_bytes(data: Any, what: str) -> bytes:
    """Return the bytes of a bytes-like object; ``what`` names it in errors.

    Raises:
        TypeError: it is not bytes-like, or not contiguous.
    """
    if type(data) is bytes:
        return data
    try:
        view = memoryview(data)
    except TypeError:
        raise TypeError(f"{what} must be bytes-like or None, not {type(data).__name__}") from None
    if not view.c_contiguous:
        raise TypeError(f"{what} must be contiguous bytes")
    return view.tobytes()


def encode_headers(headers: HeaderPairs | HeaderBlock) -> bytes:
    """Encode the header part of a record: count, then key and value of each header.

    Raises:
        TypeError: as ``checked_headers``.
        UnicodeEncodeError: a key holds a lone surrogate.
    """
    if type(headers) is HeaderBlock:
        return headers
    if type(headers) is list:
        headers = tuple(headers)
    if type(headers) is not tuple or not all(map(is_exact_pair, headers)):
        headers = checked_headers(headers)
    parts = [encode_varint(len(headers))]
    for key, value in headers:
        # Not ``key.encode``, which a subclass of str may override.
        encoded_key = str.encode(key)
        parts.append(encode_varint(len(encoded_key)))
        parts.append(encoded_key)
        if value is None:
            parts.append(_NULL)
        else:
            parts.append(encode_varint(len(value)))
            parts.append(value)
    return b"".join(parts)


def header_block(headers: Any) -> bytes | None:
    """Encode a list or tuple of exact ``(str, bytes or None)`` pairs, or None for no headers.

    Return None for anything else, and raise nothing: the slow path reports what is wrong.
    """
    if headers is None:
        return NO_HEADERS
    if type(headers) is not list and type(headers) is not tuple:
        return None
    try:
        return encode_headers(tuple(headers)) if all(map(is_exact_pair, headers)) else None
    except UnicodeEncodeError:
        return None


def is_exact_pair(pair: object) -> bool:
    if type(pair) is not tuple or len(pair) != 2:
        return False
    key, value = pair
    return type(key) is str and (value is None or type(value) is bytes)
