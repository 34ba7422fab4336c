"""``splashdam pipeline … --plan``, and what each command refuses before a JVM is started."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from support.pipeline.pipeline_job_kit import SMALL_BROKER
from support.running.cli_processes import COMMAND
from support.running.patches import guard

pytest.importorskip("deltalake", reason="needs splashdam[delta]")
pytest.importorskip("pyspark", reason="needs splashdam[spark]")

import pyarrow as pa

from splashdam.cli.commands import splashdam
from splashdam.cli.pipeline import spark as spark_commands
from splashdam.client.producer import KafkaProducer
from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.pipeline.schema import all_columns
from splashdam.pipeline.tables import open_table
from splashdam.pipeline.tables.table import plain_schema
from splashdam.pipeline.tables.writing import write_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 7


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("broker")


@pytest.fixture(scope="module")
def servers(data: Path) -> Iterator[str]:
    """A broker with a topic."""
    with EmbeddedBroker(data, config=SMALL_BROKER, fsync=False) as broker:
        with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(RECORDS):
                producer.send("flights", value=json.dumps({"id": number}).encode())
        yield broker.bootstrap_servers


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in; a session that is started fails the test."""
    monkeypatch.setattr(spark_commands, "session", guard("a session is started"))
    monkeypatch.chdir(tmp_path)
    Path("flights.ddl").write_text("id bigint NOT NULL")
    Path("file").write_text("")
    return tmp_path


def run(servers: str | None, *arguments: str) -> tuple[int, str]:
    cluster = [] if servers is None else ["-b", servers, "--checkpoint", "ckpt"]
    result = CliRunner().invoke(splashdam, ["pipeline", *arguments, *cluster])
    return result.exit_code, result.output


STREAMS = {
    "ingest": ["ingest", "flights", "raw", "--partition-by", "date", "--headers"],
    "decode": [
        "decode",
        "flights",
        "--schema",
        "flights.ddl",
        "--table",
        "good",
        "--dead-letter-topic",
        "bad",
    ],
    "window": ["window", "flights", "--size", "1h", "--table", "hours", "--late-table", "late"],
    "latest": ["latest", "flights", "newest"],
}
WRITTEN = {
    "ingest": ["/raw: new", "headers", "folders by date", "free"],
    "decode": ["/good: new, good rows", "topic bad: created by the first record", "delivery exactly_once"],
    "window": ["/hours: new, closed windows: window_start, window_end, count", "/late: new, late rows"],
    "latest": ["delta table", "/newest: new", "merged"],
}


@pytest.mark.parametrize("name", STREAMS)
def test_plan_of_a_stream(name: str, servers: str, here: Path) -> None:
    """What is read, written and committed, with sizes; nothing is made."""
    before = sorted(here.iterdir())
    status, output = run(servers, *STREAMS[name], "--max-records", "3", "--plan")
    assert status == 0, output
    for said in ("topic flights: 7 offsets", "0 to 7", "3 micro-batches of about 3 offsets", "ckpt: new"):
        assert said in output
    for said in WRITTEN[name]:
        assert said in output
    assert sorted(here.iterdir()) == before


def test_a_topic_that_is_named_twice_is_read_once(servers: str, here: Path) -> None:
    """As by Spark's connector and by Kafka's consumers, whose subscription is a set."""
    assert here
    once = run(servers, *STREAMS["latest"], "--plan")
    twice = run(servers, "latest", "flights, flights,", "newest", "--plan")
    assert (once[0], twice[0]) == (0, 0), twice
    assert twice[1].splitlines()[:2] == once[1].splitlines()[:2]


def test_plan_of_an_audit(data: Path, servers: str, here: Path) -> None:
    """Partitions, segments, bytes, and how many tasks there are."""
    assert servers
    status, output = run(None, "audit", str(data), "--report", "page.html", "--plan")
    assert status == 0, output
    assert "segment, " in output
    assert "the page page.html" in output
    assert not (here / "page.html").exists()


