"""The worked example of docs/format/record-batch.md is true."""

from __future__ import annotations

import re
from pathlib import Path

from splashdam.record.batch import crc_ok, parse_header
from splashdam.record.reader import read_records
from splashdam.record.sealing import build_batch

PAGE = Path(__file__).resolve().parents[2] / "docs" / "format" / "record-batch.md"
RECORDS = [
    (1_700_000_000_000, b"k1", b"hello", [("h", b"1")]),
    (1_700_000_000_002, None, None, None),
    (1_699_999_999_999, b"", b"xxx", [("n", None)]),
]


def test_the_worked_example() -> None:
    """The page's bytes are what we build of the records it describes, and read as them."""
    section = PAGE.read_text().split("## Worked example")[1].split("```")[1]
    lines = [re.match(r"(?:[0-9a-f]{2} )+", line) for line in section.strip().splitlines()]
    page = bytes.fromhex("".join(line[0] for line in lines if line))
    assert page == build_batch(RECORDS, producer_id=7, producer_epoch=0, base_sequence=40)
    assert crc_ok(page, 0, parse_header(page))
    assert [record[1:] for record in read_records(page)] == [
        (timestamp, key, value, tuple(headers or ())) for timestamp, key, value, headers in RECORDS
    ]
