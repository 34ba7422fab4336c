"""``splashdam delete-records``: delete the oldest records of partitions."""

from __future__ import annotations

import click

from splashdam.cli.commands import OnceCommand
from splashdam.cli.connecting import Cluster, chosen_partitions, on_cluster
from splashdam.cli.moments import moment
from splashdam.cli.output import print_listing
from splashdam.cli.parameters import exclusive, json_option, partition_list, yes_option
from splashdam.model.values import TopicPartition
from splashdam.net.admin.topics import delete_records as delete
from splashdam.net.admin.topics import list_offsets
from splashdam.net.cluster.cluster_client import ClusterClient
from splashdam.net.cluster.fetch_client import LATEST

_TO_THE_END = -1


@click.command(
    "delete-records",
    cls=OnceCommand,
    example="""\
splashdam delete-records orders:0 --before-offset 1000 --yes
splashdam delete-records orders --older-than 7d""",
)
@click.argument("wanted", metavar="TOPIC[:N,…]", type=partition_list)
@click.option("--before-offset", type=click.IntRange(0), metavar="N", help="Delete those before this offset.")
@click.option("--older-than", type=moment, metavar="TIME", help="Delete those before a time: 7d, 2026-01-31.")
@click.option("--all", "is_all", is_flag=True, help="Delete all that are there now.")
@yes_option
@json_option
@exclusive("before_offset", "older_than", "is_all")
@on_cluster
def delete_records(
    cluster: Cluster,
    *,
    wanted: tuple[str, tuple[int, ...]],
    before_offset: int | None,
    older_than: int | None,
    is_all: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete the oldest records of TOPIC, or of some of its partitions; offsets stay as they are.

    What is shown is the first offset of each partition that is left.
    """
    if before_offset is None and older_than is None and not is_all:
        raise click.UsageError("say which: --before-offset, --older-than or --all")
    if not yes:
        click.confirm(f"Delete records of {wanted[0]} for good?", abort=True, err=True)

    async def run(client: ClusterClient) -> dict[TopicPartition, int]:
        partitions = await chosen_partitions(client, [wanted])
        before = dict.fromkeys(partitions, _TO_THE_END if before_offset is None else before_offset)
        if older_than is not None:
            ends = await list_offsets(client, partitions, LATEST)  # first: what comes later is younger
            found = await list_offsets(client, partitions, older_than)
            before = {where: offset if offset >= 0 else ends[where] for where, offset in found.items()}
        return {where: await delete(client, where, offset) for where, offset in before.items()}

    print_listing(
        ("topic", "partition", "first offset"),
        [(where.topic, where.partition, offset) for where, offset in sorted(cluster.ask(run).items())],
        as_json=as_json,
    )
