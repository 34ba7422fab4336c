"""``splashdam options`` and ``splashdam configs``: the tables of the pages, for pipe, terminal and JSON."""

from __future__ import annotations

import json
import re
import sys
from io import StringIO
from typing import Any

import attrs
import pytest
from click.testing import CliRunner, Result

from splashdam.cli.commands import splashdam
from splashdam.cli.output import print_table
from splashdam.client.settings.option_table import option_rows
from splashdam.client.settings.producer_settings import ProducerSettings
from splashdam.embedded_broker.configs.table import known_configs


def run(*arguments: str) -> Result:
    return CliRunner().invoke(splashdam, arguments)


def rows(*arguments: str) -> list[list[str]]:
    """What a pipe gets, the headings first."""
    done = run(*arguments)
    assert done.exit_code == 0, done.output
    return [line.split("\t") for line in done.output.splitlines()]


def test_all_options() -> None:
    """Each once, with its columns."""
    head, *found = rows("options")
    assert head == ["option", "type", "default", "unit", "kafka", "meaning"]
    assert sorted(row[0] for row in found) == sorted(field.name for field in attrs.fields(ProducerSettings))
    assert {len(row) for row in found} == {6}
    by_name = {row[0]: row for row in found}
    assert by_name["linger_ms"][:5] == ["linger_ms", "float", "5", "ms", "linger.ms"]
    assert by_name["batch_size"][1:4] == ["int", "262144", "bytes"]
    assert by_name["partitioner"][2:5] == ["DefaultPartitioner()", "", "partitioner.class"]
    assert by_name["client_id"][1:3] == ["str | None", ""]


@pytest.mark.parametrize("word", ["linger", "LINGER.ms", "linger-ms"])
def test_options_with_a_word(word: str) -> None:
    """In the name or in the meaning, the name first; dots, dashes and capitals do not count."""
    found = [row[0] for row in rows("options", word)[1:]]
    assert found[0] == "linger_ms"
    everywhere = [row[0] for row in rows("options", "memory")[1:]]
    assert everywhere[0] == "buffer_memory"
    assert "max_block_ms" in everywhere
    assert [row[0] for row in rows("options", "sasl", "token", "grant")[1:]] == [
        "sasl_oauthbearer_token_endpoint_url"
    ]


@pytest.mark.parametrize(
    ("command", "word", "nearest"),
    [("options", "lingre_ms", "linger_ms"), ("configs", "log.retentoin.ms", "log.retention.ms")],
)
def test_no_such_row(command: str, word: str, nearest: str) -> None:
    """The nearest name helps."""
    done = run(command, word)
    assert done.exit_code == 1
    assert f"has '{word}' in name or meaning. Did you mean '{nearest}'?" in done.output


def test_configs() -> None:
    """Those of brokers and of topics, and what is known and ignored."""
    head, *found = rows("configs")
    assert head == ["name", "scope", "type", "default", "unit", "meaning"]
    assert [row[:2] for row in found] == [[row.name, row.scope.value] for row in known_configs()]
    assert all(row[5] for row in found)
    topic = rows("configs", "retention.ms", "--scope", "topic")[1:]
    assert topic[-1][:5] == ["retention.ms", "topic", "integer", "604800000", "ms"]
    assert "(unset: log.retention.ms, log.retention.minutes, log.retention.hours)" in topic[-1][5]
    ignored = rows("configs", "zookeeper.connect")[1:]
    assert "No effect: " in ignored[0][5]


@pytest.mark.parametrize(
    ("command", "count"), [("options", len(option_rows())), ("configs", len(known_configs()))]
)
def test_as_json(command: str, count: int) -> None:
    """For programs: an array of objects with the same keys."""
    found = json.loads(run(command, "--json").output)
    assert len(found) == count
    assert len({tuple(each) for each in found}) == 1
    assert {"name", "type", "default", "unit"} <= found[0].keys()
    assert len(json.loads(run(command, "--json", "compression").output)) < count


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a command in a terminal of a width."""

    def show(width: int, *arguments: str) -> str:
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setenv("TERM", "xterm")
        output = Terminal()
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", output)
            splashdam.main(list(arguments), standalone_mode=False)
        return re.sub(r"\x1b\[[0-9;]*m", "", output.getvalue())

    return show


def test_brackets_in_a_table_are_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name with [red] in it lost that, and the line changed its colour."""
    monkeypatch.setenv("COLUMNS", "80")
    output = Terminal()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", output)
        print_table(("name",), [("a[red]b",)])
    assert "a[red]b" in output.getvalue()


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_in_a_terminal(terminal: Any, width: int) -> None:
    """Nothing is cut, and no line is longer than the terminal; sections have titles, a search has none."""
    for command, names in (
        ("options", [row.name for row in option_rows()]),
        ("configs", [row.name for row in known_configs()]),
    ):
        text = terminal(width, command)
        assert max(map(len, text.splitlines())) <= width
        assert "…" not in text
        joined = "".join(text.split())
        assert [name for name in names if name not in joined] == [] or width < 100
    if width >= 100:
        assert "splashdam[compression]" in terminal(width, "options", "codec")
    assert "TLS and SASL" in terminal(width, "options")
    assert "On a topic" in terminal(width, "configs")
    found = terminal(width, "options", "linger_ms")
    assert "linger.ms" in found
    assert "5 ms" in found
    assert "Sending" not in found
