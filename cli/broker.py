"""``splashdam broker``: the embedded broker as a server of its own, for every Kafka client."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import click
import trio

from splashdam.cli.failures import file_failures_reported
from splashdam.cli.parameters import property_option, read_properties
from splashdam.cli.streams import is_terminal, standard_output
from splashdam.embedded_broker.broker import open_broker
from splashdam.embedded_broker.settings import BrokerSettings


@click.command(short_help="Serve Kafka clients from a directory.")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default="./data",
    show_default=True,
    help="Directory of the log, in Kafka's own format; made if missing.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; by default this machine alone.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=9092,
    show_default=True,
    help="Port to listen on; 0 takes a free one.",
)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file with settings, as Kafka's server.properties; -X and --set win over it.",
)
@property_option("broker")
def broker(data: Path, host: str, port: int, config: Path | None, properties: dict[str, str]) -> None:
    """Serve Kafka clients from the directory DATA until SIGTERM or Ctrl-C.

    The first line on standard output is "listening on HOST:PORT". One process at a time can serve a
    directory.
    """
    standard_output()  # closed, it would leave its descriptor to a file of the log
    with file_failures_reported():
        given = read_properties(config) if config is not None else {}
        trio.run(_serve, data, host, port, {**given, **properties})


async def _serve(data: Path, host: str, port: int, properties: dict[str, str]) -> None:
    settings = BrokerSettings.from_properties(properties)
    async with open_broker(data, host=host, port=port, settings=settings, own_loop=True) as running:
        # Signals before this line end the process at once, which a log on disk has to survive anyway; a
        # second one during the shutdown does the same.
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            click.echo(f"listening on {running.bootstrap_servers}")
            sys.stdout.flush()
            if is_terminal(sys.stderr):
                click.echo(f"serving {data}; Ctrl-C stops", err=True)
            async for _ in signals:
                break
