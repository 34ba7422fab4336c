"""``splashdam produce``: lines of input become records, or whole files."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from splashdam.cli.commands import OnceCommand
from splashdam.cli.exiting import exit_status, failures_reported, signals_interrupt
from splashdam.cli.output import is_terminal, standard_input
from splashdam.cli.parameters import (
    cluster_options,
    exclusive,
    given_bytes,
    is_given,
    read_properties,
    settled_properties,
    topic_argument,
)
from splashdam.cli.records.delivery import Delivery, value_of
from splashdam.cli.records.lines import Piece, TextLines, limited, read_lines, read_whole
from splashdam.client.producer import KafkaProducer
from splashdam.record.json_lines import parse_json

CLOSE_TIMEOUT_SECONDS = 5.0
"""After Ctrl-C or another signal: how long to wait for the delivery of what was read already."""

LONGEST_LINE = 8
"""Longest line, as a multiple of the largest record: JSON writes a byte as up to six characters."""

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
splashdam produce pictures cat.png dog.png --whole
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
    "--whole",
    is_flag=True,
    help="Each FILE, or all of standard input, is one record, byte for byte, as kcat sends files without -l;"
    " an empty one is skipped.",
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
@exclusive("whole", "as_json")
@exclusive("whole", "key_separator")
@exclusive("whole", "has_headers")
@exclusive("whole", "null_marker")
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
    whole: bool,
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

    If the cluster falls silent, a message says so after two seconds. At the end of the input the command
    waits as long as records are acknowledged, and gives up after --timeout without one.
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
            silence_seconds = None if "delivery.timeout.ms" in settled else timeout_seconds
            producer = KafkaProducer.from_properties(settled, value_serializer=value_of)
            limit_bytes = producer.config["max_request_size"] * (1 if whole else LONGEST_LINE)
            parse = limited(parse_json if as_json else text_lines, limit_bytes)
            delivery = Delivery(producer, topic, parse, silence_seconds)
            pieces = (read_whole if whole else read_lines)(files, limit_bytes)
            _deliver(delivery, pieces, reads_files=bool(files))
    except KeyboardInterrupt as interrupt:
        raise SystemExit(exit_status(interrupt)) from None
    raise SystemExit(delivery.status())


def _settle_timeout(context: click.Context, properties: dict[str, str], timeout_seconds: float) -> None:
    """Use ``--timeout`` as the producer's ``max.block.ms``; ``delivery.timeout.ms`` limits the rest."""
    given = is_given(context, "timeout_seconds")
    if given and "max.block.ms" in properties:
        raise click.UsageError(f"--timeout contradicts -X max.block.ms={properties['max.block.ms']}", context)
    properties.setdefault("max.block.ms", str(max(1, round(timeout_seconds * 1000))))


def _deliver(delivery: Delivery, source: Iterable[Piece], *, reads_files: bool) -> None:
    """Send everything and print the summary, also after an error or a signal, which is raised again."""
    started = time.monotonic()
    try:
        with delivery.watched():
            with _progress(source, reads_files=reads_files) as pieces:
                delivery.send_all(pieces)
            if delivery.flush():
                delivery.producer.close()
    except KeyboardInterrupt:
        delivery.interrupted = True
        delivery.producer.close(timeout=CLOSE_TIMEOUT_SECONDS)
        raise
    finally:
        delivery.producer.close(timeout=0)  # after any other error: nothing more is worth waiting for
        click.echo(delivery.summary(time.monotonic() - started), err=True)


@contextmanager
def _progress(pieces: Iterable[Piece], *, reads_files: bool) -> Iterator[Iterable[Piece]]:
    """Yield the pieces of input, with a progress bar on a terminal if they come from a file."""
    if (is_terminal(sys.stdin) and not reads_files) or not is_terminal(sys.stderr):
        yield pieces
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.completed:,} records"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield progress.track(pieces)
