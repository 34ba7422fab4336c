"""``splashdam tail``: write the records of topics to standard output."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import attrs
import click

from splashdam.cli.commands import OnceCommand
from splashdam.cli.connecting import Cluster, named_cluster
from splashdam.cli.exiting import failures_reported, signals_interrupt_trio
from splashdam.cli.moments import moment
from splashdam.cli.output import standard_output
from splashdam.cli.parameters import cluster_options, exclusive, given_bytes, legal_topic, settled_cluster
from splashdam.cli.records.reading import Output, Reading, Start, committing
from splashdam.cli.records.rendering import FORMATS, TOKENS_HELP, Render, format_renderer, renderer
from splashdam.model.errors import IllegalArgumentError
from splashdam.model.values import IsolationLevel
from splashdam.net.admin.topics import list_topics
from splashdam.net.cluster.cluster_client import ClusterClient
from splashdam.net.cluster.fetch_client import EARLIEST, LATEST
from splashdam.net.run import run_in_trio


def _start(text: str) -> Start:
    """Parse ``earliest``, ``latest`` (or ``beginning`` and ``end``), N, or -N for the last N records."""
    if text in ("earliest", "beginning"):
        return Start(timestamp=EARLIEST)
    if text in ("latest", "end"):
        return Start(timestamp=LATEST)
    if re.fullmatch(r"-?\d{1,18}", text, re.ASCII) is None:
        raise click.BadParameter(f"expected earliest, latest, N or -N, not {text!r}")
    return Start(last=int(text[1:])) if text.startswith("-") else Start(offset=int(text))


def _format_string(text: str) -> str:
    """Check a format string of kcat; `_render` uses it."""
    try:
        format_renderer(text, None)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return text


def _check_topics(
    _context: click.Context, _parameter: click.Parameter, topics: Sequence[str]
) -> tuple[str, ...]:
    for each in topics:
        if not each.startswith("^"):
            legal_topic(each)
            continue
        try:
            re.compile(each)
        except re.error as error:
            raise click.BadParameter(f"{each!r} is no regular expression: {error}") from error
    return tuple(dict.fromkeys(topics))


@click.command(
    cls=OnceCommand,
    example="""\
