"""Each worked example in docs/format is what a real Kafka wrote, and what our code makes of it."""

from __future__ import annotations

import re

import pytest
from support.kafka.make_golden import GOLDEN
from support.storage.format_pages import PAGES, examples

from splashdam.record.batch import crc_ok, parse_header
from splashdam.record.reader import read_records
from splashdam.record.stored import stored_crc_ok
from splashdam.storage.producers.snapshots import decode_snapshot, encode_snapshot
from splashdam.storage.transaction_marker import TransactionMarker, parse_marker

NEW, OLD = GOLDEN / "kafka-4.3.1", GOLDEN / "kafka-3.9.2"
FIRST = f"{0:020d}"
SOURCES = {
    "aborted-transactions.md": [NEW / "transactions-0" / f"{5:020d}.txnindex"],
    "checkpoints.md": [NEW / "cleaner-offset-checkpoint"],
    "consumer-offsets.md": [GOLDEN / "offsets-4.3.1" / "__consumer_offsets-0" / f"{FIRST}.log"] * 3,
    "control-batches.md": [
        NEW / "transactions-0" / f"{5:020d}.log",
        NEW / "compacted-0" / f"{FIRST}.log",
        NEW / "compacted-0" / f"{FIRST}.log",
    ],
    "indexes.md": [NEW / "codecs-0" / f"{FIRST}.index", NEW / "codecs-0" / f"{FIRST}.timeindex"],
    "leader-epochs.md": [NEW / "codecs-0" / "leader-epoch-checkpoint"],
    "message-set.md": [
        OLD / "format0-0" / f"{FIRST}.log",
        OLD / "format1-0" / f"{FIRST}.log",
        OLD / "format1-0" / f"{FIRST}.log",
    ],
    "meta-properties.md": [NEW / "meta.properties"],
    "partition-metadata.md": [NEW / "codecs-0" / "partition.metadata"],
    "transaction-state.md": [GOLDEN / "states-4.3.1" / "__transaction_state-0" / f"{FIRST}.log"] * 2,
    "producer-snapshot.md": [NEW / "codecs-0" / f"{50:020d}.snapshot"],
}
WHOLE = {"aborted-transactions.md", "checkpoints.md", "indexes.md", "leader-epochs.md",
         "partition-metadata.md", "producer-snapshot.md"}  # fmt: skip
"""Pages that show a file from its first to its last byte."""


@pytest.mark.parametrize("page", SOURCES)
def test_examples_are_bytes_that_kafka_wrote(page: str) -> None:
    """Each stands in the file the page names."""
    for shown, source in zip(examples(page), SOURCES[page], strict=True):
        data = source.read_bytes()
        assert data == shown if page in WHOLE else shown in data, source


def test_every_page_with_an_example_is_checked() -> None:
    """The others show theirs in another way, and are checked where their code is."""
    with_examples = {page.name for page in PAGES.glob("*.md") if "```hex" in page.read_text()}
    assert with_examples == set(SOURCES)
    index = (PAGES / "README.md").read_text()
    assert {page.name for page in PAGES.glob("*.md")} == {
        *re.findall(r"\((\w[\w-]+\.md)\)", index),
        "README.md",
    }


def test_links_between_pages_lead_somewhere() -> None:
    """To other pages, decisions and code."""
    for page in PAGES.glob("*.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_message_sets_read_as_the_page_says() -> None:
    """The first two examples are whole."""
    for shown, timestamp in zip(examples("message-set.md")[:2], (-1, 1_795_000_000_001), strict=True):
        (record,) = read_records(shown)
        assert record[:4] == (1, timestamp, b"key 1", b"value 1 " * 4)


def test_control_batches_read_as_the_page_says() -> None:
    """The marker is made by our code to the same bytes, but for what the leader assigns."""
    shown, cleaned, emptied = examples("control-batches.md")
    header = parse_header(shown)
    assert stored_crc_ok(shown, 0, header)
    marker = parse_marker(shown, 1007, 0)
    assert marker == TransactionMarker(1007, 0, True, 0)
    assert marker is not None
    assert marker.encoded(header.max_timestamp)[16:] == shown[16:]
    assert (parse_header(cleaned).attributes, parse_header(cleaned).record_count) == (0x40, 30)
    assert crc_ok(emptied, 0, parse_header(emptied))
    assert read_records(emptied) == []


def test_the_snapshot_is_made_by_our_code_to_the_same_bytes() -> None:
    """Decoded and encoded again."""
    (shown,) = examples("producer-snapshot.md")
    assert encode_snapshot(decode_snapshot(shown)) == shown
