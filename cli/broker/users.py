"""``splashdam users``: the SCRAM and PLAIN users of a broker, in its data directory."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from splashdam.cli.commands import OnceGroup
from splashdam.cli.exiting import file_failures_reported
from splashdam.cli.output import is_terminal, print_json, print_line, standard_input
from splashdam.cli.parameters import DirectoryPath, json_option
from splashdam.embedded_broker.security.users import UserStore
from splashdam.net.sasl.scram import HASHES, MAX_ITERATIONS, MIN_ITERATIONS
from splashdam.storage.files.disk import DiskFiles

data_option = click.option(
    "--data",
    type=DirectoryPath(),
    default="./data",
    show_default=True,
    help="The broker's directory; it may be running.",
)


@click.group(cls=OnceGroup)
def users() -> None:
    """Manage the users of a broker, which are stored in its data directory.

    A change takes effect at once, whether the broker runs or not: for new connections, and for existing ones
    when they re-authenticate (connections.max.reauth.ms). Passwords are not stored, only their SCRAM hashes.
    """


@users.command(example="splashdam users add anna --data ./data")
@click.argument("name")
@data_option
@click.option(
    "--mechanism",
    "mechanisms",
    type=click.Choice(tuple(HASHES)),
    multiple=True,
    help="Store the password for this mechanism only; repeatable. PLAIN works with either. Default: both.",
)
@click.option(
    "--iterations",
    type=click.IntRange(MIN_ITERATIONS, MAX_ITERATIONS),
    default=MIN_ITERATIONS,
    show_default=True,
    help="Rounds of the SCRAM hash; more make guessing a password slower.",
)
def add(name: str, data: Path, mechanisms: tuple[str, ...], iterations: int) -> None:
    """Add the user NAME, or give one that exists a new password.

    The password is asked for on a terminal; otherwise it is the first line of standard input. There is no
    option for it, because other users of the machine can see command lines.
    """
    password = _password()
    with file_failures_reported():
        store = _store(data)
        is_new = name not in store.names()
        store.add(name, password, mechanisms=mechanisms or tuple(HASHES), iterations=iterations)
    print_line(f"{'added' if is_new else 'changed'} {name}")


@users.command(example="splashdam users delete anna --data ./data")
@click.argument("name")
@data_option
def delete(name: str, data: Path) -> None:
    """Delete the user NAME."""
    with file_failures_reported():
        if not _store(data).delete(name):
            raise click.ClickException(f"there is no user {name!r} in {data}")
    print_line(f"deleted {name}")


@users.command(name="list", example="splashdam users list --data ./data --json")
@data_option
@json_option
def list_users(data: Path, as_json: bool) -> None:
    """List the users, a line for each: name, a tab, mechanisms."""
    with file_failures_reported():
        store = _store(data)
        for name in store.names():
            mechanisms = store.mechanisms_of(name)
            if as_json:
                print_json({"user": name, "mechanisms": list(mechanisms)})
            else:
                print_line(f"{name}\t{','.join(mechanisms)}")


def _password() -> str:
    lines = standard_input()
    if is_terminal(sys.stdin):
        found: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        return found
    try:
        return lines.readline().rstrip(b"\r\n").decode()
    except UnicodeDecodeError:
        raise click.ClickException("the password is not UTF-8") from None


def _store(data: Path) -> UserStore:
    return UserStore(DiskFiles(), str(data.absolute()))
