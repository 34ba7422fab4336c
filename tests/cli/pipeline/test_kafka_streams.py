"""What the commands on topic streams share: places, schema files, and what is missing."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

pytest.importorskip("pyspark", reason="needs splashdam[spark]")

from splashdam.cli.pipeline.topic_streams import TopicStream, ValueOptions, one_place, table_or_topic
from splashdam.pipeline.jobs.outputs import TableOutput, TopicOutput
from splashdam.pipeline.values.json_values import JsonFormat

KAFKA = {"kafka.bootstrap.servers": "localhost:9092", "kafka.isolation.level": "read_committed"}
TABLES = {"table_format": "delta", "options": {}}


def test_one_place() -> None:
    """A table or a topic; the sink is not told how readers isolate."""
    assert table_or_topic("./t", None, TABLES, KAFKA) == TableOutput("delta", "./t")
    topic = table_or_topic(None, "t", TABLES, KAFKA)
    assert topic == TopicOutput("t", {"kafka.bootstrap.servers": "localhost:9092"})


def test_both_places_or_none() -> None:
    """The command is not begun where it would not know where to."""
    begun: list[dict[str, str | None]] = []
    command = one_place("table", "topic", "--a and --b")(lambda **arguments: begun.append(arguments))
    for table, topic in ((None, None), ("./t", "t")):
        with pytest.raises(click.UsageError, match="--a and --b"):
            command(table=table, topic=topic)
    assert begun == []
    command(table="./t", topic=None)
    assert begun == [{"table": "./t", "topic": None}]


def test_schemas(tmp_path: Path) -> None:
    """The file says what values are; ids have files of their own."""
    file = tmp_path / "a.json"
    file.write_text('{"type": "object", "properties": {"a": {"type": "string"}}}')
    form = ValueOptions(file, {}, "confluent", True).format()
    assert isinstance(form, JsonFormat)
    assert form.refuses_unknown


def test_running() -> None:
    """Seconds are milliseconds inside; without them a run takes what is there."""
    stream = TopicStream("t", "./checkpoint", 0.5, None, "earliest")
    running = stream.running(lambda _: None)
    assert (running.checkpoint, running.interval_ms) == ("./checkpoint", 500)
    assert TopicStream("t", "c", None, 5, "latest").running(lambda _: None).interval_ms is None
