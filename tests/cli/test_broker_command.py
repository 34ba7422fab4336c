"""`splashdam broker`: where it listens, how it ends, and who else may use its directory."""

from __future__ import annotations

import re
import signal
import socket
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.running.cli_processes import first_line, run, started
from support.running.process_kit import run_script

from splashdam import KafkaProducer
from splashdam.cli.commands import splashdam
from splashdam.embedded_broker.configs.developer import DEVELOPER_DEFAULTS
from splashdam.wire.answered_errors import errors_in
from splashdam.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from splashdam.wire.messages.list_transactions import ListTransactionsResponse

LISTENING = re.compile(r"listening on (127\.0\.0\.1):(\d+)")


def test_first_line_names_the_port_that_was_taken(tmp_path: Path) -> None:
    """`--port 0` takes a free port; the first line names it, and somebody listens there."""
    with started("broker", "--data", str(tmp_path / "data"), "--port", "0") as process:
        match = LISTENING.fullmatch(first_line(process))
        assert match is not None
        socket.create_connection((match[1], int(match[2])), timeout=10).close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_shut_down_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    """SIGTERM and Ctrl-C end with status 0 and leave the mark of a clean shutdown."""
    with started("broker", "--data", str(tmp_path), "--port", "0") as process:
        first_line(process)
        process.send_signal(number)
        rest, errors = process.communicate(timeout=500)
        assert (process.returncode, rest, errors) == (0, b"", b"")
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_second_process_learns_which_process_holds_the_directory(tmp_path: Path) -> None:
    """A directory serves one process at a time; the message names the other one's pid."""
    with started("broker", "--data", str(tmp_path), "--port", "0") as process:
        first_line(process)
        second = run("broker", "--data", str(tmp_path), "--port", "0")
        assert second.returncode == 1
        assert str(process.pid) in second.stderr.decode()
        assert "Traceback" not in second.stderr.decode()
        assert second.stdout == b""


def test_directory_is_free_again_after_a_kill(tmp_path: Path) -> None:
    """A killed broker leaves no lock behind."""
    with started("broker", "--data", str(tmp_path), "--port", "0") as process:
        first_line(process)
        process.kill()
        process.wait(timeout=500)
    with started("broker", "--data", str(tmp_path), "--port", "0") as process:
        assert LISTENING.fullmatch(first_line(process))


def test_port_in_use(tmp_path: Path) -> None:
    """A port that somebody else has is a message, not a traceback."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("broker", "--data", str(tmp_path), "--port", str(port))
    assert done.returncode == 1
    assert str(port) in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()


def test_unknown_setting_is_refused_with_the_right_name(tmp_path: Path) -> None:
    """Settings go by Kafka's names, and a typing error is explained."""
    done = run("broker", "--data", str(tmp_path), "--port", "0", "-X", "num.partition=6")
    assert done.returncode == 2
    assert "num.partitions" in done.stderr.decode()


@pytest.mark.parametrize(("name", "unit"), [("ms", "milliseconds"), ("hours", "hours"), ("bytes", "bytes")])
def test_the_error_for_a_setting_that_is_no_number_names_its_unit(
    tmp_path: Path, name: str, unit: str
) -> None:
    """By the name that was given: Kafka has several for one setting."""
    done = run("broker", "--data", str(tmp_path), "--port", "0", "-X", f"log.retention.{name}=abc")
    assert done.returncode == 2
    assert f"log.retention.{name}='abc': must be a whole number of {unit}." in done.stderr.decode()


def test_an_unusable_directory_is_reported_with_its_reason_only(tmp_path: Path) -> None:
    """There is no other broker whose log would say more."""
    (tmp_path / "file").touch()
    done = run("broker", "--data", str(tmp_path / "file" / "data"), "--port", "0")
    reason = f"could not make directory {tmp_path / 'file' / 'data'}: Not a directory"
    assert (done.returncode, done.stderr.decode()) == (1, f"Error: {reason}\n")


def test_settings_from_a_file_and_over_it(tmp_path: Path) -> None:
    """As Kafka's server.properties; options win, and what has no effect is told."""
    config = tmp_path / "server.properties"
    config.write_text("# a comment\nnum.partitions=6\nlog.dirs=/tmp/kafka\n\nlog.retention.\\\nhours = 1\n")
    arguments = ("broker", "--data", str(tmp_path / "data"), "--port", "0", "--config", str(config))
    with started(*arguments, "--set", "num.partitions=3") as process:
        servers = first_line(process).removeprefix("listening on ")
        with KafkaProducer(bootstrap_servers=servers) as producer:
            assert len(producer.partitions_for("t")) == 3
        process.terminate()
        _, errors = process.communicate(timeout=500)
    assert b"log.dirs=/tmp/kafka in the file has no effect: --data names the directory" in errors
    assert b"retention" not in errors


