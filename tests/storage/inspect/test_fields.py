"""The fields of a batch as bytes are those of docs/format/record-batch.md."""

from __future__ import annotations

import re
from pathlib import Path

from splashdam.record.batch import parse_header
from splashdam.record.compression import NO_COMPRESSION
from splashdam.record.kernel import BatchBuffer
from splashdam.record.sealing import seal
from splashdam.storage.inspect.fields import HEADER_FIELDS, fields_of

DOCUMENT = Path(__file__).parents[3] / "docs/format/record-batch.md"


def batch(*values: bytes) -> bytes:
    """A batch of records."""
    buffer = BatchBuffer(10_000)
    for number, value in enumerate(values):
        assert buffer.try_append(1000 + number, b"key", value, None)
    return bytes(seal(buffer, NO_COMPRESSION, producer_id=7, producer_epoch=1, base_sequence=5))


def test_the_table_is_the_documents() -> None:
    """Places, lengths and names."""
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (\w+) \|", DOCUMENT.read_text(), re.M)
    places = [sum(each.size_bytes for each in HEADER_FIELDS[:number]) for number in range(len(HEADER_FIELDS))]
    mine = [
        (str(at), str(each.size_bytes), each.name) for at, each in zip(places, HEADER_FIELDS, strict=True)
    ]
    assert rows[: len(mine)] == mine


def test_records_follow_the_header() -> None:
    """Each from its length to its end, so that every byte has one field."""
    data = batch(b"a" * 10, b"b" * 200, b"")
    fields = fields_of(parse_header(data), data)
    assert [field.name for field in fields[-3:]] == ["record 0", "record 1", "record 2"]
    ends = [field.start + field.size_bytes for field in fields]
    assert [field.start for field in fields] == [0, *ends[:-1]]
    assert ends[-1] == len(data)
    assert {field.name: field.value for field in fields}["producerId"] == "7"


def test_what_is_cut_off_is_shown_as_far_as_it_goes() -> None:
    """At every length."""
    data = batch(b"a" * 100, b"b" * 100)
    header = parse_header(data)
    for length in range(61, len(data)):
        fields = fields_of(header, data[:length])
        assert sum(field.size_bytes for field in fields) in {length, length - 1}
