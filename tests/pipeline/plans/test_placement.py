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

import pyarrow as pa

from splashdam.cli.commands import splashdam
from splashdam.cli.pipeline import spark as spark_commands
from splashdam.client.producer import KafkaProducer
from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.pipeline.tables import open_table
from splashdam.testing.topics import create_topic


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


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a broker that does not run."""
    place = tmp_path_factory.mktemp("closed")
    with EmbeddedBroker(place, config=SMALL_BROKER, fsync=False) as broker:
        create_topic(broker.bootstrap_servers, "flights", 1)
    return place


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


STREAMS = {
    "ingest": ["ingest", "flights", "{}"],
    "latest": ["latest", "flights", "{}"],
    "good": [*DECODED, "--table", "{}", "--dead-letter-table", "bad"],
    "bad": [*DECODED, "--table", "good", "--dead-letter-table", "{}"],
    "windows": ["window", "flights", "--size", "1h", "--table", "{}", "--late-table", "late"],
    "late": ["window", "flights", "--size", "1h", "--table", "hours", "--late-table", "{}"],
}
every_table = pytest.mark.parametrize("arguments", STREAMS.values(), ids=STREAMS)
both_ways = pytest.mark.parametrize("only_plan", [["--plan"], []], ids=["plan", "run"])


def into(arguments: list[str], place: str) -> list[str]:
    return [each.format(place) for each in arguments]


@both_ways
@every_table
def test_a_second_command_made_a_table_inside_the_first_one_s(
    arguments: list[str], only_plan: list[str], servers: str, here: Path
) -> None:
    """Only the tables of one command were compared."""
    open_table("delta", here / "t/outer", schema=pa.schema([("a", pa.int64())])).close()
    before = sorted(here.rglob("*"))
    for inner in ("t/outer/inner", "t/outer/../outer/a/b"):
        status, output = run(servers, *into(arguments, inner), *only_plan)
        assert (status, f"is in {here}/t/outer, which holds a Delta table" in output) == (2, True), output
    status, output = run(servers, *into(arguments, "t"), *only_plan)
    assert (status, f"{here}/t has a Delta table in it, at outer" in output) == (2, True), output
    assert sorted(here.rglob("*")) == before


def test_a_checkpoint_was_made_inside_another_query_s_table(servers: str, here: Path) -> None:
    """Windows that are kept beside it are Parquet files. Hidden names are allowed, as in the own table."""
    open_table("parquet", here / "outer", schema=pa.schema([("a", pa.int64())])).close()
    for checkpoint in ("outer", "outer/ckpt", "outer/_commits/c"):
        status, output = run(servers, "ingest", "flights", "raw", "--plan", checkpoint=checkpoint)
        assert (status, f"is in {here}/outer, which holds a Parquet table" in output) == (2, True), output
    status, output = run(servers, "ingest", "flights", "raw", "--plan", checkpoint="outer/_checkpoint")
    assert status == 0, output


@both_ways
@every_table
def test_a_table_was_made_in_the_embedded_broker_s_directory(
    arguments: list[str], only_plan: list[str], data: Path, here: Path
) -> None:
    """So was a checkpoint: the broker warned of a folder that is no partition, and Kafka would not start."""
    for place in (data, data / "tables/a"):
        status, output = run(f"embedded:{data}", *into(arguments, str(place)), *only_plan)
        assert (status, f"is in {data}, the data directory of a broker" in output) == (2, True), output
    checkpoint = str(data / "ckpt")
    status, output = run(f"embedded:{data}", *into(arguments, "new"), *only_plan, checkpoint=checkpoint)
    assert (status, f"{checkpoint} is in {data}, the data directory of a broker" in output) == (2, True), (
        output
    )
    assert not (data / "tables").exists()
    assert not Path(checkpoint).exists()


def used(here: Path) -> None:
    """A checkpoint whose query has read what there is."""
    for name, text in (("offsets", 'v1\n{}\n{"flights":{"0":1}}'), ("commits", "v1\n{}")):
        (here / "ckpt" / name).mkdir(parents=True)
        (here / "ckpt" / name / "0").write_text(text)


@both_ways
@pytest.mark.parametrize("name", ["ingest", "latest", "good", "windows"])
def test_a_new_table_began_where_another_one_s_checkpoint_is(
    name: str, only_plan: list[str], servers: str, here: Path
) -> None:
    """The run wrote 0 records with status 0, and all until then was missing from the table."""
    used(here)
    before = sorted(here.rglob("*"))
    status, output = run(servers, *into(STREAMS[name], "new"), *only_plan)
    said = "is of a query that has run, and"
    assert (status, f"checkpoint ckpt {said}" in output, "other" in output) == (2, True, True), output
    assert sorted(here.rglob("*")) == before


@pytest.mark.parametrize("name", ["ingest", "latest", "good", "bad"])
def test_a_query_that_has_run_goes_on_with_its_table(name: str, servers: str, here: Path) -> None:
    """One of two tables may have had no rows yet."""
    used(here)
    form = "delta" if name == "latest" else "parquet"
    open_table(form, here / "mine", schema=pa.schema([("topic", pa.string())])).close()
    status, output = run(servers, *into(STREAMS[name], "mine"), "--plan")
    assert (status, "1 micro-batch done" in output) == (0, True), output


@pytest.mark.parametrize("name", STREAMS)
def test_a_query_that_died_before_its_first_commit_begins_again(name: str, servers: str, here: Path) -> None:
    """Its batch was planned, and there is no table yet."""
    used(here)
    (here / "ckpt/commits/0").unlink()
    status, output = run(servers, *into(STREAMS[name], "new"), "--plan")
    assert (status, "number 0 was begun and is repeated" in output) == (0, True), output
