"""``splashdam elect-leaders``: give partitions back to their preferred leaders, or any leader at all."""

from __future__ import annotations

from collections.abc import Sequence

import click

from splashdam.cli.commands import OnceCommand
from splashdam.cli.connecting import Cluster, chosen_partitions, on_cluster
from splashdam.cli.output import print_listing
from splashdam.cli.parameters import exclusive, json_option, partition_list, yes_option
from splashdam.model.broker_errors import BrokerResponseError, ErrorCode
from splashdam.model.values import TopicPartition
from splashdam.net.admin.elections import Election
from splashdam.net.admin.elections import elect_leaders as elect
from splashdam.net.cluster.cluster_client import ClusterClient


@click.command(
    "elect-leaders",
    cls=OnceCommand,
    example="""\
splashdam elect-leaders --all
splashdam elect-leaders orders:0,2 --unclean""",
)
@click.argument("wanted", metavar="[TOPIC[:N,…]]...", nargs=-1, type=partition_list)
@click.option("--all", "is_all", is_flag=True, help="All partitions that need it.")
@click.option(
    "--unclean",
    is_flag=True,
    help="Where no replica in sync is alive, let another one lead: records that it lacks are lost.",
)
@yes_option
@json_option
@exclusive("wanted", "is_all")
@exclusive("is_all", "unclean")
@on_cluster
def elect_leaders(
    cluster: Cluster,
    *,
    wanted: Sequence[tuple[str, tuple[int, ...]]],
    is_all: bool,
    unclean: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Elect the preferred leaders of partitions: their first replicas, if these are in sync.

    Partitions that need no election are left out. The status is 1 if one has no new leader.
    """
    if not wanted and not is_all:
        raise click.UsageError("name partitions, or give --all")
    if unclean and not yes:
        click.confirm("Elect leaders that may lack records?", abort=True, err=True)

    async def run(client: ClusterClient) -> dict[TopicPartition, BrokerResponseError | None]:
        asked = None if is_all else await chosen_partitions(client, wanted)
        return await elect(client, Election.UNCLEAN if unclean else Election.PREFERRED, asked)

    found = cluster.ask(run)
    print_listing(
        ("topic", "partition", "result"),
        [
            (where.topic, where.partition, "elected" if error is None else ErrorCode(error.code).name)
            for where, error in sorted(found.items())
        ],
        as_json=as_json,
    )
    if not found:
        click.echo("no partition needs an election", err=True)
    if any(found.values()):
        raise click.exceptions.Exit(1)
