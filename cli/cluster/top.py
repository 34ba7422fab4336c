"""``splashdam top``: topics and groups of a cluster in the terminal, as they change."""

from __future__ import annotations

import os
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import attrs
import click
import trio

from splashdam.cli.commands import OnceCommand
from splashdam.cli.connecting import Cluster, on_cluster
from splashdam.cli.exiting import EndedBySignal, explained, interrupts_raise, signals_interrupt_trio
from splashdam.cli.output import counted, is_terminal, print_json, shown_age, shown_bytes
from splashdam.cli.parameters import SECONDS, FiniteRange, json_option
from splashdam.console.sampling import Sampler, Seen
from splashdam.model.errors import KafkaConnectionError, KafkaError, message_of
from splashdam.model.views.cluster import GroupPartitionView, GroupView, TopicView
from splashdam.net.clock import SystemClock
from splashdam.net.inspector import Inspector, open_inspector
from splashdam.net.run import run_in_trio

if TYPE_CHECKING:
    from rich.console import Group as RichGroup
    from rich.table import Table as RichTable

_MOST_GROUPS = 50
"""So many groups are asked for; each takes three requests."""
_QUIT = frozenset("qQ\x03\x04\x1b")


@attrs.frozen(kw_only=True)
class Look:
    """What is shown at one moment.

    Attributes:
        seen: the cluster.
        groups: those that lag most first.
        refusal: why the groups are not known; None if they are.
    """

    seen: Seen
    groups: Sequence[GroupView]
    refusal: str | None = None


@click.command(
    cls=OnceCommand,
    example="""\
splashdam top -b localhost:9092
splashdam top -b localhost:9092 --once --json""",
)
@click.option(
    "--interval",
    type=FiniteRange(0.2, 3600, what=SECONDS),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two looks; rates are averages over ten seconds.",
)
@click.option("--once", is_flag=True, help="Look twice, an interval apart, print the second look, and end.")
@json_option
@on_cluster
def top(cluster: Cluster, *, interval: float, once: bool, as_json: bool) -> None:
    """Show the topics and groups of a cluster as they change: rates, sizes, lag. End it with q or Ctrl-C.

    Without a terminal it prints the second look and ends, as with --once. With --json each look is a line.
    """
    shows_live = not (once or as_json or not is_terminal(sys.stdout))
    try:
        with signals_interrupt_trio():  # else SIGTERM leaves the terminal in another mode
            run_in_trio(_watch, cluster, interval, once or not (shows_live or as_json), as_json)
    except KeyboardInterrupt as interrupt:
        if isinstance(interrupt, EndedBySignal) or not (shows_live or as_json):
            raise


async def _watch(cluster: Cluster, interval: float, once: bool, as_json: bool) -> None:
    clock = SystemClock()
    async with open_inspector(
        cluster.addresses,
        connect=cluster.connect,
        clock=clock,
        authenticator=cluster.authenticator,
        timeout_ms=cluster.timeout_ms,
    ) as inspector:
        sampler = Sampler(inspector, clock)
        first = await sampler.look()
        if first.overview is None:
            raise KafkaConnectionError(first.failure or "the cluster does not answer")
        if once or as_json:
            await _print_looks(inspector, sampler, interval, once=once, as_json=as_json)
        else:
            await _show_live(inspector, sampler, interval, ",".join(f"{h}:{p}" for h, p in cluster.addresses))


async def _print_looks(
    inspector: Inspector, sampler: Sampler, interval: float, *, once: bool, as_json: bool
) -> None:
    from rich.console import Console

    while True:
        await trio.sleep(interval)
        if once and len((await sampler.look()).moments) < 2:
            continue  # a cluster that answers slowly is asked less often, and two looks make a rate
        look = await _look(inspector, sampler)
        with interrupts_raise():
            if as_json:
                print_json(as_fields(look))
            else:
                Console().print(picture(look, ""))
        if once:
            return


async def _show_live(inspector: Inspector, sampler: Sampler, interval: float, title: str) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console()
    with (
        _keys() as keys,
        Live(console=console, screen=True, auto_refresh=False, redirect_stderr=False) as live,
    ):
        async with trio.open_nursery() as nursery:
            if keys is not None:
                nursery.start_soon(_end_at_key, keys, nursery.cancel_scope)
            while True:
                look = await _look(inspector, sampler)
                with interrupts_raise():
                    live.update(picture(look, title, height=console.height), refresh=True)
                await trio.sleep(interval)


@contextmanager
def _keys() -> Iterator[int | None]:
    """Read single keys from standard input for the block; yield None if it is not a terminal."""
    if not is_terminal(sys.stdin):
        yield None
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


async def _end_at_key(descriptor: int, scope: trio.CancelScope) -> None:
    while True:
        await trio.lowlevel.wait_readable(descriptor)
        typed = os.read(descriptor, 64)
        if not typed or _QUIT & set(typed.decode("latin-1")):
            scope.cancel()
            return


