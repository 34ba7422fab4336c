"""``splashdam groups``: list, describe, reset and delete the consumer groups of any cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import click

from splashdam.cli.commands import OnceGroup
from splashdam.cli.connecting import Cluster, chosen_partitions, on_cluster
from splashdam.cli.output import counted, print_json, print_line, print_listing
from splashdam.cli.parameters import exclusive, json_option, partition_list, yes_option
from splashdam.model.broker_errors import ErrorCode, error_for
from splashdam.model.errors import IllegalArgumentError
from splashdam.model.transactions import OffsetAndMetadata
from splashdam.model.values import TopicPartition
from splashdam.net.admin.groups import (
    GroupDescription,
    commit_offsets,
    committed_offsets,
    delete_group,
    describe_group,
    list_groups,
)
from splashdam.net.admin.resets import Offsets, Target, check_empty
from splashdam.net.admin.topics import list_offsets
from splashdam.net.cluster.cluster_client import ClusterClient
from splashdam.net.cluster.fetch_client import LATEST


@click.group(cls=OnceGroup)
def groups() -> None:
    """Manage consumer groups of a cluster, or of the broker in a directory (``-b embedded:DIR``)."""


@groups.command(name="list", example="splashdam groups list")
@json_option
@on_cluster
def list_(cluster: Cluster, *, as_json: bool) -> None:
    """List all groups, with their state and protocol."""
    found = cluster.ask(list_groups)
    rows = [(each.group_id, each.state, each.group_type) for each in found]
    print_listing(("group", "state", "type"), rows, as_json=as_json)


class Progress(NamedTuple):
    """A group, with the committed and the end offsets of its partitions."""

    group: GroupDescription
    committed: Mapping[TopicPartition, OffsetAndMetadata]
    ends: Offsets


_COLUMNS = ("topic", "partition", "committed", "end", "lag", "member", "host")


@groups.command(example="splashdam groups describe billing --json")
@click.argument("group")
@json_option
@on_cluster
def describe(cluster: Cluster, *, group: str, as_json: bool) -> None:
    """Show the members of GROUP, what each reads, and how far behind the group is."""

    async def run(client: ClusterClient) -> Progress:
        found = await describe_group(client, group)
        if found is None:
            raise error_for(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group!r}")
        committed = await committed_offsets(client, group)
        assigned = {each for member in found.members for each in member.assignment}
        return Progress(found, committed, await list_offsets(client, assigned | committed.keys(), LATEST))

    found, committed, ends = cluster.ask(run)
    readers = {each: member for member in found.members for each in member.assignment}
    rows = [
        (
            where.topic,
            where.partition,
            committed[where].offset if where in committed else None,
            ends[where],
            ends[where] - committed[where].offset if where in committed else None,
            readers[where].member_id if where in readers else None,
            readers[where].host if where in readers else None,
        )
        for where in sorted(ends)
    ]
    if as_json:
        print_json(
            {
                "group": group,
                "state": found.state,
                "type": found.group_type,
                "members": len(found.members),
                "partitions": [dict(zip(_COLUMNS, row, strict=True)) for row in rows],
            }
        )
        return
    print_line(f"{group}: {found.state}, {found.group_type}, {counted(len(found.members), 'member')}")
    print_listing(_COLUMNS, rows, as_json=False)


@groups.command(
    example="""\
splashdam groups reset billing --topic orders --to-earliest --dry-run
splashdam groups reset billing --to-datetime 2026-01-31T10:00:00"""
)
@click.argument("group")
@click.option(
    "--topic",
    "wanted",
    metavar="TOPIC[:N,…]",
    type=partition_list,
    multiple=True,
    help="Topic, or some of its partitions; repeatable. Default: all that the group has committed.",
)
@click.option("--to-earliest", is_flag=True, help="To the oldest record.")
@click.option("--to-latest", is_flag=True, help="To the end, so that only new records are read.")
@click.option("--to-offset", type=click.IntRange(0), help="To this offset.")
@click.option("--to-datetime", type=click.DateTime(), help="To the first record at or after this local time.")
@click.option("--shift-by", type=int, help="Forward by this many records; backwards if negative.")
@click.option("--dry-run", is_flag=True, help="Show the new offsets and change nothing.")
@json_option
@exclusive("to_earliest", "to_latest", "to_offset", "to_datetime", "shift_by")
@on_cluster
def reset(
    cluster: Cluster,
    *,
    group: str,
    wanted: Sequence[tuple[str, tuple[int, ...]]],
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_datetime: datetime | None,
    shift_by: int | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Set the committed offsets of GROUP. Its members have to be stopped first."""
    to = "earliest" if to_earliest else "latest" if to_latest else None
    if to is None and to_offset is None and to_datetime is None and shift_by is None:
        raise click.UsageError(
            "say where to, once: --to-earliest, --to-latest, --to-offset, --to-datetime or --shift-by"
        )
    to_ms = None if to_datetime is None else int(to_datetime.timestamp() * 1000)
    target = Target(to, to_offset, to_ms, shift_by)

    async def run(client: ClusterClient) -> tuple[Offsets, Offsets]:
        # The broker refuses commits for a group with members, too, but with a code that names no remedy.
        await check_empty(client, group)
        before = {key: each.offset for key, each in (await committed_offsets(client, group)).items()}
        partitions = await chosen_partitions(client, wanted) if wanted else list(before)
        if not partitions:
            raise IllegalArgumentError(
                f"group {group!r} has no committed offsets; name the topics with --topic"
            )
        after = await target.offsets(client, partitions, before)
        if after and not dry_run:
            await commit_offsets(client, group, {key: OffsetAndMetadata(each) for key, each in after.items()})
        return before, after

    before, after = cluster.ask(run)
    print_listing(
        ("topic", "partition", "before", "after"),
        [(where.topic, where.partition, before.get(where), after[where]) for where in sorted(after)],
        as_json=as_json,
    )
    if dry_run:
        click.echo("nothing was changed: this was a dry run", err=True)


@groups.command(example="splashdam groups delete billing --yes")
@click.argument("group")
@yes_option
@on_cluster
def delete(cluster: Cluster, *, group: str, yes: bool) -> None:
    """Delete GROUP and its committed offsets. Its members have to be stopped first."""
    if not yes:
        click.confirm(f"Delete {group} and all that it has committed?", abort=True, err=True)

    async def run(client: ClusterClient) -> None:
        await delete_group(client, group)

    cluster.ask(run)
    print_line(f"deleted {group}")