def table(place: Path, rows: int, topic: str = "flights") -> None:
    """A Parquet table with Kafka's columns."""
    schema = plain_schema(all_columns(False).arrow)
    made = open_table("parquet", place, schema=schema)
    row = {"value": b"v", "topic": topic, "partition": 0, "timestampType": 0}
    records = pa.RecordBatch.from_pylist([{**row, "offset": number} for number in range(rows)], schema)
    made.commit("query", 0, list(write_files(made.writing(), iter([records]))))
    made.close()


def test_plan_of_a_replay(servers: str, here: Path) -> None:
    """From the footers of the table's files; a topic with too few partitions is refused."""
    table(here / "raw", 5)
    status, output = run(servers, "replay", "raw", "--plan")
    assert status == 0, output
    for said in ("1 file, 5 records", "topic flights: ", "1 step; each is a micro-batch"):
        assert said in output
    assert not (here / "ckpt").exists()
    status, output = run(servers, "replay", "raw", "--topic", "nowhere")
    assert (status, "topic nowhere has 0" in output) == (2, True)


def test_plan_of_a_table_that_is_there(servers: str, here: Path) -> None:
    """Its files, and the columns that it gets."""
    table(here / "raw", 5)
    status, output = run(servers, "ingest", "flights", "raw", "--headers", "--plan")
    assert status == 0, output
    for said in ("/raw: there, with 7 columns", "gets new columns: headers", "1 file with"):
        assert said in output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ingest", "flights", "file"], "file is not a folder"),
        (["ingest", "flights", "ckpt"], "are one folder, or one inside"),
        (["ingest", "flights", "raw", "--format", "delta"], "a table of the format parquet, not delta"),
        (["ingest", "flights", "raw", "--partition-by", "topic"], "partitioned by (), not by (topic)"),
        (["ingest", "flights", "new", "--partition-by", "day"], "cannot partition by day"),
        (
            ["ingest", "flights", "new", "--starting-offsets", '{"flights":{"9":0}}'],
            "does not name flights-0",
        ),
        (["ingest", "flights", "new", "-X", "fetch.min.byts=1"], "fetch.min.byts"),
        (["decode", "flights", "--schema", "file", "--table", "a", "--dead-letter-table", "b"], "no columns"),
        (
            ["decode", "flights", "--schema", "flights.ddl", "--table", "a", "--dead-letter-table", "a"],
            "are one folder, or one inside",
        ),
        (
            ["window", "flights", "--size", "1h", "--table", "a", "--late-table", "./a"],
            "are one folder, or one inside",
        ),
        (["replay", "nothing"], "holds no table"),
        (["latest", "flights", "raw"], "a table of the format parquet, not delta"),
        (["latest", "flights", "new", "--master", "spark://127.0.0.1:1"], "no Spark master listens"),
    ],
)
def test_what_cannot_work_is_refused_before_spark_starts(
    arguments: list[str], said: str, servers: str, here: Path
) -> None:
    """Each of these took a JVM's ten seconds, or Spark's minute of looking for its master."""
    table(here / "raw", 1)
    status, output = run(servers, *arguments)
    assert status == 2, output
    assert said in " ".join(output.split())


def test_windows_of_another_query_are_refused(servers: str, here: Path) -> None:
    """The state beside the checkpoint has the shape of the query that it belongs to."""
    beside = here / "ckpt/splashdam-window"
    beside.mkdir(parents=True)
    (beside / "3.json").write_text(json.dumps({"watermark_us": 0, "query": "q", "shape": "timestamp; 60000"}))
    status, output = run(servers, *STREAMS["window"], "--plan")
    assert (status, "belongs to other windows" in output) == (2, True)


DECODED = ["decode", "flights", "--schema", "flights.ddl"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            [*DECODED, "--topic", "flights", "--dead-letter-table", "b"],
            "--topic flights is a topic that this",
        ),
        (
            [*DECODED, "--table", "a", "--dead-letter-topic", "flights"],
            "--dead-letter-topic flights is a topic",
        ),
        (
            ["decode", "x, flights", *DECODED[2:], "--topic", "flights", "--dead-letter-table", "b"],
            "for ever",
        ),
        ([*DECODED, "--topic", "t", "--dead-letter-topic", "t"], "are both t: name two topics"),
        ([*DECODED, "--topic", "a,b", "--dead-letter-table", "b"], "--topic: 'a,b' is not a legal topic"),
        ([*DECODED, "--topic", "flights ", "--dead-letter-table", "b"], "'flights ' is not a legal topic"),
    ],
)
def test_a_decoder_read_what_it_had_written(
    arguments: list[str], said: str, servers: str, here: Path
) -> None:
    """An output that is an input, too, feeds the query for ever."""
    assert servers
    status, output = run(servers, *arguments, "--plan")
    assert (status, said in " ".join(output.split())) == (2, True), output


