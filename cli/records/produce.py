"""``splashdam produce``: every line of standard input becomes a record."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Timer

import attrs
import click

from splashdam.cli.commands import OnceCommand
from splashdam.cli.exiting import exit_status, explained, failures_reported, signals_interrupt
from splashdam.cli.output import counted, is_terminal, standard_input
from splashdam.cli.parameters import (
    cluster_options,
    is_given,
    read_properties,
    settled_properties,
    topic_argument,
)
from splashdam.client.producer import KafkaProducer
from splashdam.model.errors import IllegalArgumentError, KafkaError, KafkaTimeoutError

CLOSE_TIMEOUT_SECONDS = 5.0
"""After Ctrl-C or another signal: how long to wait for the delivery of lines that were read already."""

PATIENCE_SECONDS = 2.0
"""After this long a message says what the first record waits for."""

PROPERTIES_OF_OPTIONS = {"bootstrap.servers": "bootstrap_servers", "compression.type": "compression"}

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def _unescaped(_context: click.Context, _parameter: click.Parameter, separator: str | None) -> bytes | None:
    if separator == "":
        raise click.BadParameter("an empty text separates nothing")
    return None if separator is None else separator.replace("\\t", "\t").encode()


@click.command(cls=OnceCommand, short_help="Send lines of standard input to a topic.")
@topic_argument
@click.option(
    "--key-separator",
    metavar="TEXT",
    callback=_unescaped,
    help=r"Separates key and value in a line; \t is a tab. Without it, lines are values.",
)
@click.option(
    "--partition", type=click.IntRange(0), help="Send to this partition. Default: chosen by the key."
)
@click.option(
    "--compression",
    type=click.Choice(CODECS),
    default="none",
    show_default=True,
    help="Codec of the batches.",
)
@cluster_options("producer")
@click.pass_context
def produce(
    context: click.Context,
    /,
    *,
    topic: str,
    key_separator: bytes | None,
    partition: int | None,
    config: Path | None,
    properties: dict[str, str],
    timeout_seconds: float,
    **_options: str,
) -> None:
    """Send each line of standard input to TOPIC as a record.

    A line ends with a newline, which is not part of the record. A summary goes to standard error; the status
    is 1 if any record was not delivered. Ctrl-C, SIGTERM and SIGHUP end the reading; what was read is still
    delivered.
    """
    lines = standard_input()
    try:
        with signals_interrupt(), failures_reported():
            given = {**read_properties(config), **properties}
            settled = settled_properties(context, given, PROPERTIES_OF_OPTIONS)
            _settle_timeout(context, settled, timeout_seconds)
            producer = KafkaProducer.from_properties(settled)
            delivery = Delivery(producer, topic, partition, key_separator)
            _deliver(delivery, lines)
    except KeyboardInterrupt as interrupt:
        raise SystemExit(exit_status(interrupt)) from None
    raise SystemExit(delivery.status())


def _settle_timeout(context: click.Context, properties: dict[str, str], timeout_seconds: float) -> None:
    """Use ``--timeout`` as the producer's ``max.block.ms``; ``delivery.timeout.ms`` limits the rest."""
    given = is_given(context, "timeout_seconds")
    if given and "max.block.ms" in properties:
        raise click.UsageError(f"--timeout contradicts -X max.block.ms={properties['max.block.ms']}", context)
    properties.setdefault("max.block.ms", str(max(1, round(timeout_seconds * 1000))))


def _deliver(delivery: Delivery, source: Iterable[bytes]) -> None:
    """Send all lines and print the summary, also after an error or a signal, which is raised again."""
    started = time.monotonic()
    try:
        with _progress(source) as lines:
            delivery.send_all(lines)
        delivery.producer.flush()
        delivery.producer.close()
    except KeyboardInterrupt:
        delivery.interrupted = True
        delivery.producer.close(timeout=CLOSE_TIMEOUT_SECONDS)
        raise
    finally:
        delivery.producer.close(timeout=0)  # after any other error: nothing more is worth waiting for
        click.echo(delivery.summary(time.monotonic() - started), err=True)


@contextmanager
def _silence_explained(producer: KafkaProducer) -> Iterator[None]:
    """Print once what the block waits for, if it takes long."""

    def explain() -> None:
        reason = producer.last_failure  # the same reason as in the timeout error
        limit_seconds = producer.config["max_block_ms"] / 1000
        click.echo(f"waiting for the cluster, for at most {limit_seconds:g} s; so far: {reason}", err=True)

    timer = Timer(PATIENCE_SECONDS, explain)
    # A command that ends with an error must not wait for the timer.
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def _progress(lines: Iterable[bytes]) -> Iterator[Iterable[bytes]]:
    """Return the lines, with a progress bar on a terminal if they come from a file."""
    if is_terminal(sys.stdin) or not is_terminal(sys.stderr):
        yield lines
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.completed:,} records"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield progress.track(lines)


@attrs.define
class Delivery:
    """Sends lines, and counts those that are delivered, failed and refused.

    ``failed`` is counted on the sender's thread and ``refused`` on the caller's, so that neither needs a
    lock.
    """

    producer: KafkaProducer
    topic: str
    partition: int | None
    key_separator: bytes | None
    sent: int = 0
    failed: int = 0
    refused: int = 0
    first_problem: str = ""
    interrupted: bool = False

    def send_all(self, lines: Iterable[bytes]) -> None:
        """Send every line; count a refused line, and go on with the next.

        Raises:
            IllegalArgumentError: the partition does not exist.
            KafkaTimeoutError: no broker took records for ``max.block.ms``; further lines would wait as long.
        """
        for number, line in enumerate(lines, 1):
            try:
                self._send(line)
            except (KafkaTimeoutError, IllegalArgumentError):  # every other line would fail as well
                self.refused += 1
                raise
            except (KafkaError, ValueError) as error:
                self.refused += 1
                self._note(f"line {number}: {explained(error)}")

    def _send(self, line: bytes) -> None:
        key: bytes | None = None
        # Lines may end with CRLF, as files from Windows do.
        value = line.removesuffix(b"\n").removesuffix(b"\r")
        if self.key_separator is not None:
            key, found, value = value.partition(self.key_separator)
            if not found:
                raise ValueError(f"no key separator {self.key_separator.decode()!r}")
        with (
            nullcontext() if self.sent else _silence_explained(self.producer)
        ):  # only the first may wait long
            future = self.producer.send(self.topic, value, key=key, partition=self.partition)
        self.sent += 1
        future.add_errback(self._count_failure)

    def _count_failure(self, error: BaseException) -> None:
        self.failed += 1
        self._note(explained(error))

    def _note(self, problem: str) -> None:
        self.first_problem = self.first_problem or problem

    def summary(self, seconds: float) -> str:
        """Return the line for standard error at the end."""
        lost = self.failed + self.refused
        parts = [f"{counted(self.sent - self.failed, 'record')} delivered to {self.topic} in {seconds:.2f} s"]
        if lost:
            parts.append(f"{lost:,} not delivered; the first: {self.first_problem or 'see below'}")
        if self.interrupted:
            parts.append("interrupted")
        return "; ".join(parts)

    def status(self) -> int:
        """Return the exit status of a run without interrupt: 0 only if every line was delivered."""
        return 1 if self.failed + self.refused else 0
