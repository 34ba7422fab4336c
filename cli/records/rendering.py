"""Formats of a record as one line of output."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from splashdam.model.values import TopicPartition
from splashdam.record.reader import Record

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Render = Callable[[TopicPartition, Record], bytes]
"""Renders a record as a line without its newline."""


def render_value(_where: TopicPartition, record: Record) -> bytes:
    """Return the value unchanged; a null value is an empty line."""
    return record.value or b""


def render_full(where: TopicPartition, record: Record) -> bytes:
    """Return partition, offset, UTC time, key if there is one, and value."""
    key = b"" if record.key is None else record.key + b": "
    value = b"(null)" if record.value is None else record.value
    return f"{where}@{record.offset} {_time(record.timestamp_ms)} ".encode() + key + value


def _time(timestamp_ms: int) -> str:
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:  # a producer may set any 64-bit timestamp, far beyond the year 9999
        return f"{timestamp_ms}ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def render_json(where: TopicPartition, record: Record) -> bytes:
    """Return one JSON object. Bytes that are not UTF-8 become ``{"base64": …}``."""
    fields = {
        "topic": where.topic,
        "partition": where.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": text_or_base64(record.key),
        "value": text_or_base64(record.value),
        "headers": [[name, text_or_base64(value)] for name, value in record.headers],
    }
    return json.dumps(fields, ensure_ascii=False).encode()


def text_or_base64(data: bytes | None) -> str | dict[str, str] | None:
    """Return bytes as JSON text, or in base64 if they are not UTF-8."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


FORMATS: dict[str, Render] = {"value": render_value, "full": render_full, "json": render_json}
"""Renderers by the values of ``--format``."""