COMMITS = "__splashdam_spark_commits"


@pytest.mark.parametrize("only_plan", [["--plan"], []])
@pytest.mark.parametrize(
    "arguments",
    [
        ["replay", "raw", "--topic", COMMITS],
        ["replay", "raw", "--topic", COMMITS, "--delivery", "dedup"],
        ["replay", "raw", "--topic", "__consumer_offsets"],
        [*DECODED, "--topic", COMMITS, "--dead-letter-table", "b"],
        [*DECODED, "--table", "a", "--dead-letter-topic", COMMITS],
    ],
)
def test_records_were_sent_where_the_sink_keeps_its_decisions(
    arguments: list[str], only_plan: list[str], servers: str, here: Path
) -> None:
    """The sink would have read them as decisions. Kafka's own topics take no records either."""
    table(here / "raw", 1)
    status, output = run(servers, *arguments, *only_plan)
    assert (status, "cannot be written to: " in " ".join(output.split())) == (2, True), output


def test_a_table_of_decisions_was_replayed_among_them(servers: str, here: Path) -> None:
    """Without --topic records go to the topics that they came from."""
    table(here / "raw", 1, topic=COMMITS)
    status, output = run(servers, "replay", "raw", "--plan")
    said = f"topic {COMMITS} cannot be written to: delivery exactly_once keeps its decisions there"
    assert (status, said in " ".join(output.split())) == (2, True), output


@pytest.mark.parametrize("only_plan", [["--plan"], []])
def test_a_plan_made_the_broker_s_directory(only_plan: list[str], here: Path) -> None:
    """A directory that is not there has no topic, and is not made to find that out."""
    before = sorted(here.iterdir())
    status, output = run(f"embedded:{here}/nope", "ingest", "flights", "raw", *only_plan)
    assert (status, f"there is no directory {here}/nope" in output) == (2, True), output
    assert sorted(here.iterdir()) == before


@pytest.mark.parametrize(
    "arguments",
    [
        ["ingest", "flights", "ckpt/raw"],
        ["ingest", "flights", "link/raw"],
        [*DECODED, "--table", "a", "--dead-letter-table", "a/bad"],
    ],
)
def test_a_plan_accepted_one_folder_inside_another(arguments: list[str], servers: str, here: Path) -> None:
    """The next start would find foreign files in a table, or a table in the checkpoint."""
    (here / "ckpt").mkdir()
    (here / "link").symlink_to(here / "ckpt")
    status, output = run(servers, *arguments, "--plan")
    assert (status, "are one folder, or one inside" in output) == (2, True), output


@pytest.mark.parametrize("name", STREAMS)
def test_a_plan_did_not_say_what_it_left_unchecked(name: str, servers: str, here: Path) -> None:
    """In object storage the checkpoint may have been used, by a query whose tables are others."""
    pytest.importorskip("fsspec", reason="needs a filesystem that is not the disk's")
    assert here
    arguments = ["pipeline", *STREAMS[name], "-b", servers, "--checkpoint", f"memory://{name}/c", "--plan"]
    result = CliRunner().invoke(splashdam, arguments)
    assert result.exit_code == 0, result.output
    for said in (
        "from the earliest offsets if the checkpoint is new",
        f"checkpoint memory://{name}/c: not looked into from here",
        "whether it has been used, and with these tables, is not checked",
    ):
        assert said in result.output


def test_a_table_s_hidden_folder_may_be_the_checkpoint(servers: str, here: Path) -> None:
    """Readers of tables skip it, and users of Delta have it there. But not among the table's own files."""
    for name, status in (("_checkpoints/c", 0), (".ckpt", 0), ("_delta_log/c", 2), ("checkpoint", 2)):
        arguments = ["pipeline", "ingest", "flights", "raw", "-b", servers, "--checkpoint", f"raw/{name}"]
        result = CliRunner().invoke(splashdam, [*arguments, "--plan"])
        assert result.exit_code == status, result.output