async def _look(inspector: Inspector, sampler: Sampler) -> Look:
    seen = await sampler.look()
    if seen.failure is not None:
        return Look(seen=seen, groups=())
    assert seen.overview is not None
    ends = {each.topic_partition: each.end_offset for t in seen.overview.topics for each in t.partitions}
    try:
        groups = await inspector.groups(ends, _MOST_GROUPS)
    except KafkaError as error:  # who may see topics may not see groups, and a broker may have gone meanwhile
        return Look(seen=seen, groups=(), refusal=message_of(error))
    return Look(seen=seen, groups=sorted(groups, key=lambda each: (-each.lag, each.group_id)))


def _worst(group: GroupView) -> GroupPartitionView | None:
    """Return the partition that lags most; None if none does."""
    lagging = [each for each in group.partitions if each.lag]
    return max(lagging, key=lambda each: each.lag or 0, default=None)


def as_fields(look: Look) -> dict[str, object]:
    """Return a look as the fields of its line of JSON."""
    seen = look.seen
    overview = seen.overview
    assert overview is not None  # the first look had one, or there would be no second
    return {
        "time_ms": overview.taken_ms,
        "cluster_id": overview.cluster_id,
        "failure": seen.failure,
        "brokers": len(overview.brokers),
        "partitions": overview.partitions,
        "under_replicated": overview.under_replicated,
        "leaderless": overview.leaderless,
        "topics": [
            {
                "topic": topic.name,
                "partitions": len(topic.partitions),
                "records": topic.records,
                "bytes": topic.size_bytes,
                "records_per_second": seen.records_per_second(topic.name),
                "newest_timestamp_ms": topic.newest_timestamp_ms,
            }
            for topic in overview.topics
            if not topic.is_internal
        ],
        "groups": [
            {
                "group": group.group_id,
                "state": group.state,
                "type": group.group_type,
                "members": len(group.members),
                "lag": group.lag,
                "worst": None
                if (worst := _worst(group)) is None
                else {
                    "topic": worst.topic_partition.topic,
                    "partition": worst.topic_partition.partition,
                    "lag": worst.lag,
                },
            }
            for group in look.groups
        ],
    }


def picture(look: Look, title: str, *, height: int | None = None) -> RichGroup:
    """Return a look as it is printed; of more topics and groups than fit in ``height`` lines the busiest."""
    from rich.console import Group
    from rich.text import Text

    seen, overview = look.seen, look.seen.overview
    assert overview is not None
    room = max(6, (height or 1000) - 10)
    topics = sorted(
        (each for each in overview.topics if not each.is_internal),
        key=lambda each: (-(seen.records_per_second(each.name) or 0), each.name),
    )
    head = Text(title, style="bold")
    if title:
        head.append("  ")
    rate = seen.records_per_second()
    bad = overview.under_replicated + overview.leaderless
    head.append(
        f"{counted(len(overview.brokers), 'broker')}, {counted(overview.partitions, 'partition')},"
        f" {_rate(rate)} records/s in, {shown_bytes(sum(t.size_bytes for t in overview.topics)).text}",
        style="not bold",
    )
    if bad:
        head.append(
            f"  {overview.under_replicated} under-replicated, {overview.leaderless} without a leader",
            style="bold red",
        )
    parts = [head]
    if seen.failure is not None:
        parts.append(Text(f"no answer: {explained(seen.failure)}", style="red"))
    shown_topics = max(3, room - min(len(look.groups), room // 2))
    return Group(
        *parts,
        _topics_table(seen, topics, shown_topics, overview.taken_ms),
        Text(),
        _groups_table(look, max(3, room - min(len(topics), shown_topics))),
        Text("q ends it" if height else "", style="dim"),
    )


def _topics_table(seen: Seen, topics: Sequence[TopicView], most: int, now_ms: int) -> RichTable:
    from rich.text import Text

    columns = ("partitions", "records", "bytes", "in/s", "newest")
    table = _table(("topic", False), *((name, True) for name in columns))
    for topic in topics[:most]:
        table.add_row(
            Text(topic.name),
            str(len(topic.partitions)),
            f"{topic.records:,}",
            shown_bytes(topic.size_bytes).text,
            _rate(seen.records_per_second(topic.name)),
            shown_age(topic.newest_timestamp_ms, now_ms).text,
        )
    if len(topics) > most:
        table.add_row(f"{len(topics) - most} more", style="dim")
    return table


def _groups_table(look: Look, most: int) -> RichTable:
    from rich.text import Text

    table = _table(("group", False), ("state", False), ("members", True), ("lag", True), ("lags most", False))
    for each in look.groups[:most]:
        worst = _worst(each)
        table.add_row(
            Text(each.group_id),
            each.state,
            str(len(each.members)),
            f"{each.lag:,}",
            Text(each.problem if worst is None else f"{worst.topic_partition}: {worst.lag:,}"),
        )
    if len(look.groups) > most:
        table.add_row(f"{len(look.groups) - most} more", style="dim")
    if look.refusal is not None:
        table.add_row(Text(f"not shown: {look.refusal}"), style="dim")
    elif not look.groups:
        table.add_row("no group", style="dim")
    return table


def _table(*columns: tuple[str, bool]) -> RichTable:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim", expand=False)
    for name, is_number in columns:
        table.add_column(name, justify="right" if is_number else "left", no_wrap=True, overflow="ellipsis")
    return table


def _rate(per_second: float | None) -> str:
    if per_second is None:
        return "-"
    return f"{per_second:.1f}" if 0 < per_second < 10 else f"{per_second:,.0f}"
