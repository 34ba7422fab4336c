"""Checks the arguments of ``send``: topic names, partitions, timestamps, headers, keys and values."""

from __future__ import annotations

import inspect
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from splashdam.model.errors import IllegalArgumentError
from splashdam.model.log_text import quoted, shown
from splashdam.model.values import HeaderPairs

# ``\Z``, since ``$`` would allow a newline at the end.
_LEGAL = re.compile(r"[A-Za-z0-9._-]{1,249}\Z")


def check_topic_name(topic: object) -> str:
    """Return ``topic`` if Kafka accepts it as a name (``Topic.validate``).

    Raises:
        TypeError: it is not a str.
        ValueError: it is empty, ``.`` or ``..``, longer than 249 characters, or holds a character outside
            ``[A-Za-z0-9._-]``.
    """
    if not isinstance(topic, str):
        raise TypeError(f"topic must be str, not {type(topic).__name__}")
    if topic in ("", ".", "..") or _LEGAL.match(topic) is None:
        raise ValueError(
            f"{quoted(topic)} is not a legal topic name: it must be 1 to 249 letters, digits, '.', '_'"
            " and '-', and not '.' or '..'"
        )
    return topic


_MAX_PARTITION = 2**31 - 1


def check_partition(partition: object) -> int:
    """Return ``partition`` if it is a possible partition number.

    Raises:
        TypeError: it is not an int, or a bool.
        ValueError: it is negative, or does not fit the protocol's 32 bits.
    """
    number = _whole("partition", partition)
    if number < 0:
        raise ValueError(f"partition must be 0 or more, not {number}")
    if number > _MAX_PARTITION:
        raise ValueError(f"partition must be at most {_MAX_PARTITION}, not {number}")
    return number


def check_timestamp_ms(timestamp_ms: object, name: str = "timestamp_ms") -> int:
    """Return ``timestamp_ms`` if it is a legal record timestamp.

    Args:
        timestamp_ms: milliseconds since the epoch.
        name: what the caller calls it, for errors.

    Raises:
        TypeError: it is not an int, or a bool.
        OverflowError: it does not fit 64 bits.
        IllegalArgumentError: it is negative, as in Java's ``ProducerRecord``. A ValueError.
    """
    number = _whole(name, timestamp_ms)
    if not -(2**63) <= number < 2**63:
        raise OverflowError(f"{name}={shown(number)} does not fit 64 bits; it is milliseconds since 1970")
    if number < 0:
        raise IllegalArgumentError(
            f"{name}={number} is negative; give milliseconds since 1970, or None for the present time"
        )
    return number


def _whole(name: str, value: object) -> int:
    # A flag that is passed in the wrong place would count as 0 or 1.
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    return operator.index(value)


_WANTED = "headers must be (str, bytes or None) pairs in a list, a tuple or a dict"


def header_pairs(headers: Any) -> list[tuple[str, bytes | None]]:
    """Return headers as a new list of ``(key, value)`` pairs; keys may repeat, values may be None.

    Args:
        headers: ``None``, a list or tuple of pairs (tuples or lists), or a mapping. Values are bytes-like or
            ``None``; bytearrays and memoryviews are copied, since the record may be encoded later.

    Raises:
        TypeError: for anything else; the message names the entry.
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
        raise TypeError(f"{_WANTED}; {shown(pair)} is not a pair")
    key, value = pair
    if not isinstance(key, str):
        raise TypeError(f"{_WANTED}; the key {shown(key)} is not a str")
    if value is None or type(value) is bytes:
        return key, value
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"{_WANTED}; the value of {shown(key)} is {type(value).__name__}")
    return key, bytes(value)


def check_header_keys(headers: HeaderPairs) -> None:
    """Refuse keys that cannot be sent. Called after the serializers, because they may add headers.

    Raises:
        IllegalArgumentError: a key holds half of a surrogate pair. A ValueError.
    """
    for key, _ in headers:
        # Not ``key.isascii``, which a subclass of str may override.
        if not str.isascii(key):
            try:
                str.encode(key)
            except UnicodeEncodeError as error:
                raise IllegalArgumentError(
                    f"a header's key cannot be sent: {quoted(key)} has half of a surrogate pair at position"
                    f" {error.start}, which UTF-8 has no bytes for"
                ) from error


def sendable_headers(pairs: Iterable[tuple[str, bytes | None]]) -> HeaderPairs:
    """Return what ``header_pairs`` made as a tuple.

    Raises:
        IllegalArgumentError: as ``check_header_keys``.
    """
    headers = tuple(pairs)
    check_header_keys(headers)
    return headers


UNKNOWN_COUNT = 99
"""The count of a callable with ``*args``, or without a signature."""


def positional_count(function: Callable[..., Any]) -> int:
    """Return the number of positional arguments of ``function``, without ``self``.

    It distinguishes the plug-in interfaces of kafka-python's versions, once, when they are configured. Trying
    a call and catching ``TypeError`` would call them twice and hide their own errors.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # built in C, without a signature
        return UNKNOWN_COUNT
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return UNKNOWN_COUNT
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(parameter.kind in positional for parameter in parameters)


def plain_bytes(data: Any, what: str) -> bytes | None:
    """Return a serialized key or value as bytes; a copy, since the caller may reuse its buffer.

    Raises:
        TypeError: it is neither bytes-like nor None.
    """
    if data is None or type(data) is bytes:
        return data
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(
            f"the {what} must be bytes-like or None once it is serialized, not {type(data).__name__};"
            f" set {what}_serializer"
        )
    return bytes(data)
