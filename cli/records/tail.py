"""``splashdam tail``: write every record of a topic as a line of output."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import attrs
import click
import trio

from splashdam.cli.commands import OnceCommand
from splashdam.cli.connecting import Cluster, named_cluster
from splashdam.cli.exiting import INTERRUPTED, failures_reported
from splashdam.cli.output import standard_output
from splashdam.cli.parameters import (
    cluster_options,
    settled_cluster,
    topic_argument,
)
from splashdam.cli.records.rendering import FORMATS, Render
from splashdam.model.errors import IllegalArgumentError
from splashdam.model.values import IsolationLevel
from splashdam.net.clock import SystemClock
from splashdam.net.cluster.fetch_client import (
    EARLIEST,
    LATEST,
    FetchClient,
    FetchedPartition,
    FetchSettings,
    open_fetch_client,
)


@click.command(cls=OnceCommand, short_help="Write the records of a topic to standard output.")
@topic_argument
@click.option("--from-beginning", is_flag=True, help="Begin with the oldest record. Default: only new ones.")
@click.option(
    "--partition",
    "partitions",
    type=click.IntRange(0),
    multiple=True,
    help="Read only this partition; repeatable. Default: all, in no order between them.",
)
@click.option("--max-messages", type=click.IntRange(1), help="Stop after this many records.")
@click.option(
    "--exit-at-end", is_flag=True, help="Stop at the offsets that were the end of the topic at the start."
)
@click.option(
    "--isolation",
    type=click.Choice([level.name.lower() for level in IsolationLevel]),
    default=IsolationLevel.READ_UNCOMMITTED.name.lower(),
    show_default=True,
    help="read_committed skips records of transactions that are not committed.",
)
@click.option(
    "--format",
    "format_name",
    type=click.Choice(list(FORMATS)),
    default="value",
    show_default=True,
    help="value: the value alone; full: with partition, offset, time and key; json: everything as an object.",
)
@cluster_options()
def tail(
    *,
    topic: str,
    from_beginning: bool,
    partitions: Sequence[int],
    max_messages: int | None,
    exit_at_end: bool,
    isolation: str,
    format_name: str,
    config: Path | None,
    properties: dict[str, str],
    timeout_seconds: float,
    **_options: str,
) -> None:
    """Write the records of TOPIC to standard output, one a line, and wait for more until Ctrl-C.

    Only the settings for TLS and SASL are used: security.protocol, ssl.… and sasl.….
    """
    reading = Reading(
        topic=topic,
        partitions=partitions,
        start=EARLIEST if from_beginning else LATEST,
        exit_at_end=exit_at_end,
        lines_left=max_messages,
        render=FORMATS[format_name],
        output=standard_output(),
    )
    try:
        with failures_reported():
            servers, settings = settled_cluster(config, properties)
            with named_cluster(servers, settings, timeout_seconds) as cluster:
                trio.run(_read, reading, cluster, IsolationLevel[isolation.upper()])
    except BrokenPipeError:
        _forget_output()
    except OutputFailure:
        _forget_output()
        raise
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


class OutputFailure(click.ClickException):
    """Writing to standard output failed for another reason than a closed pipe."""


def _forget_output() -> None:
    """Discard buffered output, so that exit does not fail on a closed pipe or a full disk."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


async def _read(reading: Reading, cluster: Cluster, isolation_level: IsolationLevel) -> None:
    settings = FetchSettings(
        client_id="splashdam-tail",
        timeout_ms=cluster.timeout_ms,
        request_timeout_ms=cluster.timeout_ms,
        awaits_first_broker=False,
        isolation_level=isolation_level,
    )
    async with open_fetch_client(
        cluster.addresses,
        connect=cluster.connect,
        clock=SystemClock(),
        settings=settings,
        authenticator=cluster.authenticator,
    ) as client:
        await reading.run(client)


@contextmanager
def _output_failures() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputFailure(f"writing to standard output: {error.strerror or error}") from error


@attrs.define(kw_only=True)
class Reading:
    """One run of the command.

    Attributes:
        topic: the topic to read.
        partitions: partitions to read; empty for all.
        start: `EARLIEST` or `LATEST`.
        exit_at_end: whether to stop at the offsets that are the topic's end when the command starts.
        lines_left: number of records still wanted, None for no limit.
        render: formats a record as a line.
        output: the stream for the lines.
    """

    topic: str
    partitions: Sequence[int]
    start: int
    exit_at_end: bool
    lines_left: int | None
    render: Render
    output: BinaryIO

    async def run(self, client: FetchClient) -> None:
        """Read until the wanted records are written.

        Raises:
            KafkaError: the topic or a partition does not exist, or the cluster cannot be read.
            BrokenPipeError: the reader of the output has closed it.
            OutputFailure: the output cannot be written.
        """
        partitions = await self._chosen(client)
        positions = await client.offsets(self.topic, partitions, self.start)
        # Asked for once: with a busy producer the present end would move on for ever.
        ends = await client.offsets(self.topic, partitions, LATEST) if self.exit_at_end else {}
        if self.start == LATEST and not self.exit_at_end:
            click.echo(f"following {self.topic} from its end", err=True)
        while self.lines_left != 0:
            positions = {
                number: offset
                for number, offset in positions.items()
                if offset < ends.get(number, offset + 1)
            }
            if not positions:
                return
            for news in await client.fetch(self.topic, positions):
                with _output_failures():
                    self._write(news, ends.get(news.topic_partition.partition))
                # Not the last record's offset plus one: markers and compacted records have offsets, too.
                positions[news.topic_partition.partition] = news.next_offset

    async def _chosen(self, client: FetchClient) -> list[int]:
        existing = await client.partitions(self.topic)
        missing = set(self.partitions) - set(existing)
        if missing:
            raise IllegalArgumentError(
                f"{self.topic} has no partition {min(missing)}; it has {len(existing)}, numbered from 0"
            )
        return sorted(set(self.partitions)) or existing

    def _write(self, news: FetchedPartition, end: int | None) -> None:
        for record in news.records:
            if self.lines_left == 0 or (end is not None and record.offset >= end):
                break
            self.output.write(self.render(news.topic_partition, record) + b"\n")
            if self.lines_left is not None:
                self.lines_left -= 1
        self.output.flush()
