"""``splashdam broker``: the embedded broker as a server process for every Kafka client."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
import trio

from splashdam.cli.broker.events import ErrorLines, events_told
from splashdam.cli.commands import OnceCommand
from splashdam.cli.exiting import file_failures_reported, interrupts_end_the_process
from splashdam.cli.output import is_terminal, print_line, standard_output
from splashdam.cli.parameters import (
    DirectoryPath,
    OutputPath,
    config_option,
    exclusive,
    is_given,
    legal_topic,
    property_option,
    read_properties,
)
from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.embedded_broker.configs.broker_settings import BrokerSettings
from splashdam.embedded_broker.configs.developer import developer_settings
from splashdam.embedded_broker.embedded import IN_MEMORY
from splashdam.embedded_broker.handlers.create_topics import MAX_PARTITIONS
from splashdam.storage.files.memory import MemoryFiles

if TYPE_CHECKING:
    from splashdam.console.console import ConsoleSettings

_LONG_COLLECTION_S = 0.005
"""After a garbage collection this long, the objects that survived it are frozen."""

_WHOLE_COLLECTION_S = 600.0
"""How often frozen objects are unfrozen and collected; each time the loop stops for a moment."""


def _topic(text: str) -> tuple[str, int | None]:
    """Parse ``NAME`` or ``NAME:PARTITIONS``."""
    name, colon, count = text.partition(":")
    if colon and not (count.isascii() and count.isdigit() and int(count) > 0):
        raise click.BadParameter(f"{text!r} is not NAME:PARTITIONS")
    if colon and int(count) > MAX_PARTITIONS:
        raise click.BadParameter(f"{text!r}: a topic begins with at most {MAX_PARTITIONS} partitions")
    return legal_topic(name), int(count) if colon else None


@click.command(
    cls=OnceCommand,
    example="""\
