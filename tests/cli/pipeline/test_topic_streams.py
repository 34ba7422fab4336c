"""Pipelines say before a JVM starts which topic is missing, and which options belong to nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from support.running import patches

from splashdam import EmbeddedBroker
from splashdam.cli.commands import splashdam
from splashdam.cli.pipeline import spark as spark_commands
from splashdam.testing.topics import create_topic


class SessionBeginsError(click.ClickException):
    """All that comes before a session is done."""

    exit_code = 77


def begin(*_arguments: object) -> None:
    raise SessionBeginsError("a session begins")


@pytest.fixture(scope="module", params=["true", "false"])
def creates(request: pytest.FixtureRequest) -> bool:
    """Whether brokers create topics that are written to."""
    return bool(request.param == "true")


@pytest.fixture(scope="module")
def broker(creates: bool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """One with the topic ``there``."""
    config = {"auto.create.topics.enable": str(creates).lower()}
    with EmbeddedBroker(tmp_path_factory.mktemp("data"), fsync=False, config=config) as running:
        create_topic(running.bootstrap_servers, "there", 1)
        yield running


def at(broker: EmbeddedBroker) -> tuple[str, ...]:
    """The options that lead there, and have all the time that a busy machine takes."""
    return ("-b", broker.bootstrap_servers, "--timeout", "300")


def topics(broker: EmbeddedBroker) -> Result:
    return CliRunner().invoke(splashdam, ["topics", "list", "--names", *at(broker)])


SCHEMA = Path("values.ddl")
DECODE = ("pipeline", "decode", "there", "--checkpoint", "c", "--schema", str(SCHEMA))
SOURCES = {
    "ingest": ("pipeline", "ingest", "gone", "table", "--checkpoint", "c"),
    "ingest of two": ("pipeline", "ingest", "there,gone", "table", "--checkpoint", "c"),
    "latest": ("pipeline", "latest", "gone", "table", "--checkpoint", "c"),
    "decode": (*DECODE[:2], "gone", *DECODE[3:], "--table", "x", "--dead-letter-table", "y"),
    "window": (
        *("pipeline", "window", "gone", "--checkpoint", "c", "--size", "1h"),
        *("--table", "x", "--late-table", "y"),
    ),
}
SINKS = {
    "decode": (*DECODE, "--topic", "gone", "--dead-letter-table", "y"),
    "dead letters": (*DECODE, "--table", "x", "--dead-letter-topic", "gone"),
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a schema."""
    monkeypatch.chdir(tmp_path)
    SCHEMA.write_text("id bigint")


@pytest.mark.parametrize("name", SOURCES)
def test_a_missing_source_starts_no_session(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whether or not topics are created when they are written to."""
    monkeypatch.setattr(spark_commands, "_started", patches.guard("a session"))
    done = CliRunner().invoke(splashdam, [*SOURCES[name], *at(broker)])
    assert done.exit_code == 1
    assert "[3 UnknownTopicOrPartitionError] topic 'gone'" in done.output
    assert topics(broker).output == "there\n"


@pytest.mark.parametrize("name", SINKS)
def test_a_missing_sink_cost_the_start_of_a_session(
    broker: EmbeddedBroker, creates: bool, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Where brokers create it, the session begins; else it is named before, as a client's wish is."""
    monkeypatch.setattr(spark_commands, "_started", begin if creates else patches.guard("a session"))
    arguments = [*SINKS[name], *at(broker)]
    done = CliRunner().invoke(splashdam, arguments)
    assert done.exit_code == (77 if creates else 1), done.output
    assert ("topic 'gone'" in done.output) == (not creates)
    monkeypatch.setattr(spark_commands, "_started", patches.guard("a session"))
    done = CliRunner().invoke(splashdam, [*arguments, "-X", "allow.auto.create.topics=false"])
    assert (done.exit_code, "topic 'gone'" in done.output) == (1, True)


def test_a_sink_needs_no_right_to_describe_configs(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a broker does not say whether it creates topics, the sink finds out."""
    broker.faults.describe_configs(error="CLUSTER_AUTHORIZATION_FAILED", times=1)
    monkeypatch.setattr(spark_commands, "_started", begin)
    done = CliRunner().invoke(splashdam, [*SINKS["decode"], *at(broker)])
    assert done.exit_code == 77, done.output


WINDOW = ("window", "t", "--checkpoint", "c", "--size", "1h", "--table", "x", "--late-table", "y")
DECODED = ("decode", "t", "--checkpoint", "c", "--table", "x", "--dead-letter-table", "y")
STRAYS = [
    ((*WINDOW, "--schema-id", "1=a.avsc"), ("--schema-id", "needs --schema")),
    ((*WINDOW, "--framing", "bare"), ("--framing", "needs --schema")),
    ((*WINDOW, "--framing", "confluent"), ("--framing", "needs --schema")),
    ((*WINDOW, "--refuse-unknown"), ("--refuse-unknown", "needs --schema")),
    *(
        ((*command, "--schema", schema, *stray), (stray[0], f"--schema {schema}"))
        for command in (WINDOW, DECODED)
        for schema, stray in (
            ("v.json", ("--framing", "bare")),
            ("v.ddl", ("--framing", "single-object")),
            ("v.json", ("--schema-id", "1=a.avsc")),
            ("v.avsc", ("--refuse-unknown",)),
        )
    ),
    ((*DECODED, "--schema", "v.avsc", "--schema-id", "a.avsc"), ("--schema-id", "'a.avsc' is not ID=FILE")),
    (
        (*DECODED, "--schema", "v.avsc", "--schema-id", "1=a", "--schema-id", "1=b"),
        ("'1=b'", "--schema-id 1=a"),
    ),
]


@pytest.mark.parametrize(("arguments", "named"), STRAYS, ids=lambda words: " ".join(words[-4:]))
def test_an_option_of_another_schema_was_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], named: tuple[str, ...]
) -> None:
    """The status is 2, the message names both, and no broker is asked: no broker runs here."""
    monkeypatch.chdir(tmp_path)
    for name in ("v.json", "v.ddl", "v.avsc"):
        Path(name).touch()
    done = CliRunner().invoke(splashdam, ["pipeline", *arguments, "-b", "127.0.0.1:1"])
    assert done.exit_code == 2, done.output
    for words in named:
        assert words in done.output
