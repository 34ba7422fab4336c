"""Where pipelines may not write, and what they may not read of it; refused before Spark starts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.pipeline.pipeline_job_kit import SMALL_BROKER
from support.running.patches import guard

pytest.importorskip("deltalake", reason="needs splashdam[delta]")
pytest.importorskip("pyspark", reason="needs splashdam[spark]")

from splashdam.cli.commands import splashdam
from splashdam.cli.pipeline import spark as spark_commands
from splashdam.client.producer import KafkaProducer
from splashdam.embedded_broker.embedded import EmbeddedBroker


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with a topic, and with those of transactions."""
    with EmbeddedBroker(tmp_path_factory.mktemp("broker"), config=SMALL_BROKER, fsync=False) as broker:
        with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id="x") as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.send("flights", value=json.dumps({"id": 1}).encode())
                producer.send("__splashdam_spark_commits", value=b"{}")
        yield broker.bootstrap_servers


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in; a session that is started fails the test."""
    monkeypatch.setattr(spark_commands, "session", guard("a session is started"))
    monkeypatch.chdir(tmp_path)
    Path("flights.ddl").write_text("id bigint NOT NULL")
    return tmp_path


def run(servers: str, *arguments: str, checkpoint: str = "ckpt") -> tuple[int, str]:
    """Run a pipeline; return its status, and its output as one line."""
    cluster = ["-b", servers, "--checkpoint", checkpoint]
    result = CliRunner().invoke(splashdam, ["pipeline", *arguments, *cluster])
    return result.exit_code, " ".join(result.output.split())


DECODED = ["decode", "flights", "--schema", "flights.ddl"]


@pytest.mark.parametrize("only_plan", [["--plan"], ["--follow", "1"]])
@pytest.mark.parametrize("outputs", [["--topic", "t"], ["--table", "a"]])
@pytest.mark.parametrize("topic", ["__splashdam_spark_commits", "__transaction_state"])
def test_a_decoder_read_its_own_commits(
    topic: str, outputs: list[str], only_plan: list[str], servers: str, here: Path
) -> None:
    """Each micro-batch that is sent to a topic is a commit in these, and with ``--follow`` the next batch."""
    arguments = ["decode", f"flights,{topic}", *DECODED[2:], *outputs, "--dead-letter-topic", "bad"]
    status, output = run(servers, *arguments, *only_plan)
    said = f"topic {topic} cannot be read by a query that writes to a topic: each micro-batch commits there"
    assert (status, said in output) == (2, True), output


def test_commits_may_be_decoded_into_tables(servers: str, here: Path) -> None:
    """Tables commit elsewhere."""
    arguments = ["__splashdam_spark_commits", *DECODED[2:], "--table", "a", "--dead-letter-table", "b"]
    status, output = run(servers, "decode", *arguments, "--plan")
    assert status == 0, output
