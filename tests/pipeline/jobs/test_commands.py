"""The commands ``decode``, ``window`` and ``latest``: options, summaries, wrong usage without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from support.pipeline.pipeline_job_kit import SMALL_BROKER, table_rows
from support.running.patches import guard

pytest.importorskip("deltalake", reason="needs splashdam[delta]")
pytest.importorskip("pyspark", reason="needs splashdam[spark]")

from splashdam.cli.commands import splashdam
from splashdam.cli.pipeline import spark as spark_commands
from splashdam.client.producer import KafkaProducer
from splashdam.embedded_broker.embedded import EmbeddedBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DDL = "id bigint NOT NULL, carrier string, departed timestamp"
HOURS = {"a": ["07", "08", "07", "11"], "b": ["08"]}
PLACES = ["--table", "good", "--dead-letter-table", "bad"]
WINDOWS = ["--size", "1h", "--table", "good", "--late-table", "late"]


def run(*arguments: str) -> dict[str, str]:
    """The summary."""
    result = CliRunner().invoke(splashdam, ["pipeline", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    lines = (line.rsplit(maxsplit=1) for line in result.output.splitlines())
    return {name.strip(): figure for name, figure in lines}


@pytest.mark.spark
def test_commands(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One topic, each command once: what they say of it, and what is in the tables."""

    @contextmanager
    def session(**_: Any) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(spark_commands, "session", session)
    monkeypatch.chdir(tmp_path)
    Path("flights.ddl").write_text(DDL)
    with EmbeddedBroker(tmp_path / "broker", config=SMALL_BROKER, fsync=False) as broker:
        servers = ["-b", broker.bootstrap_servers]
        with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for carrier, hours in HOURS.items():
                for number, hour in enumerate(hours):
                    value = {"id": number, "carrier": carrier, "departed": f"2026-01-01T{hour}:30:00Z"}
                    producer.send("flights", value=json.dumps(value).encode(), key=carrier.encode())
            producer.send("flights", value=b'{"id":"x"}', key=b"bad")
            producer.send("flights", value=None, key=b"b")
        common = ["flights", *servers, "--checkpoint"]
        schema = ["--schema", "flights.ddl"]
        assert run("decode", *common, str(tmp_path / "c1"), *schema, *PLACES) == {
            "micro-batches": "1",
            "records": "7",
            "decoded": "6",
            "rejected": "1",
            "wrong_type": "1",
        }
        query = ["--time", "decoded.departed", "--by", "decoded.carrier", "--delay", "30m", *schema]
        places = ["--size", "1h", "--table", "windows", "--late-table", "late"]
        assert run("window", *common, str(tmp_path / "c2"), *query, *places) == {
            "micro-batches": "1",
            "records": "7",
            "late": "0",
            "without time": "2",
            "windows": "3",
            "watermark": "2026-01-01T11:00:00+00:00",
        }
        assert run("latest", *common, str(tmp_path / "c3"), "newest") == {
            "micro-batches": "1",
            "records": "7",
            "without key": "0",
            "newest values": "2",
            "tombstones": "1",
        }
    assert [row["reason"] for row in table_rows(tmp_path / "bad")] == ["wrong_type"]
    counts = {(row["carrier"], row["window_start"].hour): row["count"] for row in table_rows(Path("windows"))}
    assert counts == {("a", 7): 2, ("a", 8): 1, ("b", 8): 1}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["decode", *PLACES[2:]], "give one of --table and --topic"),
        (["decode", *PLACES, "--dead-letter-topic", "t"], "--dead-letter-topic and --dead-letter-table"),
        (["window", *WINDOWS, "--delay", "5x"], "'--delay': '5x' is not a duration"),
        (["window", *WINDOWS, "--by", "a + b"], "'--by': 'a + b' is not a column: write NAME=EXPRESSION"),
        (["window", *WINDOWS, "--slide", "2h"], "must not begin further apart"),
        (["window", *WINDOWS, "--close-all", "--follow", "1"], "with --follow it does not"),
        (["window", *WINDOWS, "--compute", "median(x)"], "'--compute': 'median(x)' is no aggregate"),
    ],
)
def test_wrong_usage_is_refused_before_spark_starts(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It took the ten seconds of a JVM's start to say that an option was written wrongly."""
    monkeypatch.setattr(spark_commands, "session", guard("a session is started"))
    schema = tmp_path / "flights.ddl"
    schema.write_text(DDL)
    command = ["pipeline", *arguments, "flights", "--checkpoint", "c", "--schema", str(schema)]
    result = CliRunner().invoke(splashdam, command)
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())