@pytest.mark.parametrize("line", ["nonsense", "log.retention.hour=1", "=1"])
def test_mistakes_in_a_file_of_settings(tmp_path: Path, line: str) -> None:
    """The line is named, and nothing is started."""
    config = tmp_path / "server.properties"
    config.write_text(f"num.partitions=6\n{line}\n")
    done = run("broker", "--data", str(tmp_path / "data"), "--port", "0", "--config", str(config))
    assert done.returncode == 2
    assert line.partition("=")[0] in done.stderr.decode()
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("command", [("broker",), ("users", "list")])
def test_an_empty_path_was_the_current_directory(command: tuple[str, ...]) -> None:
    """A variable of a shell that is not set leaves one."""
    result = CliRunner().invoke(splashdam, [*command, "--data", ""])
    assert (result.exit_code, "the path is empty" in result.output) == (2, True), result.output


def test_a_long_full_collection_is_not_repeated() -> None:
    """With 5,000 topics each kept the loop for 40 ms; the dead of what it leaves out are found in the end."""
    script = """
        import gc, time, weakref
        from splashdam.cli.broker.broker import short_collections

        class Ring:
            def __init__(self):
                self.me = self

        now_s, collection_s = time.monotonic(), 0.006

        def clock():
            global now_s
            now_s += collection_s
            return now_s

        time.monotonic = clock
        with short_collections():
            kept = [Ring() for _ in range(1000)]
            gc.collect()
            assert gc.get_freeze_count() > 1000
            assert not gc.get_objects(generation=2)
            end = weakref.ref(kept[0])
            kept.clear()
            gc.collect()
            assert end() is not None, "what a long collection has found alive is left out"
            now_s += 600
            gc.collect()
            assert end() is None
            frozen, collection_s = gc.get_freeze_count(), 0.001
            kept.append(Ring())
            gc.collect()
            assert gc.get_freeze_count() == frozen, "a short one leaves nothing out"
        assert not gc.callbacks
    """
    done = run_script(script)
    assert done.returncode == 0, done.stderr


def test_the_broker_keeps_collections_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does so before it says that it listens."""

    def entered() -> AbstractContextManager[None]:
        raise ZeroDivisionError

    monkeypatch.setattr("splashdam.cli.broker.broker.short_collections", entered)
    done = CliRunner().invoke(splashdam, ["broker", "--data", str(tmp_path), "--port", "0"])
    assert done.output == ""
    assert isinstance(done.exception, ZeroDivisionError)


def test_a_broker_for_a_script(tmp_path: Path) -> None:
    """In memory, with a topic, a file that says when it is ready, and a line for each event."""
    ready = tmp_path / "ready"
    line = ("broker", "--memory", "--port", "0", "--topic", "orders:3", "--ready-file", str(ready), "-v")
    with started(*line) as process:
        servers = first_line(process).removeprefix("listening on ")
        assert ready.read_text() == f"{servers}\n"
        with KafkaProducer(bootstrap_servers=servers) as producer:
            assert len(producer.partitions_for("orders")) == 3
        assert run("topics", "describe", "nope", "-b", servers).returncode == 1
        process.terminate()
        _, errors = process.communicate(timeout=500)
        assert process.returncode == 0
    events = [each.partition(" ")[2] for each in errors.decode().splitlines()]
    assert events[0] == "created topic orders, partitions: 3"
    assert any(re.fullmatch(r"127\.0\.0\.1:\d+ is connected", each) for each in events)
    assert any(each.endswith(": Metadata: UNKNOWN_TOPIC_OR_PARTITION (nope)") for each in events)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("topic", ["orders:0", "orders:x", "a b:1"])
def test_a_topic_that_cannot_be_made(topic: str) -> None:
    """It is refused before the broker starts."""
    assert run("broker", "--memory", "--topic", topic).returncode == 2


def test_help_tells_the_defaults_of_a_developer() -> None:
    """Each of them."""
    text = run("broker", "--help").stdout.decode()
    for name, value in DEVELOPER_DEFAULTS.items():
        assert f"{name}={value}" in text


def test_errors_in_an_answer_are_told_with_their_places() -> None:
    """Those of partitions and of whole answers."""
    answer = DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name="t",
                partitions=[
                    DeleteRecordsPartitionResult(partition_index=number, low_watermark=-1, error_code=number)
                    for number in (0, 1)
                ],
            )
        ]
    )
    assert list(errors_in(answer)) == [(1, "t-1")]
    assert list(errors_in(ListTransactionsResponse(error_code=14))) == [(14, "")]