def test_folders_side_by_side_are_apart(servers: str, here: Path) -> None:
    """A common beginning of the name is no folder."""
    status, output = run(servers, "ingest", "flights", "ckpt2", "--plan")
    assert status == 0, output


INGEST = ["ingest", "flights", "raw"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            [*INGEST, "--starting-offsets", '{"flights":{"0":99}}'],
            "--starting-offsets=99 for flights-0: its log",
        ),
        (["ingest", ",", "raw"], "TOPIC[,…]: names no topic"),
        (["ingest", "flights", ""], "'TABLE': is empty"),
        ([*DECODED, "--table", "", "--dead-letter-table", "b"], "'--table': is empty"),
        (
            [*INGEST, "-X", "auto.offset.reset=latest"],
            "Error: auto.offset.reset cannot be set: set the option --starting-offsets instead",
        ),
        ([*INGEST, "--master", "local[0]"], "'local[0]' is no master of Spark"),
        ([*INGEST, "--master", "spark://h:x"], "'spark://h:x' is no master of Spark: 'h:x' has port 'x'"),
        (["ingest", "a b", "raw"], "TOPIC[,…]: 'a b' is not a legal topic name"),
        ([*INGEST, "--follow", "nan"], "'--follow': 'nan' is no number of seconds"),
        ([*INGEST, "--follow", "inf"], "'--follow': 'inf' is no number of seconds"),
        ([*INGEST, "--follow", "0.00001"], "'--follow': an interval of 1e-05 s is below Spark's shortest"),
        ([*INGEST, "--remove-orphans", "nan"], "'--remove-orphans': 'nan' is no number of hours"),
        ([*INGEST, "--master", "foo"], "'foo' is no master of Spark: give local[N]"),
        ([*INGEST, "--spark-log", "/proc/x"], "/proc takes no new file"),
        ([*INGEST, "--storage", "s3.endpont=x"], "Did you mean 's3.endpoint'?"),
        (["ingest", "flights", "/proc/tbl"], "/proc takes no new file"),
        (
            ["decode", "flights", "--schema", "bin.json", "--table", "a", "--dead-letter-table", "b"],
            "cannot read bin.json: 'utf-8'",
        ),
        (
            ["decode", "flights", "--schema", "bad.ddl", "--table", "a", "--dead-letter-table", "b"],
            "bad.ddl: ",
        ),
        (
            ["decode", "flights", "--schema", "bad.json", "--table", "a", "--dead-letter-table", "b"],
            "bad.json: $ of",
        ),
    ],
)
def test_a_plan_passed_or_named_what_nobody_gave(
    arguments: list[str], said: str, servers: str, here: Path
) -> None:
    """Errors name the flag that was given, and each of these is one."""
    (here / "bin.json").write_bytes(b"\x7b\x84")
    (here / "bad.ddl").write_text("id bigintt")
    (here / "bad.json").write_text('{"type": "objct"}')
    status, output = run(servers, *arguments, "--plan")
    text = " ".join(output.split())
    assert (status, said in text) == (2, True), output
    assert "not JSON" not in text
    assert "cause: " not in text, "it is said twice"


def test_a_command_named_an_option_of_spark_that_it_lacks(servers: str, here: Path) -> None:
    """A checkpoint beyond the log's end: the remedy was the option failOnDataLoss."""
    for name, text in (("offsets", 'v1\n{}\n{"flights":{"0":99}}'), ("commits", "v1\n{}")):
        (here / "ckpt" / name).mkdir(parents=True)
        (here / "ckpt" / name / "0").write_text(text)
    status, output = run(servers, *INGEST, "--plan")
    assert (status, "give a new --checkpoint" in output, "failOnDataLoss" in output) == (1, True, False), (
        output
    )


def test_an_empty_checkpoint_was_called_a_table(servers: str, here: Path) -> None:
    """As from an unset variable."""
    result = CliRunner().invoke(splashdam, ["pipeline", *INGEST, "-b", servers, "--checkpoint", "", "--plan"])
    assert (result.exit_code, "'--checkpoint': is empty" in result.output) == (2, True), result.output


