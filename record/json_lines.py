"""A record as a line of JSON, and back: ``tail --format json | produce --json`` copies records exactly.

Keys, values and headers that are UTF-8 are JSON texts, other bytes are ``{"base64": …}``, and null is null.
So an empty text and null stay apart, and every byte comes back.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, NamedTuple

from splashdam.model.values import TopicPartition
from splashdam.record.record import Record

_NAMES = frozenset(("topic", "partition", "offset", "timestamp_ms", "key", "value", "headers"))


class BadLineError(ValueError):
    """A line of input is no record; the text says why."""


class Line(NamedTuple):
    """A record that a line of input asks for.

    Attributes:
        value: None is null.
        key: likewise.
        headers: in their order; a name may repeat.
        partition: None: the key decides.
        timestamp_ms: None: now.
    """

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def render_json(where: TopicPartition, record: Record) -> bytes:
    """Return one JSON object, without a newline in it."""
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


def parse_json(line: bytes) -> Line:
    """Return the record of a line that `render_json` has written, or of one written by hand.

    Only ``value`` is needed. ``topic`` and ``offset`` have no effect, and neither has a negative
    ``timestamp_ms``, with which very old brokers stored records without a time.

    Raises:
        BadLineError: the line is no such JSON object; the text says why.
    """
    try:
        fields = json.loads(line)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadLineError(f"not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise BadLineError("not a JSON object")
    if unknown := fields.keys() - _NAMES:
        raise BadLineError(f"unknown name {min(unknown)!r}; known are {', '.join(sorted(_NAMES))}")
    if "value" not in fields:
        raise BadLineError("no 'value'; null stands for a null value")
    timestamp_ms = _whole(fields, "timestamp_ms")
    return Line(
        _bytes(fields["value"], "value"),
        _bytes(fields.get("key"), "key"),
        tuple(_header(each) for each in _list(fields.get("headers"))),
        _whole(fields, "partition"),
        None if timestamp_ms is None or timestamp_ms < 0 else timestamp_ms,
    )


def _bytes(given: Any, what: str) -> bytes | None:
    if given is None:
        return None
    if isinstance(given, str):
        return _encoded(given, what)
    if isinstance(given, dict) and given.keys() == {"base64"} and isinstance(given["base64"], str):
        try:
            return base64.b64decode(given["base64"], validate=True)
        except binascii.Error as error:
            raise BadLineError(f"{what}: not base64: {error}") from None
    raise BadLineError(f'{what} must be a text, null or {{"base64": "…"}}, not {json.dumps(given)[:60]}')


def _encoded(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:  # JSON can name one half of a pair of UTF-16 units
        raise BadLineError(f"{what}: {error}") from None


def _list(given: Any) -> list[Any]:
    if given is None:
        return []
    if not isinstance(given, list):
        raise BadLineError('headers must be a list of ["name", value] pairs')
    return given


def _header(given: Any) -> tuple[str, bytes | None]:
    if not (isinstance(given, list) and len(given) == 2 and isinstance(given[0], str)):
        raise BadLineError(f'a header must be ["name", value], not {json.dumps(given)[:60]}')
    _encoded(given[0], "the name of a header")
    return given[0], _bytes(given[1], f"the header {given[0]!r}")


def _whole(fields: dict[str, Any], name: str) -> int | None:
    number = fields.get(name)
    if number is not None and (not isinstance(number, int) or isinstance(number, bool)):
        raise BadLineError(f"{name} must be a whole number, not {json.dumps(number)[:60]}")
    return number
