"""The lines of docs/how-to/from-kcat.md, in a shell that knows pipes, echo and printf."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from splashdam import EmbeddedBroker
from splashdam.cli.commands import splashdam

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "from-kcat.md"
ROW = re.compile(r"^\| .* \| `(.*)` \|$", re.MULTILINE)
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
OLD = b'{"value": "new year", "key": "anna", "partition": 0, "timestamp_ms": 1767225600001}\n'


def lines() -> list[str]:
    return [line.replace(r"\|", "|") for line in ROW.findall(PAGE.read_text())]


def words_of(line: str) -> list[list[str]]:
    """Splits at the pipes that are not in quotes."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|")
    lexer.whitespace_split = True
    commands: list[list[str]] = [[]]
    for word in lexer:
        if word == "|":
            commands.append([])
        else:
            commands[-1].append(word)
    return commands


def run(line: str, servers: str) -> bytes:
    output = b""
    for program, *arguments in words_of(line):
        if program == "echo":
            output = " ".join(arguments).encode() + b"\n"
        elif program == "printf":
            output = arguments[0].encode().decode("unicode_escape").encode()
        else:
            assert program == "splashdam", line
            done = CliRunner().invoke(splashdam, [*arguments, "-b", servers], input=output)
            assert done.exit_code == 0, f"{line}\n{done.output}"
            output = done.stdout_bytes
    return output


def test_every_line_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the page; readers find records, and listings have rows."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders.txt").write_text("anna:5 planks\nben:2 beams\n")
    assert len(lines()) >= 30
    with EmbeddedBroker(config=AUTHORIZER, topics={"orders": 2, "copy": 2}) as broker:
        servers = broker.bootstrap_servers
        run("splashdam topics alter orders -c retention.ms=-1", servers)
        where = ["produce", "orders", "--json", "-b", servers]
        assert CliRunner().invoke(splashdam, where, input=OLD).exit_code == 0
        run("splashdam produce orders -p 0 orders.txt", servers)
        run("splashdam topics alter copy -c retention.ms=-1", servers)
        for line in lines():
            output = run(line, servers)
            is_reader = words_of(line)[-1][1] == "tail"
            assert output or not is_reader, line
        copied = run("splashdam tail copy -p 0 -o earliest -c 1 -f '%k=%s %T'", servers)
    assert copied == b"anna=new year 1767225600001"
