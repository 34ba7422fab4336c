"""How ``tail`` writes a record: as a value, in full, as JSON, or by a format string."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from splashdam.cli.parameters import given_bytes
from splashdam.model.values import TopicPartition
from splashdam.record.json_lines import render_json
from splashdam.record.record import Record

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Render = Callable[[TopicPartition, Record], bytes]
"""Returns the bytes of a record; `renderer` and `format_renderer` make them."""

FORMATS = ("value", "full", "json")
"""The values of ``--format``."""


def renderer(format_name: str, null: bytes | None) -> Render:
    """Return what writes a record as a line, its newline included.

    Args:
        format_name: of `FORMATS`.
        null: stands for a null value; None: an empty line, or ``(null)`` in full.
    """
    if format_name == "json":
        return lambda where, record: render_json(where, record) + b"\n"
    if format_name == "full":
        shown = b"(null)" if null is None else null
        return lambda where, record: render_full(where, record, shown) + b"\n"
    return lambda _where, record: _shown(record.value, null or b"") + b"\n"


def _shown(data: bytes | None, null: bytes) -> bytes:
    return null if data is None else data


def render_full(where: TopicPartition, record: Record, null: bytes = b"(null)") -> bytes:
    """Return partition, offset, UTC time, key if there is one, and value."""
    key = b"" if record.key is None else record.key + b": "
    return (
        f"{where}@{record.offset} {_time(record.timestamp_ms)} ".encode() + key + _shown(record.value, null)
    )


def _time(timestamp_ms: int) -> str:
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:  # a producer may set any 64-bit timestamp, far beyond the year 9999
        return f"{timestamp_ms}ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _length(data: bytes | None) -> bytes:
    return b"%d" % (-1 if data is None else len(data))


def _packed_length(data: bytes | None) -> bytes:
    return (-1 if data is None else len(data)).to_bytes(4, "big", signed=True)


def _headers(record: Record, null: bytes) -> bytes:
    return b",".join(name.encode() + b"=" + _shown(value, null) for name, value in record.headers)


_TOKENS: dict[str, Callable[[TopicPartition, Record, bytes], bytes]] = {
    "s": lambda _where, record, null: _shown(record.value, null),
    "S": lambda _where, record, _null: _length(record.value),
    "R": lambda _where, record, _null: _packed_length(record.value),
    "k": lambda _where, record, null: _shown(record.key, null),
    "K": lambda _where, record, _null: _length(record.key),
    "T": lambda _where, record, _null: b"%d" % record.timestamp_ms,
    "h": lambda _where, record, null: _headers(record, null),
    "t": lambda where, _record, _null: where.topic.encode(),
    "p": lambda where, _record, _null: b"%d" % where.partition,
    "o": lambda _where, record, _null: b"%d" % record.offset,
    "%": lambda _where, _record, _null: b"%",
}
"""kcat's tokens; null is the bytes that stand for null."""

TOKENS_HELP = (
    "%s value, %S its length, %R the same in 4 bytes, %k key, %K its length, %h headers, %t topic, %p"
    " partition, %o offset, %T timestamp in ms, %% a percent sign"
)

_PARTS = re.compile(r"%(.?)|\\(x[0-9a-fA-F]{2}|.?)", re.DOTALL)
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}


def format_renderer(text: str, null: bytes | None) -> Render:
    """Return what writes a record by kcat's format string; a newline is written where it says ``\\n``.

    Args:
        text: as TOKENS_HELP says, with ``\\n``, ``\\r``, ``\\t``, ``\\0``, ``\\\\`` and ``\\xHH``.
        null: stands for a null key, value or header.

    Raises:
        ValueError: a token or an escape is unknown.
    """
    parts: list[bytes | Callable[[TopicPartition, Record, bytes], bytes]] = []
    position = 0
    for found in _PARTS.finditer(text):
        parts.append(given_bytes(text[position : found.start()]))
        position = found.end()
        token, escape = found.groups()
        if token is not None:
            if token not in _TOKENS:
                raise ValueError(f"{found[0]!r} is no token; there are {TOKENS_HELP}")
            parts.append(_TOKENS[token])
        elif len(escape) > 1:
            parts.append(bytes.fromhex(escape[1:]))
        elif escape in _ESCAPES:
            parts.append(_ESCAPES[escape])
        else:
            raise ValueError(f"{found[0]!r} is no escape; there are \\n, \\r, \\t, \\0, \\\\ and \\xHH")
    parts.append(given_bytes(text[position:]))
    stands_for_null = null or b""
    return lambda where, record: b"".join(
        part if isinstance(part, bytes) else part(where, record, stands_for_null) for part in parts
    )
