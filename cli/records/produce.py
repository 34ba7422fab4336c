"""``splashdam produce``: every line of input becomes a record."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
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
    exclusive,
    given_bytes,
    is_given,
    read_properties,
    settled_properties,
    topic_argument,
)
from splashdam.cli.records.lines import Numbered, Parse, TextLines, read_lines
from splashdam.client.producer import KafkaProducer
from splashdam.model.errors import IllegalArgumentError, KafkaError, KafkaTimeoutError
from splashdam.record.json_lines import Line, parse_json

CLOSE_TIMEOUT_SECONDS = 5.0
"""After Ctrl-C or another signal: how long to wait for the delivery of lines that were read already."""

PATIENCE_SECONDS = 2.0
"""After this long a message says what the first record waits for."""

PROPERTIES_OF_OPTIONS = {"bootstrap.servers": "bootstrap_servers", "compression.type": "compression"}

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def _unescaped(_context: click.Context, _parameter: click.Parameter, separator: str | None) -> bytes | None:
    if separator == "":
        raise click.BadParameter("an empty text separates nothing")
    return None if separator is None else given_bytes(separator.replace("\\t", "\t"))


def _header_pairs(
    _context: click.Context, _parameter: click.Parameter, texts: Sequence[str]
) -> tuple[tuple[str, bytes], ...]:
    found = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE")
        if any("\udc80" <= each <= "\udcff" for each in name):  # a byte that is not UTF-8
            raise click.BadParameter(f"{text!r}: the name of a header must be UTF-8")
        found.append((name, given_bytes(value)))
    return tuple(found)


@click.command(
    cls=OnceCommand,
    example="""\
printf 'anna:hello\\nben:hi\\n' | splashdam produce greetings -K :
splashdam produce orders monday.txt tuesday.txt -H source=files -z zstd
splashdam tail t -o earliest -e --format json | splashdam produce copy --json""",
)
@topic_argument
@click.argument(
    "files",
    metavar="[FILE]...",
    nargs=-1,
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
)
@click.option(
    "-K",
    "--key-separator",
    metavar="TEXT",
    callback=_unescaped,
    help=r"Separates key and value in a line; \t is a tab. Without it, lines are values.",
)
@click.option("-k", "--key", metavar="TEXT", help="The key of every record.")
@click.option(
    "-H",
    "--header",
    "header_pairs",
    metavar="NAME=VALUE",
    multiple=True,
    callback=_header_pairs,
    help="A header of every record; repeatable.",
)
@click.option(
    "--headers",
    "has_headers",
    is_flag=True,
    help="Lines begin with headers and a tab: NAME:VALUE,NAME:VALUE as kafka-console-producer's"
    " parse.headers.",
)
@click.option(
    "--null-marker",
    metavar="TEXT",
    help="A key, value or header value of a line that is this is null; '' makes empty ones null.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Lines are JSON objects as `splashdam tail --format json` writes them: key, value, headers,"
    " timestamp and partition are taken over.",
)
@click.option(
    "-p",
    "--partition",
    type=click.IntRange(0),
    metavar="N",
    help="Send to this partition. Default: chosen by the key.",
)
@click.option(
    "-z",
    "--compression",
    type=click.Choice(CODECS),
    default="none",
    show_default=True,
    help="Codec of the batches.",
)
@cluster_options("producer")
@exclusive("key", "key_separator")
@exclusive("as_json", "key_separator")
@exclusive("as_json", "key")
@exclusive("as_json", "header_pairs")
@exclusive("as_json", "has_headers")
@exclusive("as_json", "null_marker")
@exclusive("as_json", "partition")
@click.pass_context
def produce(
    context: click.Context,
    /,
    *,
    topic: str,
    files: Sequence[Path],
    key_separator: bytes | None,
    key: str | None,
    header_pairs: tuple[tuple[str, bytes | None], ...],
    has_headers: bool,
    null_marker: str | None,
    as_json: bool,
    partition: int | None,
    config: Path | None,
    properties: dict[str, str],
    timeout_seconds: float,
    **_options: str,
) -> None:
    """Send each line of standard input, or of FILEs, to TOPIC as a record.

    A line ends with LF or CRLF, which is not part of the record. A summary goes to standard error; the status
    is 1 if any record was not delivered. Ctrl-C, SIGTERM and SIGHUP end the reading; what was read is still
    delivered.
    """
    if not files:
        standard_input()  # if it is closed, nothing is connected
    text_lines = TextLines(
        has_headers=has_headers,
        key_separator=key_separator,
        null=None if null_marker is None else given_bytes(null_marker),
        key=None if key is None else given_bytes(key),
        headers=header_pairs,
        partition=partition,
    )
    try:
        with signals_interrupt(), failures_reported():
            given = {**read_properties(config), **properties}
            settled = settled_properties(context, given, PROPERTIES_OF_OPTIONS)
            _settle_timeout(context, settled, timeout_seconds)
            producer = KafkaProducer.from_properties(settled, value_serializer=_value_of)
            delivery = Delivery(producer, topic, parse_json if as_json else text_lines)
            _deliver(delivery, read_lines(files), reads_files=bool(files))
    except KeyboardInterrupt as interrupt:
        raise SystemExit(exit_status(interrupt)) from None
    raise SystemExit(delivery.status())


class _Null:
    """A null value on its way to the producer, which takes None for a value that was forgotten."""


_NULL = _Null()


def _value_of(value: bytes | _Null) -> bytes | None:
    return None if isinstance(value, _Null) else value


def _settle_timeout(context: click.Context, properties: dict[str, str], timeout_seconds: float) -> None:
    """Use ``--timeout`` as the producer's ``max.block.ms``; ``delivery.timeout.ms`` limits the rest."""
    given = is_given(context, "timeout_seconds")
    if given and "max.block.ms" in properties:
        raise click.UsageError(f"--timeout contradicts -X max.block.ms={properties['max.block.ms']}", context)
    properties.setdefault("max.block.ms", str(max(1, round(timeout_seconds * 1000))))


def _deliver(delivery: Delivery, source: Iterable[Numbered], *, reads_files: bool) -> None:
    """Send all lines and print the summary, also after an error or a signal, which is raised again."""
    started = time.monotonic()
    try:
        with _progress(source, reads_files=reads_files) as lines:
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
def _progress(lines: Iterable[Numbered], *, reads_files: bool) -> Iterator[Iterable[Numbered]]:
    """Return the lines, with a progress bar on a terminal if they come from a file."""
    if (is_terminal(sys.stdin) and not reads_files) or not is_terminal(sys.stderr):
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
    parse: Parse
    sent: int = 0
    failed: int = 0
    refused: int = 0
    first_problem: str = ""
    interrupted: bool = False

    def send_all(self, lines: Iterable[Numbered]) -> None:
        """Send every line; count a refused line, and go on with the next.

        Raises:
            IllegalArgumentError: the partition does not exist.
            KafkaTimeoutError: no broker took records for ``max.block.ms``; further lines would wait as long.
        """
        for line in lines:
            try:
                self._send(self.parse(line.text))
            except (KafkaTimeoutError, IllegalArgumentError):  # no partition of this number
                self.refused += 1
                raise
            except (KafkaError, ValueError) as error:
                self.refused += 1
                self._note(f"{line}: {explained(error)}")

    def _send(self, line: Line) -> None:
        with (
            nullcontext() if self.sent else _silence_explained(self.producer)
        ):  # only the first may wait long
            future = self.producer.send(
                self.topic,
                _NULL if line.value is None else line.value,
                line.key,
                line.headers,
                line.partition,
                line.timestamp_ms,
            )
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
