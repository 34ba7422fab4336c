"""``splashdam producers``: the producers that partitions know."""

from __future__ import annotations

from collections.abc import Sequence
from time import time

import click

from splashdam.cli.commands import OnceCommand
from splashdam.cli.connecting import Cluster, chosen_partitions, on_cluster
from splashdam.cli.output import print_listing, shown_age
from splashdam.cli.parameters import json_option, partition_list
from splashdam.model.values import TopicPartition
from splashdam.net.admin.producers import ActiveProducer, describe_producers
from splashdam.net.cluster.cluster_client import ClusterClient


@click.command(cls=OnceCommand, example="splashdam producers orders:0")
@click.argument("wanted", metavar="TOPIC[:N,…]...", nargs=-1, required=True, type=partition_list)
@json_option
@on_cluster
def producers(cluster: Cluster, *, wanted: Sequence[tuple[str, tuple[int, ...]]], as_json: bool) -> None:
    """List the idempotent and transactional producers that partitions of TOPICs know.

    One with a transaction start has an open transaction there. If its coordinator does not know it
    (`splashdam transactions list`), it hangs, and read_committed consumers wait for it: `splashdam
    transactions abort`.
    """

    async def run(client: ClusterClient) -> dict[TopicPartition, list[ActiveProducer]]:
        return await describe_producers(client, await chosen_partitions(client, wanted))

    now_ms = int(time() * 1000)
    print_listing(
        (
            "topic",
            "partition",
            "producer id",
            "epoch",
            "last sequence",
            "last timestamp",
            "transaction start",
        ),
        [
            (
                where.topic,
                where.partition,
                each.producer_id,
                each.producer_epoch,
                each.last_sequence,
                shown_age(each.last_timestamp_ms if each.last_timestamp_ms >= 0 else None, now_ms),
                each.txn_start_offset if each.txn_start_offset >= 0 else None,
            )
            for where, found in sorted(cluster.ask(run).items())
            for each in found
        ],
        as_json=as_json,
    )