splashdam broker
splashdam broker --memory --port 0 --topic orders:6 -v
splashdam broker --data ./data --ready-file ready -X log.retention.hours=1""",
)
@click.option(
    "--data",
    type=DirectoryPath(),
    default="./data",
    show_default=True,
    help="Directory of the logs, in Kafka's own format; created if missing.",
)
@click.option("--memory", is_flag=True, help="Keep all files in memory, gone at the end, instead of --data.")
@click.option(
    "--topic",
    "topics",
    type=_topic,
    metavar="NAME[:PARTITIONS]",
    multiple=True,
    help="Create this topic at the start, unless it exists; repeatable.",
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
@click.option(
    "--ready-file",
    type=OutputPath(may_be_in_data=True),
    help="Write HOST:PORT to this file once clients can connect; it is removed at the end.",
)
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="A line on standard error for each event: a client connected, a topic was created, an error was"
    " answered.",
)
@click.option(
    "--console",
    "console_port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Also serve a page that looks into the broker, on 127.0.0.1; its link is a line on standard error."
    " 0 takes a free port.",
)
@click.option("--console-read-only", is_flag=True, help="The page cannot change anything.")
@click.option(
    "--console-principal",
    metavar="User:NAME",
    help="With whose permissions the page asks; needed beside an authorizer.",
)
@config_option("server")
@property_option("broker")
@exclusive("memory", "data")
@click.pass_context
def broker(
    context: click.Context,
    /,
    *,
    data: Path,
    memory: bool,
    topics: Sequence[tuple[str, int | None]],
    host: str,
    port: int,
    ready_file: Path | None,
    verbose: bool,
    console_port: int | None,
    console_read_only: bool,
    console_principal: str | None,
    listeners: tuple[str, ...],
    config: Path | None,
    properties: dict[str, str],
) -> None:
    """Serve Kafka clients from the directory DATA until SIGTERM or Ctrl-C.

    The first line on standard output is "listening on HOST:PORT"; further listeners follow with their names.
    One process at a time can serve a directory. `splashdam users` manages the users of SASL listeners. The
    exit status is 0 after SIGTERM and Ctrl-C, 1 if the broker cannot go on, 2 for wrong usage.

    Settings have Kafka's defaults, but for those that suit a developer:
    group.initial.rebalance.delay.ms=0, offsets.topic.num.partitions=4,
    transaction.state.log.num.partitions=4. -X sets others. Internal topics that exist keep their partitions.
    """
    standard_output()  # fails if it is closed: else a log file would get descriptor 1, and our output
    with file_failures_reported():
        settings = developer_settings({}, _settings(context, listeners, config, properties))
        console = None
        if console_port is not None:
            from splashdam.console.console import ConsoleSettings, check_installed

            check_installed()
            console = (ConsoleSettings(port=console_port, is_read_only=console_read_only), console_principal)
        serving = Serving(
            data=None if memory else data,
            host=host,
            port=port,
            settings=settings,
            topics=dict(topics),
            ready_file=ready_file,
            tells_errors=verbose,
            console=console,
        )
        with events_told() if verbose else nullcontext(), interrupts_end_the_process():
            trio.run(serving.run)


def _settings(
    context: click.Context, listeners: Sequence[str], config: Path | None, properties: Mapping[str, str]
) -> dict[str, str]:
    """Combine the file, ``-X`` and ``--listener``.

    Raises:
        click.UsageError: an option and a property contradict each other.
    """
    for option in ("data", "memory"):
        for name in ("log.dirs", "log.dir"):
            if is_given(context, option) and name in properties:
                given_as = f"--data {context.params['data']}" if option == "data" else "--memory"
                raise click.UsageError(f"{given_as} contradicts -X {name}={properties[name]}", context)
    if listeners and "listeners" in properties:
        raise click.UsageError(
            f"--listener {listeners[0]} contradicts -X listeners={properties['listeners']}", context
        )
    in_file = read_properties(config)
    if is_given(context, "data"):
        in_file = _without_directories(in_file)
    settings = {**in_file, **properties}
    if listeners:
        settings["listeners"] = ",".join(listeners)
    for name in ("host", "port"):
        if is_given(context, name) and "listeners" in settings:
            raise click.UsageError(f"--{name} contradicts listeners={settings['listeners']}", context)
    return settings


def _without_directories(properties: dict[str, str]) -> dict[str, str]:
    """Return the settings of a file without its directories, which ``--data`` overrides."""
    for name in ("log.dirs", "log.dir"):
        if name in properties:
            click.echo(
                f"{name}={properties[name]} in the file has no effect: --data names the directory", err=True
            )
    return {name: value for name, value in properties.items() if name not in ("log.dirs", "log.dir")}


class Serving(NamedTuple):
    """One run of the command.

    Attributes:
        data: the directory; None: the files are in memory.
        host: address to listen on, where the settings do not name listeners.
        port: likewise.
        settings: of the broker.
        topics: created if they are missing.
        ready_file: exists while clients can connect.
        tells_errors: errors in answers are lines on standard error.
        console: settings of the console and the principal that it acts as; None: no console is served.
    """

    data: Path | None
    host: str
    port: int
    settings: BrokerSettings
    topics: Mapping[str, int | None]
    ready_file: Path | None
    tells_errors: bool
    console: tuple[ConsoleSettings, str | None] | None = None

    async def run(self) -> None:
        """Serve until a signal comes."""
        files = None if self.data is not None else MemoryFiles()
        async with (
            open_broker(
                self.data or IN_MEMORY,
                host=self.host,
                port=self.port,
                settings=self.settings,
                files=files,
                own_loop=True,
            ) as running,
            self._console_of(running) as console_link,
        ):
            # Before the address is told: who reads it finds the topics.
            running.topics.create_missing(self.topics)
            if self.tells_errors:
                running.interception.interceptor = ErrorLines()
            # A signal before this line, or a second one during the shutdown, ends the process at once: logs
            # have to survive a kill anyway.
            with (
                short_collections(),
                trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals,
                _announced(self.ready_file, running.bootstrap_servers),
            ):
                print_line(f"listening on {running.bootstrap_servers}")
                for name in list(running.listeners)[1:]:
                    print_line(f"listening on {running.bootstrap_servers_of(name)} ({name})")
                # A pipe is buffered, and a program waits for these lines.
                sys.stdout.flush()
                if console_link is not None:
                    click.echo(f"console: {console_link}", err=True)
                if is_terminal(sys.stderr):
                    click.echo(f"serving {self.data or 'from memory'}; Ctrl-C stops", err=True)
                async for _ in signals:
                    break

    @asynccontextmanager
    async def _console_of(self, running: Broker) -> AsyncIterator[str | None]:
        """Serve the page that looks into the broker, if it is wanted; yields its link."""
        if self.console is None:
            yield None
            return
        from splashdam.embedded_broker.console import open_broker_console

        settings, principal = self.console
        async with open_broker_console(running, settings, principal=principal) as opened:
            yield opened.link


@contextmanager
def _announced(ready_file: Path | None, bootstrap_servers: str) -> Iterator[None]:
    """Let the file exist during the block, with the address in it as soon as it exists."""
    if ready_file is None:
        yield
        return
    unfinished = ready_file.with_name(f".{ready_file.name}.{os.getpid()}")
    unfinished.write_text(f"{bootstrap_servers}\n")
    unfinished.replace(ready_file)
    try:
        yield
    finally:
        ready_file.unlink(missing_ok=True)


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
