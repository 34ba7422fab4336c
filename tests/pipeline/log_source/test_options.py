"""The options of ``kafka-log``: what is accepted, and what is said of the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.values import TopicPartition
from splashdam.pipeline.local_source.positions import AtEdge, AtOffsets, AtTimestamp
from splashdam.pipeline.local_source.subscriptions import Topics
from splashdam.pipeline.log_source.batches import batch_ddl
from splashdam.pipeline.log_source.filesystems import Location
from splashdam.pipeline.log_source.options import (
    CHECK_CRCS,
    MAX_PARTITION_BYTES,
    MODE,
    ON_DAMAGE,
    PATH,
    log_options,
)


def test_a_path_is_enough() -> None:
    """All topics, from beginning to end, as records; damage fails, and 64 MiB are a task."""
    options = log_options({"path": "/data"})
    assert options.locations == (Location("/data"),)
    assert (options.batches, options.fails, options.check_crcs) == (False, True, True)
    assert (options.max_bytes, options.read_committed, options.include_headers) == (64 << 20, False, False)
    assert isinstance(options.selection.start, AtEdge)


def test_names_are_compared_without_regard_to_case() -> None:
    """Spark hands them over in lower case."""
    options = log_options(
        {
            "path": "/a, s3://bucket/b",
            "MODE": "Batches",
            "maxpartitionbytes": "4m",
            "onDamage": "report",
            "checkcrcs": "false",
            "subscribe": "t,u",
            "startingoffsets": '{"t":{"0":5}}',
            "endingTimestamp": "1700000000000",
            "storage.endpoint_override": "127.0.0.1:9000",
            "storage.scheme": "http",
        }
    )
    settings = (("endpoint_override", "127.0.0.1:9000"), ("scheme", "http"))
    assert options.locations == (Location("/a", settings), Location("s3://bucket/b", settings))
    assert (options.batches, options.fails, options.check_crcs) == (True, False, False)
    assert options.max_bytes == 4 << 20
    chosen = options.selection
    assert chosen.subscription == Topics(("t", "u"))
    assert chosen.start == AtOffsets({TopicPartition("t", 0): 5})
    assert (chosen.end, chosen.end_option) == (
        AtTimestamp(1_700_000_000_000),
        "endingTimestamp",
    )


def test_several_paths_of_load() -> None:
    """``load(["a", "b"])`` comes as JSON."""
    assert log_options({"paths": '["/a","/b"]'}).locations == (Location("/a"), Location("/b"))


@pytest.mark.parametrize(
    ("text", "size"), [("1", 1), ("64k", 65536), ("2 MB", 2 << 20), ("1GiB", 1 << 30), ("10b", 10)]
)
def test_sizes(text: str, size: int) -> None:
    """Bytes, or with a unit, as Spark takes them."""
    assert log_options({"path": "/a", "maxPartitionBytes": text}).max_bytes == size


def test_read_committed_is_for_records() -> None:
    """A batch is a batch, whatever became of its transaction."""
    given = {"path": "/a", "kafka.isolation.level": "read_committed"}
    assert log_options(given).read_committed
    assert not log_options({**given, "mode": "batches"}).read_committed


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "option 'path' is missing.*CREATE TABLE"),
        ({"path": " "}, "path"),
        ({"paths": '{"a":1}'}, "JSON list"),
        ({"path": "/a", "startingOffset": "earliest"}, "startingOffsets"),
        ({"path": "/a", "maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger|maxoffsetspertrigger"),
        ({"path": "/a", "mode": "rows"}, "records, batches"),
        ({"path": "/a", "maxPartitionBytes": "0"}, "64m"),
        ({"path": "/a", "maxPartitionBytes": "much"}, "64m"),
        ({"path": "/a", "onDamage": "ignore"}, "fail, report"),
        ({"path": "/a", "subscribe": "t", "assign": '{"t":[0]}'}, "subscribe and assign"),
        ({"path": "/a", "startingOffsets": "latest"}, "cannot start at the latest"),
        ({"path": "/a", "startingOffsets": '{"t":{"0":-1}}'}, "cannot start at the latest"),
        ({"path": "/a", "endingOffsets": "earliest"}, "cannot end at the earliest"),
        ({"path": "/a", "kafka.bootstrap.servers": "x:1"}, "files are read without one"),
        ({"path": "/a", "kafka.isolation.level": "some"}, "read_uncommitted, read_committed"),
    ],
)
def test_wrong_options_are_named(given: dict[str, str], message: str) -> None:
    """With the nearest name, the choices, or what to do."""
    with pytest.raises(KafkaConfigurationError, match=message):
        log_options(given)


def test_every_option_and_column_is_documented() -> None:
    """docs/reference/pipeline.md has them in its tables."""
    page = (Path(__file__).parents[3] / "docs" / "reference" / "pipeline.md").read_text()
    section = page.partition("## The source `kafka-log`")[2].partition("\n## ")[0]
    known = [PATH, MODE, MAX_PARTITION_BYTES, ON_DAMAGE, CHECK_CRCS]
    names = [each.name for each in known] + [part.split("`")[1] for part in batch_ddl().split(", ")]
    assert [name for name in names if f"`{name}`" not in section] == []
