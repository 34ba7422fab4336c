"""What is wrong before anything is sent is wrong usage: status 2 and one message."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from support.running.cli_processes import run

from splashdam.cli.commands import splashdam
from splashdam.cli.moments import moment
from splashdam.cli.parameters import settled_properties
from splashdam.cli.records.produce import produce
from splashdam.embedded_broker.embedded import EmbeddedBroker


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("linger.sm=5", "linger.ms"),
        ("linger.ms=soon", "linger.ms='soon'"),
        ("acks=7", "acks"),
        ("ssl.cafile=x", "security_protocol"),
        ("delivery.timeout.ms=1", "delivery_timeout_ms=1"),
    ],
)
def test_wrong_property(setting: str, named: str) -> None:
    """An unknown property, a wrong value and a contradiction between two are named."""
    done = run("produce", "t", "-X", setting)
    assert done.returncode == 2
    assert named in done.stderr.decode()
    assert "delivered to" not in done.stderr.decode()


@pytest.mark.parametrize(
    ("options", "property_"),
    [
        (("-b", "127.0.0.1:1"), "bootstrap.servers=127.0.0.1:2"),
        (("--compression", "none"), "compression.type=gzip"),
    ],
)
def test_option_against_property(options: tuple[str, str], property_: str) -> None:
    """Neither an option nor its property wins in silence."""
    done = run("produce", "t", *options, "-X", property_)
    assert done.returncode == 2
    assert f"{options[1]} contradicts -X {property_}" in done.stderr.decode()


@pytest.mark.parametrize("given_by", ["--bootstrap-servers", "-X bootstrap.servers", "the file"])
@pytest.mark.parametrize(
    "command", [("topics", "list"), ("pipeline", "latest", "t", "x", "--checkpoint", "c")]
)
def test_an_address_was_blamed_on_an_option_of_python(
    command: tuple[str, ...], given_by: str, tmp_path: Path
) -> None:
    """The text named ``bootstrap_servers=``, which no command has."""
    config = tmp_path / "client.properties"
    config.write_text("bootstrap.servers=localhost:x\n")
    options, named = {
        "--bootstrap-servers": (("-b", "localhost:x"), "--bootstrap-servers"),
        "-X bootstrap.servers": (("-X", "bootstrap.servers=localhost:x"), "-X bootstrap.servers"),
        "the file": (("--config", str(config)), f"bootstrap.servers in {config}"),
    }[given_by]
    done = CliRunner().invoke(splashdam, [*command, *options])
    assert done.exit_code == 2, done.output
    assert f"Invalid value for {named}: 'localhost:x' has port 'x'" in done.output


def test_an_embedded_address_was_blamed_on_an_option_of_python() -> None:
    """Likewise, what follows the directory."""
    done = CliRunner().invoke(splashdam, ["topics", "list", "-b", "embedded:d?prt=1"])
    assert (done.exit_code, "for --bootstrap-servers: unknown setting 'prt'" in done.output) == (2, True)


def test_a_flag_with_another_name_than_its_parameter_is_named_right() -> None:
    """The text named ``--compression``, which this command does not have."""

    @click.command()
    @click.option("--codec", "compression", default="none")
    @click.pass_context
    def command(context: click.Context, compression: str) -> None:
        settled_properties(context, {"compression.type": "gzip"}, {"compression.type": "compression"})

    done = CliRunner().invoke(command, ["--codec", "lz4"])
    assert done.exit_code == 2
    assert "--codec lz4 contradicts -X compression.type=gzip" in done.output


def test_property_without_its_option(tmp_path: Path) -> None:
    """A property wins over an option that was not given."""
    with EmbeddedBroker(tmp_path, fsync=False) as broker:
        settings = (f"bootstrap.servers={broker.bootstrap_servers}", "compression.type=gzip")
        done = run("produce", "t", "-X", settings[0], "-X", settings[1], lines=b"x\n")
    assert (done.returncode, b"1 record delivered" in done.stderr) == (0, True)


def test_empty_key_separator() -> None:
    """It would separate nothing, which is said before any line is read."""
    done = run("produce", "t", "--key-separator", "", lines=b"x\n")
    assert done.returncode == 2
    assert "--key-separator" in done.stderr.decode()


@pytest.mark.parametrize("command", ["produce", "tail"])
@pytest.mark.parametrize("topic", ["bad topic!", "..", "x" * 250])
def test_illegal_topic(command: str, topic: str) -> None:
    """A name that no broker accepts is refused, with or without input."""
    done = run(command, topic)
    assert done.returncode == 2
    assert "is not a legal topic name" in done.stderr.decode()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("tail", "t", "--timeout", "nan"), "no number of seconds"),
        (("tail", "t", "--since", "9" * 20), "beyond the last time"),
        (("produce", "t", "-H", "\udcff=1"), "must be UTF-8"),
        (("broker", "--memory", "--topic", "t:99999999999"), "at most"),
    ],
)
def test_what_ended_in_a_traceback_or_blamed_the_cluster(words: tuple[str, ...], said: str) -> None:
    """The text is refused before anything is connected or created."""
    done = CliRunner().invoke(splashdam, words)
    assert (done.exit_code, said in done.output) == (2, True), done.output


def test_a_repeated_header_does_not_contradict_itself() -> None:
    """`--header contradicts --header` was the answer to two of them."""
    headers = ("-H", "a=1", "-H", "a=\udcff")
    context = produce.make_context("produce", ["t", *headers])
    assert context.params["header_pairs"] == (("a", b"1"), ("a", b"\xff"))
    with pytest.raises(click.UsageError, match="--header contradicts --json"):
        produce.make_context("produce", ["t", *headers, "--json"])


def test_a_separator_that_is_not_utf8_is_its_bytes() -> None:
    """Keys and values may hold any byte, so a byte that is never in text is a fine separator."""
    context = produce.make_context("produce", ["t", "-K", "\udcff\\t"])
    assert context.params["key_separator"] == b"\xff\t"


def test_a_time_before_1970_is_1970() -> None:
    """Brokers answered a negative time with UNSUPPORTED_VERSION, and -2 and -1 mean other things."""
    assert (moment("99999d"), moment("1969-01-01T00:00Z"), moment("1970-01-01T00:00:01Z")) == (0, 0, 1000)


@pytest.mark.parametrize(
    "words",
    [
        ("bench", "--json"),
        ("contract", "--markdown"),
        ("pipeline", "audit", ".", "--report"),
        ("pipeline", "audit", ".", "--spark-log"),
    ],
)
def test_a_report_replaced_a_file_of_the_broker(words: tuple[str, ...], tmp_path: Path) -> None:
    """Its names were names like any other. Links are followed."""
    with EmbeddedBroker(tmp_path / "data", fsync=False):
        pass
    (tmp_path / "link").symlink_to(tmp_path / "data")
    file = tmp_path / "data/meta.properties"
    before = file.read_bytes()
    for name in (file, tmp_path / "link/new.json"):
        done = CliRunner().invoke(splashdam, [*words, str(name)])
        said = f"{name} is in {tmp_path}/data, the data directory of a broker: name a file elsewhere"
        assert (done.exit_code, said in " ".join(done.output.split())) == (2, True), done.output
    assert file.read_bytes() == before
    assert not (tmp_path / "data/new.json").exists()
