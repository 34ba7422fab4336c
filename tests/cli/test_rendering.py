"""A record as output and back, whatever bytes and times it holds."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashdam.cli.records.rendering import format_renderer, render_full, renderer
from splashdam.model.values import TopicPartition
from splashdam.record.json_lines import BadLineError, parse_json, render_json
from splashdam.record.record import Record

WHERE = TopicPartition("t", 3)

nullable_bytes = st.none() | st.binary(max_size=20) | st.text(max_size=8).map(str.encode)
records = st.builds(
    Record,
    offset=st.integers(0, 2**63 - 1),
    timestamp_ms=st.integers(-(2**63), 2**63 - 1),
    key=nullable_bytes,
    value=nullable_bytes,
    headers=st.lists(st.tuples(st.text(max_size=5), nullable_bytes), max_size=3).map(tuple),
)


@given(records)
def test_every_record_can_be_shown(record: Record) -> None:
    """No key, value, header or timestamp is too strange, and JSON stays on one line."""
    assert renderer("value", None)(WHERE, record) == (record.value or b"") + b"\n"
    assert render_full(WHERE, record).startswith(b"t-3@%d " % record.offset)
    line = render_json(WHERE, record)
    assert b"\n" not in line
    assert json.loads(line)["timestamp_ms"] == record.timestamp_ms


@given(records)
def test_a_line_of_json_comes_back_exactly(record: Record) -> None:
    """Null and empty stay apart, and so do text and other bytes."""
    line = parse_json(render_json(WHERE, record))
    assert (line.key, line.value, line.headers) == (record.key, record.value, record.headers)
    assert line.partition == WHERE.partition
    assert line.timestamp_ms == (record.timestamp_ms if record.timestamp_ms >= 0 else None)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"value", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not a JSON object"),
        (b"{}", "no 'value'"),
        (b'{"value": null, "vlaue": 1}', "unknown name 'vlaue'"),
        (b'{"value": 5}', "value must be a text"),
        (b'{"value": {"base64": "!"}}', "not base64"),
        (b'{"value": {"base65": ""}}', "value must be a text"),
        (b'{"value": "\\ud800"}', "surrogates"),
        (b'{"value": "", "headers": [["\\udc00", ""]]}', "the name of a header"),
        (b'{"value": "", "headers": {"a": "b"}}', "headers must be a list"),
        (b'{"value": "", "headers": [["a"]]}', 'must be ["name", value]'),
        (b'{"value": "", "partition": true}', "partition must be a whole number"),
        (b'{"value": "", "timestamp_ms": "now"}', "timestamp_ms must be a whole number"),
    ],
)
def test_a_line_that_is_no_record_says_why(line: bytes, said: str) -> None:
    """A typing error must not become a record."""
    with pytest.raises(BadLineError) as refused:
        parse_json(line)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("timestamp_ms", "shown"),
    [
        (0, b"1970-01-01T00:00:00.000Z"),
        (-1, b"1969-12-31T23:59:59.999Z"),
        (1_357_034_400_123, b"2013-01-01T10:00:00.123Z"),
        (2**63 - 1, b"9223372036854775807ms"),
    ],
)
def test_times_are_utc(timestamp_ms: int, shown: bytes) -> None:
    """Times are shown in UTC; what is no date is shown as the number it is."""
    assert render_full(WHERE, Record(0, timestamp_ms, b"k", None, ())) == b"t-3@0 " + shown + b" k: (null)"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (r"%t [%p] at offset %o: key %k: %s\n", b"t [3] at offset 9: key k: \xffv\n"),
        ("%S %K %T %h", b"2 1 7 a=1,n=NIL"),
        (r"%R%s%%\x00\0\\\t\r", b"\0\0\0\2\xffv%\0\0\\\t\r"),
        ("plain", b"plain"),
        ("\udcff%o\udcfe", b"\xff9\xfe"),  # bytes of the command line that are not UTF-8
    ],
)
def test_format_strings_are_those_of_kcat(text: str, shown: bytes) -> None:
    """Bytes come out as they are, and a newline only where the format has one."""
    record = Record(9, 7, b"k", b"\xffv", (("a", b"1"), ("n", None)))
    assert format_renderer(text, b"NIL")(WHERE, record) == shown


def test_null_in_a_format_string() -> None:
    """Its length is -1, and it is written as nothing or as the marker."""
    record = Record(9, 7, None, None, ())
    assert format_renderer("%S/%K/%s/%k", None)(WHERE, record) == b"-1/-1//"
    assert format_renderer("%R%s", b"NULL")(WHERE, record) == b"\xff\xff\xff\xffNULL"


@pytest.mark.parametrize(
    ("text", "said"), [("%y", "'%y' is no token"), ("100%", "'%' is"), (r"\q", "no escape")]
)
def test_an_unknown_token_is_named(text: str, said: str) -> None:
    """kcat refuses the token as well."""
    with pytest.raises(ValueError, match=said):
        format_renderer(text, None)
