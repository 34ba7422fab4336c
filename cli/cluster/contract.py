"""``splashdam contract``: check a cluster for the behaviour that Kafka promises, through several clients."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from splashdam.cli.commands import OnceCommand
from splashdam.cli.connecting import CONNECTION, named_cluster
from splashdam.cli.exiting import failures_reported, signals_interrupt_trio
from splashdam.cli.output import is_terminal, output_failures, print_line, standard_output, write_file
from splashdam.cli.parameters import (
    OutputPath,
    config_option,
    exclusive,
    property_option,
    settled_cluster,
    timeout_option,
)
from splashdam.client.settings.rules import options_from_properties

if TYPE_CHECKING:
    from splashdam.testing.contract.behaviour import Behaviour
    from splashdam.testing.contract.running import Result
    from splashdam.testing.contract.vocabulary import Listener

_IN_A_CHECKOUT = ("franz-go", "java", "kafkajs")
_WIDTH = 240
"""Columns of output into a file or a pipe: enough for every client."""


@click.command(
    cls=OnceCommand, example="splashdam contract --bootstrap kafka.example.com:9092 --area produce"
)
@click.option(
    "-b",
    "--bootstrap",
    "--bootstrap-servers",
    "bootstrap_servers",
    metavar="HOST:PORT[,…]",
    help="The cluster. Default: an embedded broker in a temporary directory.",
)
@config_option("client")
@property_option("client")
@click.option(
    "--client",
    "wanted",
    metavar="NAME",
    multiple=True,
    help="Use this client; repeatable. Default: the Python clients that are installed.",
)
@click.option(
    "--all-clients",
    is_flag=True,
    help="Also those in Go, Java and JavaScript, which are fetched and built once; needs a checkout.",
)
@click.option("--area", "areas", metavar="NAME", multiple=True, help="Check only this area; repeatable.")
@click.option(
    "--jars",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    multiple=True,
    help="A folder with Kafka's jars, for the client `java FOLDER`; repeatable.",
)
@click.option("--markdown", type=OutputPath(), help="Also write the table to this file.")
@click.option("--list", "is_list", is_flag=True, help="List the behaviours; no cluster is contacted.")
@timeout_option
@exclusive("wanted", "all_clients")
@exclusive("is_list", "bootstrap_servers")
@exclusive("is_list", "markdown")
def contract(
    *,
    bootstrap_servers: str | None,
    config: Path | None,
    properties: dict[str, str],
    wanted: tuple[str, ...],
    all_clients: bool,
    areas: tuple[str, ...],
    jars: tuple[Path, ...],
    markdown: Path | None,
    is_list: bool,
    timeout_seconds: float,
) -> None:
    """Check a cluster, behaviour by behaviour and through several clients, for what clients may rely on.

    Everything happens in topics and groups whose names begin with "splashdam-contract-", and they are deleted
    afterwards. The cluster must not create topics by itself.

    Settings for TLS and SASL are passed to every client, by the client's own names. The area "security"
    connects with a wrong password and with another CA as well, and expects to be refused.

    The status is 0 if every behaviour holds, or differs for a known reason of the client; 1 if one does not.
    """
    from splashdam.testing.contract.available_clients import available, checkout_drivers, opened, why_not
    from splashdam.testing.contract.clients.splashdam_client import SplashdamClient
    from splashdam.testing.contract.report import markdown as markdown_of
    from splashdam.testing.contract.running import Verdict, hold_all

    behaviours = _chosen(areas)
    if is_list:
        _list(behaviours)
        return
    drivers = checkout_drivers(jars)
    names = _names(wanted, all_clients, drivers)

    def missing(name: str, why: str) -> None:
        click.echo(f"without {name}: {why}", err=True)

    with signals_interrupt_trio(), failures_reported():
        address: str | None  # without --bootstrap there is none
        address, settings = settled_cluster(config, properties)
        security = _security(settings)
        for name in names:
            if why := why_not(name, security):
                missing(name, why)
        makers = available([name for name in names if not why_not(name, security)], drivers, missing)
        if not makers:
            raise click.ClickException("none of these clients is available here")
        with _listeners(address, settings, security, timeout_seconds) as listeners:
            main = listeners[0]
            helper = SplashdamClient(*main)
            with opened(makers, *main) as clients, _progress(len(behaviours) * len(clients)) as tell:
                results = hold_all(
                    behaviours, clients, helper, main.bootstrap_servers, tell, listeners=listeners
                )
    with output_failures():
        _show(results)
    if markdown is not None:
        text = markdown_of(address or "The embedded broker", results)
        write_file(markdown, text)
    if any(each.verdict is Verdict.BROKEN for each in results):
        raise click.exceptions.Exit(1)


def _chosen(areas: Sequence[str]) -> list[Behaviour]:
    from splashdam.testing.contract.behaviours import AREAS, all_behaviours

    for area in areas:
        if area not in AREAS:
            raise click.UsageError(f"no area {area!r}; there are {', '.join(AREAS)}")
    return [each for each in all_behaviours() if not areas or each.area in areas]


def _names(wanted: Sequence[str], all_clients: bool, drivers: Mapping[str, object]) -> Sequence[str]:
    from splashdam.testing.contract.available_clients import PYTHON_CLIENTS

    known = (*PYTHON_CLIENTS, *drivers)
    foreign = [name for name in wanted if name not in PYTHON_CLIENTS]
    if not drivers and (all_clients or any(name.split(" ")[0] in _IN_A_CHECKOUT for name in foreign)):
        raise click.ClickException(
            "the clients in Go, Java and JavaScript are not installed: run this from a checkout of splashdam,"
            " which builds them from its folder lab/drivers"
        )
    for name in foreign:
        if name not in known:
            raise click.UsageError(f"no client {name!r}; there are {', '.join(known)}")
    return wanted or (known if all_clients else tuple(PYTHON_CLIENTS))


def _list(behaviours: Sequence[Behaviour]) -> None:
    for each in behaviours:
        print_line(f"{each.area}: {each.title}\n    {' '.join(each.text.split())}")


def _security(settings: Mapping[str, str]) -> dict[str, Any]:
    """Return the options for TLS and SASL; the other settings are part of what the behaviours are about."""
    connection = {name: value for name, value in settings.items() if name.startswith(CONNECTION)}
    return options_from_properties(connection, what="client")


@contextmanager
def _listeners(
    address: str | None, settings: Mapping[str, str], security: Mapping[str, Any], timeout_seconds: float
) -> Iterator[list[Listener]]:
    """Yield the listener at the given address, or those of a temporary embedded broker."""
    from splashdam.testing.contract.vocabulary import Listener

    if address is not None:
        with named_cluster(address, settings, timeout_seconds) as cluster:
            cluster.check()  # a cluster that does not answer gives one message here, not one per behaviour
        yield [Listener(address, security)]
        return
    if settings:
        raise click.UsageError(
            "--config and -X are for a cluster, and none is named: give --bootstrap, too",
            click.get_current_context(),
        )
    with _embedded() as listeners:
        yield listeners


@contextmanager
def _embedded() -> Iterator[list[Listener]]:
    """Yield the listeners of a temporary broker: without SASL, and with each mechanism for passwords.

    There is none with TLS: nothing here makes certificates.
    """
    from splashdam.embedded_broker.embedded import EmbeddedBroker
    from splashdam.testing.contract.available_clients import EMBEDDED_CONFIG
    from splashdam.testing.contract.behaviours.security import MECHANISMS
    from splashdam.testing.contract.vocabulary import Listener

    user, password = "contract", secrets.token_hex()
    with TemporaryDirectory(prefix="splashdam-contract-") as directory:
        broker = EmbeddedBroker(
            directory,
            config=EMBEDDED_CONFIG,
            fsync=False,
            listeners="PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
            sasl_enabled_mechanisms=",".join(MECHANISMS),
        )
        broker.users.add(user, password)
        with broker:
            login = {
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_plain_username": user,
                "sasl_plain_password": password,
            }
            with_sasl = Listener(broker.bootstrap_servers_of("SASL_PLAINTEXT"), login)
            yield [
                Listener(broker.bootstrap_servers_of("PLAINTEXT")),
                *(with_sasl.but(sasl_mechanism=mechanism) for mechanism in MECHANISMS),
            ]


@contextmanager
def _progress(total: int) -> Iterator[Callable[[Result], None]]:
    """Show a progress bar with the current behaviour if standard error is a terminal."""
    if not is_terminal(sys.stderr):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total)

        def tell(result: Result) -> None:
            progress.update(task, advance=1, description=f"{result.client}: {result.behaviour.title}")

        yield tell


def _show(results: Sequence[Result]) -> None:
    from rich.console import Console
    from rich.table import Table

    from splashdam.testing.contract.report import LEGEND, SIGNS, by_area, counts, grid, remarks

    standard_output()
    console = Console(width=None if is_terminal(sys.stdout) else _WIDTH, highlight=False)
    for area, of_area in by_area(results):
        clients, rows = grid(of_area)
        table = Table(area, *clients, box=None)
        for behaviour, row in rows:
            table.add_row(behaviour.title, *(SIGNS[each.verdict] for each in row))
        console.print(table)
    for each in remarks(results):
        console.print(
            f"{SIGNS[each.verdict]} {each.behaviour.title}, {each.client}: {each.why}", markup=False
        )
    console.print(f"{counts(results)}\n{LEGEND}", markup=False)
