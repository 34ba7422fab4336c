"""``splashdam transactions``: list and describe transactions, and end those that nobody ends."""

from __future__ import annotations

from collections.abc import Sequence
from time import time

import click

from splashdam.cli.commands import OnceGroup
from splashdam.cli.connecting import Cluster, on_cluster
from splashdam.cli.output import print_json, print_line, print_listing, shown_age
from splashdam.cli.parameters import json_option, topic_argument, yes_option
from splashdam.model.broker_errors import ErrorCode, error_for
from splashdam.model.values import TopicPartition
from splashdam.net.admin.transactions import (
    DescribedTransaction,
    ListedTransaction,
    abort_hanging_transaction,
    describe_transaction,
    fence_transactional_id,
    list_transactions,
)
from splashdam.net.cluster.cluster_client import ClusterClient


@click.group(cls=OnceGroup)
def transactions() -> None:
    """Look into the transactions of a cluster, and end those that nobody ends."""


@transactions.command(name="list", example="splashdam transactions list --state Ongoing")
@click.option("--state", "states", metavar="STATE", multiple=True, help="Only in this state; repeatable.")
@json_option
@on_cluster
def list_(cluster: Cluster, *, states: Sequence[str], as_json: bool) -> None:
    """List the transactional ids, their states and coordinators."""

    async def run(client: ClusterClient) -> list[ListedTransaction]:
        return await list_transactions(client, states)

    print_listing(
        ("transactional id", "state", "producer id", "coordinator"),
        [tuple(each) for each in cluster.ask(run)],
        as_json=as_json,
    )


@transactions.command(example="splashdam transactions describe payments-1 --json")
@click.argument("transactional_id")
@json_option
@on_cluster
def describe(cluster: Cluster, *, transactional_id: str, as_json: bool) -> None:
    """Show the state of TRANSACTIONAL_ID, and the partitions of its open transaction."""

    async def run(client: ClusterClient) -> DescribedTransaction:
        return await describe_transaction(client, transactional_id)

    found = cluster.ask(run)
    if not found.state:
        raise click.ClickException(
            str(error_for(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"transactional id {transactional_id!r}"))
        )
    start = shown_age(found.start_ms if found.start_ms >= 0 else None, int(time() * 1000))
    if as_json:
        print_json(
            {
                "transactional id": transactional_id,
                "state": found.state,
                "producer id": found.producer_id,
                "epoch": found.producer_epoch,
                "start": start,
                "timeout ms": found.timeout_ms,
                "partitions": [str(each) for each in found.partitions],
            }
        )
        return
    began = f", began {start.text}" if start.value is not None else ""
    print_line(
        f"{transactional_id}: {found.state}{began}, producer id {found.producer_id}, epoch"
        f" {found.producer_epoch},"
        f" timeout {found.timeout_ms} ms"
    )
    for each in found.partitions:
        print_line(str(each))


@transactions.command(example="splashdam transactions fence payments-1 --yes")
@click.argument("transactional_id")
@yes_option
@on_cluster
def fence(cluster: Cluster, *, transactional_id: str, yes: bool) -> None:
    """Abort the open transaction of TRANSACTIONAL_ID, and lock its present producer out."""
    if not yes:
        click.confirm(
            f"Abort the transaction of {transactional_id} and fence its producer?", abort=True, err=True
        )

    async def run(client: ClusterClient) -> None:
        await fence_transactional_id(client, transactional_id)

    cluster.ask(run)
    print_line(f"fenced {transactional_id}")


@transactions.command(example="splashdam transactions abort orders --partition 0 --start-offset 1234 --yes")
@topic_argument
@click.option("--partition", type=click.IntRange(0), metavar="N", required=True, help="Partition of TOPIC.")
@click.option(
    "--start-offset",
    type=click.IntRange(0),
    metavar="N",
    required=True,
    help="Where the transaction begins there; `splashdam producers` tells.",
)
@yes_option
@on_cluster
def abort(cluster: Cluster, *, topic: str, partition: int, start_offset: int, yes: bool) -> None:
    """Abort a hanging transaction in one partition of TOPIC, one that its coordinator has forgotten."""
    where = TopicPartition(topic, partition)
    if not yes:
        click.confirm(f"Abort the transaction at offset {start_offset} of {where}?", abort=True, err=True)

    async def run(client: ClusterClient) -> int:
        return await abort_hanging_transaction(client, where, start_offset)

    print_line(f"aborted the transaction of producer id {cluster.ask(run)} in {where}")
