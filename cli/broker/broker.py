"""``splashdam broker``: the embedded broker as a server process for every Kafka client."""

from __future__ import annotations

import gc
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import trio

from splashdam.cli.commands import OnceCommand
from splashdam.cli.exiting import file_failures_reported
from splashdam.cli.output import is_terminal, standard_output
from splashdam.cli.parameters import DirectoryPath, config_option, is_given, property_option, read_properties
from splashdam.embedded_broker.broker import open_broker
from splashdam.embedded_broker.configs.broker_settings import BrokerSettings

_LONG_COLLECTION_S = 0.005
"""After a garbage collection this long, the objects that survived it are frozen."""

_WHOLE_COLLECTION_S = 600.0
"""How often frozen objects are unfrozen and collected; each time the loop stops for a moment."""


@click.command(cls=OnceCommand, short_help="Serve Kafka clients from a directory.")
@click.option(
    "--data",
    type=DirectoryPath(),
    default="./data",
    show_default=True,
    help="Directory of the logs, in Kafka's own format; created if missing.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; by default only this machine can connect.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=9092,
    show_default=True,
    help="Port to listen on; 0 takes a free one.",
)
@click.option(
    "--listener",
    "listeners",
    metavar="NAME://HOST:PORT",
    multiple=True,
    help="A listener instead of --host and --port, for example SASL_SSL://kafka.example.com:9093."
    " The name is PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL. Repeatable.",
)
@config_option("server")
@property_option("broker")
@click.pass_context
def broker(
    context: click.Context,
    /,
    *,
    data: Path,
    host: str,
    port: int,
    listeners: tuple[str, ...],
    config: Path | None,
    properties: dict[str, str],
) -> None:
    """Serve Kafka clients from the directory DATA until SIGTERM or Ctrl-C.

    The first line on standard output is "listening on HOST:PORT"; further listeners follow with their names.
    One process at a time can serve a directory. `splashdam users` manages the users of SASL listeners.
    """
    standard_output()  # fails if it is closed: else a log file would get descriptor 1, and our output
    with file_failures_reported():
        in_file = read_properties(config)
        if is_given(context, "data"):
            in_file = _without_directories(in_file)
        given = {**in_file, **properties}
        for name in ("log.dirs", "log.dir"):
            if is_given(context, "data") and name in properties:
                raise click.UsageError(f"--data {data} contradicts -X {name}={properties[name]}", context)
        if listeners and "listeners" in properties:
            raise click.UsageError(
                f"--listener {listeners[0]} contradicts -X listeners={properties['listeners']}", context
            )
        if listeners:
            given["listeners"] = ",".join(listeners)
        for name in ("host", "port"):
            if is_given(context, name) and "listeners" in given:
                raise click.UsageError(f"--{name} contradicts listeners={given['listeners']}", context)
        trio.run(_serve, data, host, port, given)


def _without_directories(properties: dict[str, str]) -> dict[str, str]:
    """Return the settings of a file without its directories, which ``--data`` overrides."""
    for name in ("log.dirs", "log.dir"):
        if name in properties:
            click.echo(
                f"{name}={properties[name]} in the file has no effect: --data names the directory", err=True
            )
    return {name: value for name, value in properties.items() if name not in ("log.dirs", "log.dir")}


async def _serve(data: Path, host: str, port: int, properties: dict[str, str]) -> None:
    settings = BrokerSettings.from_properties(properties)
    async with open_broker(data, host=host, port=port, settings=settings, own_loop=True) as running:
        # A signal before this line, or a second one during the shutdown, ends the process at once: logs have
        # to survive a kill anyway.
        with short_collections(), trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            click.echo(f"listening on {running.bootstrap_servers}")
            for name in list(running.listeners)[1:]:
                click.echo(f"listening on {running.bootstrap_servers_of(name)} ({name})")
            sys.stdout.flush()
            if is_terminal(sys.stderr):
                click.echo(f"serving {data}; Ctrl-C stops", err=True)
            async for _ in signals:
                break


@contextmanager
def short_collections() -> Iterator[None]:
    """Freeze the objects that survive a long garbage collection; every ten minutes unfreeze them.

    A full collection stops the loop while it visits all objects: 10 ms for the imported modules alone, 40 ms
    with 5,000 partitions.
    """
    began_s = last_whole_s = time.monotonic()

    def on_collection(phase: str, _info: dict[str, int]) -> None:
        nonlocal began_s, last_whole_s
        now_s = time.monotonic()
        if phase == "start":
            began_s = now_s
            if now_s - last_whole_s >= _WHOLE_COLLECTION_S:
                last_whole_s = now_s
                gc.unfreeze()
        elif now_s - began_s >= _LONG_COLLECTION_S:
            gc.freeze()

    gc.callbacks.append(on_collection)
    try:
        yield
    finally:
        gc.callbacks.remove(on_collection)
        gc.unfreeze()
