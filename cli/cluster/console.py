"""``splashdam console``: a page that looks into any cluster."""

from __future__ import annotations

import signal

import click
import trio

from splashdam.cli.commands import OnceCommand
from splashdam.cli.connecting import Cluster, on_cluster
from splashdam.console.console import ConsoleSettings, check_installed, open_console
from splashdam.console.source import Source
from splashdam.embedded_broker.inside import decode_internal
from splashdam.net.clock import SystemClock
from splashdam.net.connect import address_text
from splashdam.net.run import run_in_trio
from splashdam.storage.files.disk import DiskFiles


@click.command(
    cls=OnceCommand,
    example="""\
splashdam console -b localhost:9092
splashdam console --config client.properties --read-only""",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; on another one than this machine's own, seeing needs the link, too.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    help="Port to listen on; 0 takes a free one.",
)
@click.option("--read-only", is_flag=True, help="The page cannot change anything.")
@on_cluster
def console(cluster: Cluster, *, host: str, port: int, read_only: bool) -> None:
    """Serve a page with a cluster's topics, records and groups until SIGTERM or Ctrl-C.

    Its link is a line on standard error. Whoever opens the link may also change things, unless --read-only is
    given. With SASL it needs the link for seeing, too, since it sees with the permissions of this command.
    """
    check_installed()
    settings = ConsoleSettings(
        host=host, port=port, is_read_only=read_only, reads_need_token=cluster.authenticator is not None
    )
    source = Source(
        title=",".join(address_text(*each) for each in cluster.addresses),
        bootstrap=cluster.addresses,
        connect=cluster.connect,
        run=DiskFiles().run,
        decode=decode_internal,
        authenticator=cluster.authenticator,
    )
    run_in_trio(_serve, source, settings)


async def _serve(source: Source, settings: ConsoleSettings) -> None:
    """Serve until a signal comes."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with open_console(source, settings, clock=SystemClock()) as opened:
            click.echo(f"console: {opened.link}", err=True)
            async for _ in signals:
                break
