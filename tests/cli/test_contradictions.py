"""Options that contradict each other are wrong usage: status 2, both named, and nothing is changed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from support.running.cli_processes import run

from splashdam.cli.commands import OnceCommand, splashdam
from splashdam.embedded_broker.embedded import EmbeddedBroker

ON_CLUSTER = [
    ("topics", "list"),
    ("topics", "delete", "t", "--yes"),
    ("groups", "list"),
    ("groups", "delete", "g", "--yes"),
    ("tail", "t"),
    ("produce", "t"),
    ("pipeline", "latest", "t", "TABLE", "--checkpoint", "DIR"),
]
PAIRS = [
    *(
        (command, ("--bootstrap-servers", "127.0.0.1:1"), ("-X", "bootstrap.servers=127.0.0.1:2"))
        for command in ON_CLUSTER
    ),
    (("topics", "alter", "t"), ("--topic-config", "retention.ms=1"), ("--unset", "retention.ms")),
    (
        ("topics", "alter", "t"),
        ("--topic-config", "retention.ms=1"),
        ("--topic-config", "retention.ms=2"),
    ),
    (("topics", "create", "new"), ("-c", "retention.ms=1"), ("-c", "retention.ms=2")),
    (("produce", "t"), ("-X", "linger.ms=1"), ("-X", "linger.ms=2")),
    (("produce", "t"), ("--compression", "none"), ("-X", "compression.type=gzip")),
    (("produce", "t"), ("--timeout", "1"), ("-X", "max.block.ms=5")),
    (("broker",), ("--listener", "SSL://localhost:0"), ("--port", "0")),
    (("broker",), ("--listener", "SSL://localhost:0"), ("--host", "localhost")),
    (("broker",), ("--listener", "PLAINTEXT://localhost:0"), ("-X", "listeners=PLAINTEXT://localhost:0")),
    (("broker",), ("--data", "one"), ("-X", "log.dirs=two")),
    (("broker",), ("--memory",), ("-X", "log.dirs=two")),
    (("tail", "t"), ("--since", "1d"), ("--until", "2d")),
    (("tail", "t"), ("--format", "json"), ("--null-marker", "x")),
]


@pytest.mark.parametrize(("command", "one", "other"), PAIRS, ids=" ".join)
def test_contradicting_options_change_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    one: tuple[str, ...],
    other: tuple[str, ...],
) -> None:
    """In either order; the folder stays empty, and no broker is there to be asked."""
    monkeypatch.chdir(tmp_path)
    for options in ((*one, *other), (*other, *one)):
        done = CliRunner().invoke(splashdam, [*command, *options])
        assert done.exit_code == 2, done.output
        assert "contradicts" in done.output
        for words in (one, other):
            flag = words[0] if not words[0].startswith("-X") else words[1].partition("=")[0]
            assert {"--topic-config": "-c"}.get(flag, flag).strip("-") in done.output
    assert list(tmp_path.iterdir()) == []


def test_a_reset_with_two_targets_leaves_the_offsets(tmp_path: Path) -> None:
    """The last one won, and the group had skipped or read again all its records."""
    with EmbeddedBroker(tmp_path, fsync=False) as broker:
        where = ("-b", broker.bootstrap_servers)
        assert run("produce", "t", *where, lines=b"a\nb\nc\n").returncode == 0
        assert run("groups", "reset", "g", "--topic", "t", "--to-offset", "1", *where).returncode == 0
        before = run("groups", "describe", "g", *where).stdout
        done = run("groups", "reset", "g", "--to-earliest", "--to-latest", *where)
        assert done.returncode == 2
        assert b"--to-earliest contradicts --to-latest" in done.stderr
        assert run("groups", "describe", "g", *where).stdout == before


def test_a_property_names_the_cluster_where_no_option_does() -> None:
    """It was ignored for localhost:9092."""
    done = run("topics", "list", "-X", "bootstrap.servers=127.0.0.1:1")
    assert done.returncode == 1
    assert b"127.0.0.1:1" in done.stderr


def test_a_mechanism_is_added_beside_the_other(tmp_path: Path) -> None:
    """It had replaced the other one, whose clients could not come in any more."""
    for options in ((), ("--mechanism", "SCRAM-SHA-512")):
        done = run("users", "add", "anna", "--data", str(tmp_path), *options, lines=b"secret\n")
        assert done.returncode == 0
    assert run("users", "list", "--data", str(tmp_path)).stdout == b"anna\tSCRAM-SHA-256,SCRAM-SHA-512\n"


def every_command(command: click.Command, *names: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from every_command(found, *names, name)
    else:
        yield names, command


EXCLUSIVE = [
    pytest.param(names, command, first, second, id=" ".join((*names, first, second)))
    for names, command in every_command(splashdam)
    if isinstance(command, OnceCommand)
    for together in command.exclusives
    for first, second in itertools.permutations(together, 2)
]


def given(command: click.Command, parameter: str) -> tuple[str, ...]:
    """The parameter on a command line; its value may be wrong, since the contradiction is told first."""
    (found,) = (each for each in command.params if each.name == parameter)
    flag = (max(found.opts, key=len),) if isinstance(found, click.Option) else ()
    return flag if getattr(found, "is_flag", False) else (*flag, "1")


@pytest.mark.parametrize(("names", "command", "first", "second"), EXCLUSIVE)
def test_two_options_of_which_a_command_takes_one(
    names: tuple[str, ...], command: click.Command, first: str, second: str
) -> None:
    """Any two options of a list that a command declares are refused, in either order."""
    options = [given(command, name) for name in (first, second)]
    done = CliRunner().invoke(splashdam, [*names, *options[0], *options[1]])
    assert done.exit_code == 2
    assert "contradicts" in done.output
    for words in options:
        assert words[0].strip("1-") in done.output


def test_the_great_commands_declare_what_excludes_itself() -> None:
    """`groups reset --to-earliest --to-latest` moved offsets."""
    declared = {names for (names, *_) in (each.values for each in EXCLUSIVE)}
    assert {
        ("groups", "reset"),
        ("tail",),
        ("produce",),
        ("broker",),
        ("delete-records",),
        ("contract",),
    } <= declared


SINGLE = [
    pytest.param((*names, max(option.opts, key=len)), id=" ".join((*names, max(option.opts, key=len))))
    for names, command in every_command(splashdam)
    for option in command.params
    if isinstance(option, click.Option) and not (option.multiple or option.is_flag or option.count)
]


@pytest.mark.parametrize("line", SINGLE)
def test_the_last_of_two_was_taken(line: tuple[str, ...]) -> None:
    """``groups reset --to-offset 1 --to-offset 2`` moved offsets; of two ``--config`` one was not read."""
    *names, option = line
    done = CliRunner().invoke(splashdam, [*names, option, "1", option, "2"])
    assert done.exit_code == 2
    assert f"{option} is given 2 times" in done.output