WINDOW = ["window", "flights", "--table", "a", "--late-table", "b"]
EVERY_COLUMN = "key,value,topic,partition,offset,timestamp,timestampType"


@pytest.mark.parametrize("only_plan", [["--plan"], []])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([*INGEST, "--partition-by", "topic,topic"], "--partition-by=topic,topic: topic is named twice"),
        (
            [*INGEST, "--headers", "--partition-by", "headers"],
            "--partition-by=headers: cannot partition by headers, which is list<",
        ),
        (
            [*INGEST, "--partition-by", "topic,key"],
            "--partition-by=topic,key: cannot partition by key, which is binary: folders are named by",
        ),
        ([*INGEST, "--partition-by", "value"], "cannot partition by value, which is binary"),
        ([*INGEST, "--partition-by", EVERY_COLUMN], "these are all columns"),
        ([*WINDOW, "--size", "99999999999d"], "--size=99999999999d: too long: give 1ms to 365000d"),
        ([*WINDOW, "--size", "9" * 5000 + "d"], "'--size': '9999"),
        ([*WINDOW, "--size", "1h", "--delay", "366000d"], "--delay=366000d: too long"),
        ([*WINDOW, "--size", "1h", "--slide", "0s"], "--slide=0s: too short"),
        ([*WINDOW, "--size", "1h", "--delay", ""], "'--delay': '' is not a duration"),
        ([*INGEST, "--partition-by", ","], "'--partition-by': names no column"),
        ([*INGEST, "-X", "security.protocol=FOO"], "-X security.protocol='FOO': must be one of"),
        ([*WINDOW, "--size", "1h", "--time", ""], "--time='': empty: name a column"),
        ([*INGEST, "--remove-orphans", "1e300"], "'--remove-orphans': 1e+300 is not in the range"),
        ([*INGEST, "--follow", "1e300"], "'--follow': 1e+300 is not in the range"),
    ],
)
def test_a_plan_passed_what_failed_in_spark(
    arguments: list[str], said: str, only_plan: list[str], servers: str, here: Path
) -> None:
    """After a JVM's ten seconds, and some without a cause."""
    before = sorted(here.iterdir())
    status, output = run(servers, *arguments, *only_plan)
    assert (status, said in " ".join(output.split())) == (2, True), output
    assert sorted(here.iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([*INGEST, "--starting-offsets", "{}"], "Error: --starting-offsets does not name flights-0;"),
        (
            [*INGEST, "--starting-offsets", "bogus"],
            """--starting-offsets='bogus': must be like {"topic":{"0":23,"1":42}}, or be earliest or""",
        ),
        ([*WINDOW, "--size", "0s"], "Error: --size=0s: too short: give 1ms to 365000d"),
        (
            [*WINDOW, "--size", "1h", "--slide", "2h"],
            "Error: --slide=2h is longer than --size=1h: windows must not begin further apart",
        ),
        ([*INGEST, "--max-records", str(2**63)], "--max-records='9223372036854775808': must be at most"),
    ],
)
def test_a_message_named_no_flag(arguments: list[str], said: str, servers: str, here: Path) -> None:
    """It named an option of Spark, or nothing, and spoke of milliseconds that nobody gave."""
    status, output = run(servers, *arguments, "--plan")
    text = " ".join(output.split())
    assert (status, said in text) == (2, True), output
    assert "startingOffsets" not in text


@pytest.mark.parametrize("name", ["offset", "timestamp"])
def test_nobody_told_that_each_record_gets_a_folder(name: str, servers: str, here: Path) -> None:
    """It is allowed, as Spark allows it, but hardly meant; by topic or date it is no matter."""
    assert here
    status, output = run(servers, *INGEST, "--partition-by", f"topic,{name}", "--plan")
    said = f"warning: {name} makes a folder for nearly every record; date makes one a day"
    assert (status, said in output) == (0, True), output
    status, output = run(servers, *INGEST, "--partition-by", "topic,date", "--plan")
    assert (status, "warning" in output) == (0, False), output


HOURLY = [*WINDOW, "--size", "1h"]