splashdam tail orders --offset -10 --exit-at-end --format full
splashdam tail '^orders\\.' --since 15m --format-string '%t %k %s\\n'
splashdam tail orders --from-beginning -e --format json > orders.jsonl""",
)
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True, callback=_check_topics)
@click.option("--from-beginning", is_flag=True, help="Begin with the oldest record. Default: only new ones.")
@click.option(
    "-o",
    "--offset",
    "start",
    type=_start,
    metavar="[N|-N|earliest|latest]",
    help="Begin at this offset of each partition; -N: with its last N records.",
)
@click.option(
    "--since",
    type=moment,
    metavar="TIME",
    help="Begin with the first record at or after a time (2026-01-31T10:00, local unless it ends in Z) or a"
    " duration ago (90s, 15m, 2h, 1d).",
)
@click.option(
    "--until",
    type=moment,
    metavar="TIME",
    help="Stop before the first record at or after this time, or where a partition ends; otherwise as"
    " --since.",
)
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=click.IntRange(0),
    metavar="N",
    multiple=True,
    help="Read only this partition; repeatable. Default: all, in no order between them.",
)
@click.option(
    "-c", "--max-messages", type=click.IntRange(1), metavar="N", help="Stop after this many records."
)
@click.option(
    "-e",
    "--exit-at-end",
    is_flag=True,
    help="Stop at the offsets that were the ends of the topics at the start.",
)
@click.option(
    "--group",
    metavar="GROUP",
    help="Begin where this consumer group has committed, and commit what is written, every 5 s and at the"
    " end. The group may have no members meanwhile.",
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
    type=click.Choice(FORMATS),
    default="value",
    show_default=True,
    help="value: the value alone; full: with partition, offset, time and key; json: everything as an"
    " object, which `splashdam produce --json` takes back.",
)
@click.option(
    "-f",
    "--format-string",
    type=_format_string,
    metavar="TEXT",
    help=f"kcat's format, without a newline of its own: {TOKENS_HELP}; \\n, \\t, \\xHH.",
)
@click.option("--null-marker", metavar="TEXT", help="Write this for a null value, key or header.")
@cluster_options()
@exclusive("from_beginning", "start", "since")
@exclusive("group", "start", "since")
@exclusive("format_name", "format_string")
def tail(
    *,
    topics: Sequence[str],
    from_beginning: bool,
    start: Start | None,
    since: int | None,
    until: int | None,
    partitions: Sequence[int],
    max_messages: int | None,
    exit_at_end: bool,
    group: str | None,
    isolation: str,
    format_name: str,
    format_string: str | None,
    null_marker: str | None,
    config: Path | None,
    properties: dict[str, str],
    timeout_seconds: float,
    **_options: str,
) -> None:
    """Write the records of TOPICs to standard output, one a line, and wait for more until Ctrl-C.

    A TOPIC that begins with ^ is a regular expression for the topics that exist at the start, internal ones
    left out. Of the settings only those for TLS and SASL are used: security.protocol, ssl.… and sasl.….
    """
    _check_times(since, until, null_marker, format_name)
    if start is None:
        start = Start(timestamp=since if since is not None else EARLIEST if from_beginning else LATEST)
    reading = Reading(
        topics=topics,
        partitions=partitions,
        start=start,
        exit_at_end=exit_at_end,
        until_ms=until,
        isolation_level=IsolationLevel[isolation.upper()],
        output=Output(
            stream=standard_output(),
            render=_render(format_name, format_string, null_marker),
            left=max_messages,
        ),
    )
    with signals_interrupt_trio(), suppress(BrokenPipeError), failures_reported():  # `| head` has seen enough
        servers, settings = settled_cluster(config, properties)
        with named_cluster(servers, settings, timeout_seconds) as cluster:
            if any(each.startswith("^") for each in topics):
                reading.topics = cluster.ask(partial(_matching, topics))
            if group is None:
                run_in_trio(reading.run, cluster)
            else:
                cluster.ask(partial(_read_as_group, reading, cluster, group))


def _check_times(since: int | None, until: int | None, null_marker: str | None, format_name: str) -> None:
    if until is not None and until > time.time() * 1000:
        raise click.UsageError("--until lies in the future; without it, the command waits for new records")
    if since is not None and until is not None and since > until:
        raise click.UsageError("--until contradicts --since: it is earlier")
    if null_marker is not None and format_name == "json":
        raise click.UsageError("--null-marker contradicts --format json, where null is null")


def _render(format_name: str, format_string: str | None, null_marker: str | None) -> Render:
    null = None if null_marker is None else given_bytes(null_marker)
    return renderer(format_name, null) if format_string is None else format_renderer(format_string, null)


async def _matching(topics: Sequence[str], client: ClusterClient) -> list[str]:
    """Return the named topics and those that match a pattern.

    Raises:
        IllegalArgumentError: none matches.
    """
    existing = await list_topics(client)
    found: dict[str, None] = {}
    for each in topics:
        matching = [each]
        if each.startswith("^"):
            hides = not each.startswith("^__")
            pattern = re.compile(each)
            matching = [
                name for name in existing if pattern.search(name) and not (hides and name.startswith("__"))
            ]
            if not matching:
                raise IllegalArgumentError(f"no topic matches {each!r}; there are {len(existing)}")
        found.update(dict.fromkeys(matching))
    return list(found)


async def _read_as_group(reading: Reading, cluster: Cluster, group: str, client: ClusterClient) -> None:
    async with committing(client, group) as progress:
        await attrs.evolve(reading, progress=progress).run(cluster)
