"""``splashdam log-dirs``: the log directories of brokers, and how large the partitions in them are."""

from __future__ import annotations

from collections.abc import Sequence

import click

from splashdam.cli.commands import OnceCommand
from splashdam.cli.connecting import Cluster, chosen_partitions, on_cluster
from splashdam.cli.output import print_listing, shown_bytes
from splashdam.cli.parameters import json_option
from splashdam.net.admin.log_dirs import LogDirDescription, describe_log_dirs
from splashdam.net.cluster.cluster_client import ClusterClient


@click.command(
    "log-dirs",
    cls=OnceCommand,
    example="""\
splashdam log-dirs
splashdam log-dirs --partitions --topic orders --json""",
)
@click.option(
    "--broker", "brokers", type=click.IntRange(0), metavar="ID", multiple=True, help="Only this; repeatable."
)
@click.option(
    "--topic", "topics", metavar="TOPIC", multiple=True, help="Only replicas of this topic; repeatable."
)
@click.option("--partitions", "has_partitions", is_flag=True, help="A line for each replica.")
@json_option
@on_cluster
def log_dirs(
    cluster: Cluster,
    *,
    brokers: Sequence[int],
    topics: Sequence[str],
    has_partitions: bool,
    as_json: bool,
) -> None:
    """List the log directories of brokers: how much is in them, and how much space is left."""

    async def run(client: ClusterClient) -> list[LogDirDescription]:
        asked = None
        if topics:
            asked = await chosen_partitions(client, [(name, ()) for name in topics])
        found = await describe_log_dirs(client, asked)
        return [each for each in found if not brokers or each.broker_id in brokers]

    found = cluster.ask(run)
    if has_partitions:
        print_listing(
            ("broker", "directory", "topic", "partition", "bytes", "lag", "is future"),
            [
                (
                    each.broker_id,
                    each.path,
                    replica.topic_partition.topic,
                    replica.topic_partition.partition,
                    shown_bytes(replica.size_bytes),
                    replica.offset_lag,
                    replica.is_future,
                )
                for each in found
                for replica in each.replicas
            ],
            as_json=as_json,
        )
        return
    print_listing(
        ("broker", "directory", "partitions", "bytes", "usable bytes", "total bytes", "error"),
        [
            (
                each.broker_id,
                each.path,
                len(each.replicas),
                shown_bytes(sum(replica.size_bytes for replica in each.replicas)),
                shown_bytes(each.usable_bytes if each.usable_bytes >= 0 else None),
                shown_bytes(each.total_bytes if each.total_bytes >= 0 else None),
                each.error,
            )
            for each in found
        ],
        as_json=as_json,
    )
