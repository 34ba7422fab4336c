"""``splashdam contract``: check a cluster for the behaviour that Kafka promises, through several clients."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from splashdam.cli.commands import OnceCommand
from splashdam.cli.connecting import named_cluster
from splashdam.cli.exiting import failures_reported, signals_interrupt_trio
from splashdam.cli.output import is_terminal, output_failures, print_line, standard_output, write_file
from splashdam.cli.parameters import OutputPath, exclusive, timeout_option

if TYPE_CHECKING:
    from splashdam.testing.contract.behaviour import Behaviour
    from splashdam.testing.contract.running import Result

_IN_A_CHECKOUT = ("franz-go", "java", "kafkajs")
_WIDTH = 240
"""Columns of output into a file or a pipe: enough for every client."""


@click.command(
    cls=OnceCommand, example="splashdam contract --bootstrap kafka.example.com:9092 --area produce"
)
@click.option(
    "-b",
    "--bootstrap",
    metavar="HOST:PORT[,…]",
    help="The cluster. Default: an embedded broker in a temporary directory.",
)
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
@exclusive("is_list", "bootstrap")
@exclusive("is_list", "markdown")
def contract(
    *,
    bootstrap: str | None,
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
    afterwards. The cluster has to answer without TLS and SASL, and without creating topics by itself.

    The status is 0 if every behaviour holds, or differs for a known reason of the client; 1 if one does not.
    """
    from splashdam.testing.contract.available_clients import available, checkout_drivers, opened
    from splashdam.testing.contract.clients.splashdam_client import SplashdamClient
    from splashdam.testing.contract.report import markdown as markdown_of
    from splashdam.testing.contract.running import Verdict, hold_all

    behaviours = _chosen(areas)
    if is_list:
        _list(behaviours)
        return
    drivers = checkout_drivers(jars)
    makers = available(
        _names(wanted, all_clients, drivers),
        drivers,
        lambda name, why: click.echo(f"without {name}: {why}", err=True),
    )
    if not makers:
        raise click.ClickException("none of these clients is available here")
    with signals_interrupt_trio(), failures_reported(), _cluster(bootstrap) as address:
        with named_cluster(address, {}, timeout_seconds) as cluster:
            cluster.check()  # a cluster that does not answer gives one message here, not one per behaviour
        helper = SplashdamClient(address)
        with opened(makers, address) as clients, _progress(len(behaviours) * len(clients)) as tell:
            results = hold_all(behaviours, clients, helper, address, tell)
    with output_failures():
        _show(results)
    if markdown is not None:
        text = markdown_of(bootstrap or "The embedded broker", results)
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


@contextmanager
def _cluster(bootstrap: str | None) -> Iterator[str]:
    """Yield the given address, or that of a temporary embedded broker."""
    if bootstrap is not None:
        from splashdam.net.addresses import parse_bootstrap_servers

        parse_bootstrap_servers(bootstrap)
        yield bootstrap
        return
    from splashdam.embedded_broker.embedded import EmbeddedBroker
    from splashdam.testing.contract.available_clients import EMBEDDED_CONFIG

    with (
        TemporaryDirectory(prefix="splashdam-contract-") as directory,
        EmbeddedBroker(directory, config=EMBEDDED_CONFIG, fsync=False) as broker,
    ):
        yield broker.bootstrap_servers


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
