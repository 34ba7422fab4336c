"""Every command that talks to a cluster ends within ``--timeout`` if nothing answers, with one message."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import click
import pytest
from click.testing import CliRunner

from splashdam.cli.commands import splashdam

ARGUMENTS = {
    "acls add": ("--topic", "t", "--principal", "User:a", "--operation", "read"),
    "acls list": (),
    "acls remove": ("--yes",),
    "brokers": (),
    "bench": ("--rounds", "1"),
    "contract": (),
    "delete-records": ("t", "--all", "--yes"),
    "elect-leaders": ("--all",),
    "groups delete": ("g", "--yes"),
    "groups describe": ("g",),
    "groups list": (),
    "groups reset": ("g", "--to-latest"),
    "log-dirs": (),
    "pipeline decode": (
        *("t", "--checkpoint", "c", "--schema", __file__),
        *("--table", "x", "--dead-letter-table", "y"),
    ),
    "pipeline ingest": ("t", "table", "--checkpoint", "c"),
    "pipeline latest": ("t", "table", "--checkpoint", "c"),
    "pipeline replay": ("table", "--checkpoint", "c"),
    "pipeline window": ("t", "--checkpoint", "c", "--size", "1h", "--table", "x", "--late-table", "y"),
    "produce": ("t",),
    "producers": ("t",),
    "quotas list": (),
    "quotas remove": ("producer_byte_rate", "--user", "a"),
    "quotas set": ("producer_byte_rate=1", "--user", "a"),
    "tail": ("t",),
    "top": (),
    "topics alter": ("t", "--partitions", "2"),
    "topics create": ("t",),
    "topics delete": ("t", "--yes"),
    "topics describe": ("t",),
    "topics list": (),
    "transactions abort": ("t", "--partition", "0", "--start-offset", "0", "--yes"),
    "transactions describe": ("x",),
    "transactions fence": ("x", "--yes"),
    "transactions list": (),
}
"""What each command needs beside the address."""

STAYS = {"console"}
"""It serves its page all the same, which says that the cluster does not answer."""


def leaves(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """All commands with their names."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from leaves(command, (*path, name))
        elif command is not None:
            yield " ".join((*path, name)), command


def test_every_command_with_an_address_has_a_timeout() -> None:
    """Every one of them is in the table above."""
    found = {
        name
        for name, command in leaves(splashdam)
        if {"--bootstrap-servers", "--bootstrap"} & {flag for each in command.params for flag in each.opts}
    }
    assert found - STAYS == ARGUMENTS.keys()
    for name, command in leaves(splashdam):
        assert (name in found) == any("--timeout" in each.opts for each in command.params)


def silent(connection: socket.socket) -> None:
    """Reads, and says nothing."""
    while connection.recv(4096):
        pass


def http(connection: socket.socket) -> None:
    """An answer as nginx sends it to bytes that are no request."""
    connection.recv(4096)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")


def tls(connection: socket.socket) -> None:
    """Hangs up, as a JVM does on what is no TLS; answers what is."""
    if connection.recv(4096).startswith(b"\x16\x03"):
        connection.sendall(b"\x15\x03\x03\x00\x02\x02\x28")


KINDS = {
    "closed": (None, "Connection refused"),
    "silent": (silent, " ms|within |no success"),
    "http": (http, "does not speak Kafka's protocol: it sent 'HTTP'"),
    "tls": (tls, "speaks TLS; set -X security.protocol to SSL or SASL_SSL"),
}


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of one of ``KINDS``."""
    serve = KINDS[request.param][0]
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        if serve is None:
            listening.close()
            yield address
            return

        def serve_one(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                serve(connection)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=serve_one, args=(listening.accept()[0],), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield address
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("server", ["closed"], indirect=True)
def test_produce_was_told_of_an_option_of_python(server: str) -> None:
    """The sender put an error into a text, in which the command could not name its flag."""
    done = CliRunner().invoke(splashdam, ["produce", "t", "-b", server, "--timeout", "0.5"], input="line\n")
    assert "What to do: check --bootstrap-servers and the brokers' advertised.listeners" in done.output
    assert "bootstrap_servers" not in done.output


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize(
    ("server", "words"), [(kind, words) for kind, (_, words) in KINDS.items()], indirect=["server"], ids=KINDS
)
@pytest.mark.timeout(300)
def test_a_cluster_that_does_not_answer(server: str, words: str, name: str) -> None:
    """Status 1 and a message that names the address; of these commands, none would end by itself."""
    # A silent server takes all of it, and records wait for a broker to come back; the rest is told at once.
    timeout_s = (
        "0.3" if "ms" in words else "1" if (name, words) == ("produce", "Connection refused") else "60"
    )
    arguments = [*name.split(), *ARGUMENTS[name], "-b", server, "--timeout", timeout_s]
    done = CliRunner().invoke(splashdam, arguments, input="line\n")
    assert done.exit_code == 1, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    errors = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    message = errors[0] if errors else done.stderr
    assert len(errors) <= 1
    assert server in message
    assert any(word in message for word in words.split("|")), message