@pytest.mark.parametrize("only_plan", [["--plan"], []])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--compute", "sum(nope)"],
            "Error: --compute=sum(nope): there is no column nope. The columns are key, value, topic,",
        ),
        (["--by", "ofset"], "--by=ofset: there is no column ofset. Did you mean 'offset'? The columns are"),
        (["--time", "departed"], "--time=departed: there is no column departed."),
        (
            ["--schema", "flights.ddl", "--by", "decoded.idd"],
            "--by=decoded.idd: decoded has no field idd. Did you mean 'id'? Its fields are id",
        ),
    ],
)
def test_a_plan_passed_a_column_that_does_not_exist(
    arguments: list[str], said: str, only_plan: list[str], servers: str, here: Path
) -> None:
    """The run failed by it, and printed seven kilobytes of JSON before it said so."""
    status, output = run(servers, *HOURLY, *arguments, *only_plan)
    assert (status, said in " ".join(output.split())) == (2, True), output
    assert not (here / "ckpt").exists()


@pytest.fixture
def here_with_spark(here: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`here`, where a session may be started."""

    @contextmanager
    def session(**_: Any) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(spark_commands, "session", session)
    return here


@pytest.mark.spark
@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (
            ["--compute", "sum(offset +)"],
            2,
            "--compute=sum(offset +): Spark does not accept it: Syntax error",
        ),
        (["--by", "odd=nope % 2"], 2, "--by=nope % 2: there is no column nope. The columns are key,"),
        (["--time", "key"], 2, "--time=key: Spark does not accept it: Cannot resolve"),
        (["--compute", "sum(key)"], 2, "--compute=sum(key): Spark does not accept it: Cannot resolve"),
        (["--by", "odd=decoded.id % 2", "--schema", "flights.ddl"], 0, "window_end, odd, count"),
    ],
)
def test_a_plan_passed_an_expression_that_spark_does_not_accept(
    arguments: list[str],
    status: int,
    said: str,
    servers: str,
    here_with_spark: Path,
) -> None:
    """What is more than a column's name is left to Spark's analyser, whose answer is one sentence."""
    found, output = run(servers, *HOURLY, *arguments, "--plan")
    assert (found, said in " ".join(output.split())) == (status, True), output
    assert "SQLSTATE" not in output
    assert "QueryContextLogger" not in output
    assert not (here_with_spark / "ckpt").exists()


def test_a_broker_that_cannot_be_reached_was_blamed_on_an_option_of_python(here: Path) -> None:
    """The flag is --bootstrap-servers, which the remedy names."""
    status, output = run("localhost:1", *INGEST, "--timeout", "1", "--plan")
    assert (status, "What to do: check --bootstrap-servers and" in output) == (1, True), output
    assert "bootstrap_servers" not in output


@pytest.mark.parametrize("only_plan", [["--plan"], []])
def test_an_audit_took_a_topic_that_is_not_there_for_compacted(
    only_plan: list[str], data: Path, servers: str, here: Path
) -> None:
    """A misspelled one explained no gap, and nothing said so."""
    assert servers
    status, output = run(None, "audit", str(data), "--compacted", "flihgts", *only_plan)
    said = "--compacted=flihgts: the directory has no such topic, it has "
    assert (status, said in output, "flights" in output) == (2, True, True), output
    status, output = run(None, "audit", str(data), "--compacted", "flights", "--plan")
    assert status == 0, output


@pytest.mark.parametrize("told", [True, False])
def test_a_library_s_warnings_stood_before_the_error(told: bool, servers: str, here: Path) -> None:
    """deltalake's Rust code wrote why it found no region and no keys, line after line. RUST_LOG shows it."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("AWS_")}
    environment |= {"HOME": str(here), "AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:1"}
    environment |= {"RUST_LOG": "warn"} if told else {}
    arguments = ["latest", "flights", "s3://bucket/t", "--checkpoint", "ckpt", "--plan"]
    command = [*COMMAND, "pipeline", *arguments, "-b", servers]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=500, check=False)
    assert done.returncode == 1, done.stderr
    *before, error = done.stderr.splitlines()
    assert error.startswith("Error: s3://bucket/t cannot be looked into: "), done.stderr
    assert error.endswith("and the options of object storage")
    assert any("WARN" in line for line in before) == told
    assert told or not before, done.stderr
