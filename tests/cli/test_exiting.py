"""How the command ends when a signal comes, a stream is closed or full, or the cluster is silent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import pytest
from support.running.cli_processes import COMMAND, run, started

from splashdam.cli import entry
from splashdam.cli.output import counted
from splashdam.cli.records import delivery
from splashdam.embedded_broker.embedded import EmbeddedBroker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A broker that is gone after the test."""
    with EmbeddedBroker(tmp_path / "data", fsync=False) as running:
        yield running


@pytest.fixture
def heeded(request: pytest.FixtureRequest) -> Iterator[signal.Signals]:
    """A signal that started processes do not ignore, although the test run may (nohup)."""
    before = signal.signal(request.param, signal.SIG_DFL)
    yield request.param
    signal.signal(request.param, before)


def main() -> None:
    """The entry point, which sets a handler of Ctrl-C and a variable for the rest of the process."""
    before, is_set = signal.getsignal(signal.SIGINT), "RUST_LOG" in os.environ
    try:
        entry.main()
    finally:
        signal.signal(signal.SIGINT, before)
        if not is_set:
            del os.environ["RUST_LOG"]


def in_shell(redirection: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the command as a shell does with this redirection."""
    script = ["sh", "-c", f'exec "$@" {redirection}', "sh", *COMMAND, *arguments]
    return subprocess.run(script, capture_output=True, text=True, timeout=500, check=False)


@pytest.mark.parametrize(
    ("heeded", "status"),
    [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)],
    indirect=["heeded"],
)
def test_signal_delivers_lingering_records(
    broker: EmbeddedBroker, heeded: signal.Signals, status: int
) -> None:
    """Lines that were read are delivered; the summary says so, and the status names the signal."""
    where = ("t", "-b", broker.bootstrap_servers)
    run("produce", *where, lines=b"before\n")
    sent = b"x" * 600
    slow = ("-X", "linger.ms=100000", "-X", "delivery.timeout.ms=200000", "-X", "batch.size=1000")
    with started("produce", *where, *slow) as process:
        assert process.stdin is not None
        process.stdin.write(sent + b"\nlingering" + sent + b"\n")
        process.stdin.flush()
        # The first line travels because the second did not fit into its batch: so both have been read.
        run("tail", *where, "--from-beginning", "--max-messages", "2")
        process.send_signal(heeded)
        errors = process.communicate(timeout=500)[1].decode()
    assert process.returncode == status
    assert errors.startswith("2 records delivered to t in ")
    assert errors.endswith("; interrupted\n")
    read = run("tail", *where, "--from-beginning", "--exit-at-end")
    assert read.stdout == b"before\n" + sent + b"\nlingering" + sent + b"\n"


@pytest.mark.parametrize(
    ("redirection", "arguments", "name"),
    [
        ("<&-", ("produce", "t"), "input"),
        (">&-", ("tail", "t"), "output"),
        (">&-", ("broker", "--port", "0", "--data", "/dev/null/x"), "output"),
    ],
)
def test_closed_stream(redirection: str, arguments: tuple[str, ...], name: str) -> None:
    """A closed stream that is needed is one line and status 1."""
    done = in_shell(redirection, *arguments)
    assert (done.returncode, done.stderr) == (1, f"Error: standard {name} is closed\n")


def test_closed_standard_error(broker: EmbeddedBroker) -> None:
    """Nobody wants the summary; the record is delivered all the same."""
    done = in_shell("2>&- </dev/null", "produce", "t", "-b", broker.bootstrap_servers)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
def test_full_output(broker: EmbeddedBroker) -> None:
    """The message says what could not be written, and nothing follows it."""
    run("produce", "t", "-b", broker.bootstrap_servers, lines=b"x\n")
    done = in_shell(">/dev/full", "tail", "t", "-b", broker.bootstrap_servers, "--from-beginning")
    assert done.returncode == 1
    assert done.stderr == "Error: writing to standard output: No space left on device\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
@pytest.mark.parametrize("arguments", [("--version",), ("tail", "--help"), ("contract", "--list")])
def test_help_on_a_full_disk_was_a_traceback(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What no command reports itself is one line, too."""
    monkeypatch.setattr(sys, "argv", ["splashdam", *arguments])
    with suppress(OSError), Path("/dev/full").open("w", buffering=1) as full:  # closing it fails, too
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 1
    assert capsys.readouterr().err == "Error: writing to standard output: No space left on device\n"


@pytest.mark.parametrize("where", ["splashdam.cli.commands.import_module", "splashdam.cli.entry.find_spec"])
def test_ctrl_c_while_modules_are_imported_was_a_traceback_or_status_1(
    where: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Imports are half of the time of a short command."""

    def interrupted(_name: str) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(where, interrupted)
    monkeypatch.setattr(sys, "argv", ["splashdam", "topics", "list"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == ""


def test_silent_cluster_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the first record waits, one line names the last failure and the limit."""
    monkeypatch.setattr(delivery, "PATIENCE_SECONDS", 0.3)
    done = run("produce", "t", "-b", "127.0.0.1:1", "-X", "max.block.ms=1500", lines=b"lost\n")
    waiting, *rest = done.stderr.decode().splitlines()
    assert waiting.startswith("waiting for the cluster, for at most 1.5 s; so far: ")
    assert "127.0.0.1:1" in waiting
    assert not any(line.startswith("waiting") for line in rest)
    assert done.returncode == 1


def test_grammar() -> None:
    """One of a thing is not many."""
    assert [counted(number, "record") for number in (0, 1, 2000)] == [
        "0 records",
        "1 record",
        "2,000 records",
    ]
