"""``splashdam produce``: every line of standard input becomes a record."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import attrs
import click

from splashdam.cli.failures import INTERRUPTED, explained, failures_reported
from splashdam.cli.parameters import bootstrap_servers_option, property_option
from splashdam.client.producer import KafkaProducer
from splashdam.model.errors import KafkaError, KafkaTimeoutError

CLOSE_TIMEOUT_SECONDS = 5.0
"""How long Ctrl-C lets records that were read already arrive."""

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@click.command()
@click.argument("topic")
@bootstrap_servers_option
@click.option(
    "--key-separator",
    metavar="TEXT",
    help=r"What stands between key and value in a line; \t is a tab. Without it, lines are values.",
)
@click.option(
    "--partition", type=click.IntRange(0), help="Send to this partition; by default the key decides."
)
@click.option(
    "--compression",
    type=click.Choice(CODECS),
    default="none",
    show_default=True,
    help="Codec of the batches.",
)
@property_option("producer")
def produce(
    *,
    topic: str,
    bootstrap_servers: str,
    key_separator: str | None,
    partition: int | None,
    compression: str,
    properties: dict[str, str],
) -> None:
    """Send each line of standard input to TOPIC as a record.

    A line ends with a newline, which is not part of the record. A summary goes to standard error; the status
    is 1 if any record was not delivered.
    """
    with failures_reported():
        producer = KafkaProducer.from_properties(
            {"bootstrap.servers": bootstrap_servers, "compression.type": compression, **properties}
        )
        delivery = Delivery(producer, topic, partition, _unescaped(key_separator))
        started = time.monotonic()
        try:
            with _progress(sys.stdin.buffer) as lines:
                delivery.send_all(lines)
            producer.flush()
            producer.close()
        except KeyboardInterrupt:
            producer.close(timeout=CLOSE_TIMEOUT_SECONDS)
            delivery.interrupted = True
        finally:
            producer.close(timeout=0)  # after any other error: nothing more is worth waiting for
            click.echo(delivery.summary(time.monotonic() - started), err=True)
    raise SystemExit(delivery.status())


def _unescaped(separator: str | None) -> bytes | None:
    return None if separator is None else separator.replace("\\t", "\t").encode()


@contextmanager
def _progress(lines: Iterable[bytes]) -> Iterator[Iterable[bytes]]:
    """The lines, counted on a terminal while they pass; typed lines and pipes are left alone."""
    if sys.stdin.isatty() or not sys.stderr.isatty():
        yield lines
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.completed:,} records"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield progress.track(lines)


@attrs.define
class Delivery:
    """Sends lines and counts what became of them.

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
        """Sends every line; one that is refused is counted, and the next is sent.

        Raises:
            KafkaTimeoutError: no broker took records for ``max.block.ms``; further lines would wait as long.
        """
        for number, line in enumerate(lines, 1):
            try:
                self._send(line)
            except KafkaTimeoutError:
                self.refused += 1
                raise
            except (KafkaError, ValueError) as error:
                self.refused += 1
                self._note(f"line {number}: {explained(error)}")

    def _send(self, line: bytes) -> None:
        key: bytes | None = None
        value = line.removesuffix(b"\n").removesuffix(b"\r")
        if self.key_separator is not None:
            key, found, value = value.partition(self.key_separator)
            if not found:
                raise ValueError(f"no key separator {self.key_separator.decode()!r}")
        future = self.producer.send(self.topic, value, key=key, partition=self.partition)
        self.sent += 1
        future.add_errback(self._count_failure)

    def _count_failure(self, error: BaseException) -> None:
        self.failed += 1
        self._note(explained(error))

    def _note(self, problem: str) -> None:
        self.first_problem = self.first_problem or problem

    def summary(self, seconds: float) -> str:
        """What is written to standard error at the end."""
        lost = self.failed + self.refused
        parts = [f"{self.sent - self.failed:,} records delivered to {self.topic} in {seconds:.2f} s"]
        if lost:
            parts.append(f"{lost:,} not delivered; the first: {self.first_problem or 'see below'}")
        if self.interrupted:
            parts.append("interrupted")
        return "; ".join(parts)

    def status(self) -> int:
        """The exit status: 0 only if every line was delivered."""
        if self.interrupted:
            return INTERRUPTED
        return 1 if self.failed + self.refused else 0
