"""``splashdam topics``: create, list, describe, alter and delete topics of any cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from time import time
from typing import NamedTuple

import click

from splashdam.cli.commands import OnceGroup
from splashdam.cli.connecting import Cluster, on_cluster, on_cluster_or_new_directory
from splashdam.cli.output import counted, print_json, print_line, print_listing, shown_age, shown_bytes
from splashdam.cli.parameters import Command, exclusive, json_option, pairs, topic_argument, yes_option
from splashdam.model.broker_errors import BrokerResponseError, ErrorCode
from splashdam.model.cluster import PartitionInfo, TopicInfo
from splashdam.model.values import TopicPartition
from splashdam.net.admin.configs import ConfigValue, Resource, alter_configs, describe_configs
from splashdam.net.admin.log_dirs import describe_log_dirs
from splashdam.net.admin.topics import (
    DEFAULT,
    create_partitions,
    create_topic,
    delete_topic,
    describe_topic,
    list_offsets,
    list_topics,
    newest_timestamps,
)
from splashdam.net.cluster.cluster_client import ClusterClient
from splashdam.net.cluster.fetch_client import EARLIEST, LATEST
from splashdam.storage.directories.partition_metadata import format_uuid
from splashdam.storage.topic_names import INTERNAL_TOPICS


def _config_option(what: str) -> Callable[[Command], Command]:
    return click.option(
        "-c", "--topic-config", "configs", metavar="NAME=VALUE", multiple=True, callback=pairs, help=what
    )


@click.group(cls=OnceGroup)
def topics() -> None:
    """Manage topics of a cluster, or of the broker in a directory (``-b embedded:DIR``)."""


@topics.command(example="splashdam topics create orders --partitions 6 -c retention.ms=3600000")
@topic_argument
@click.option(
    "--partitions",
    type=click.IntRange(1),
    metavar="N",
    help="Number of partitions. Default: the cluster's num.partitions.",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1),
    metavar="N",
    help="Replicas of each partition. Default: the cluster's default.replication.factor.",
)
@_config_option("A configuration of the topic, for example retention.ms=3600000. Repeatable.")
@click.option("--if-not-exists", is_flag=True, help="Leave a topic that exists as it is.")
@on_cluster_or_new_directory
def create(
    cluster: Cluster,
    *,
    topic: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: Mapping[str, str],
    if_not_exists: bool,
) -> None:
    """Create TOPIC."""

    async def run(client: ClusterClient) -> bool:
        try:
            await create_topic(
                client,
                topic,
                partitions=partitions or DEFAULT,
                replication_factor=replication_factor or DEFAULT,
                configs=configs,
            )
        except BrokerResponseError as error:
            if not (if_not_exists and error.code == ErrorCode.TOPIC_ALREADY_EXISTS):
                raise
            return False
        return True

    print_line(f"created {topic}" if cluster.ask(run) else f"{topic} exists")


class TopicSize(NamedTuple):
    """A line of ``topics list``; None stands for what the cluster did not tell.

    Attributes:
        name: of the topic.
        partitions: their number.
        records: offsets between beginning and end of all partitions.
        size_bytes: of the leaders' segments.
        newest_ms: largest timestamp; None without records.
    """

    name: str
    partitions: int
    records: int
    size_bytes: int | None
    newest_ms: int | None


@topics.command(name="list", example="splashdam topics list --json")
@click.option("--internal", is_flag=True, help="Include internal topics.")
@click.option("--names", "is_names", is_flag=True, help="Print the names alone, one a line.")
@json_option
@exclusive("is_names", "as_json")
@on_cluster
def list_(cluster: Cluster, *, internal: bool, is_names: bool, as_json: bool) -> None:
    """List all topics: number of partitions, of records, bytes on disk, and the time of the newest record.

    Records are counted by offsets: compaction and transactions leave gaps, which count. Partitions without a
    leader count as empty.
    """

    async def names(client: ClusterClient) -> list[str]:
        return [name for name in await list_topics(client) if internal or name not in INTERNAL_TOPICS]

    async def sizes(client: ClusterClient) -> list[TopicSize]:
        existing = sorted((await client.cluster(None)).topics.items())
        found = [topic for name, topic in existing if internal or name not in INTERNAL_TOPICS]
        known = await _sizes(client, [each for topic in found for each in topic.partitions])
        return [_topic_size(topic, [known[each] for each in _leading(topic.partitions)]) for topic in found]

    if is_names:
        for name in cluster.ask(names):
            print_line(name)
        return
    now_ms = int(time() * 1000)
    print_listing(
        ("topic", "partitions", "records", "bytes", "newest"),
        [
            (
                each.name,
                each.partitions,
                each.records,
                shown_bytes(each.size_bytes),
                shown_age(each.newest_ms, now_ms),
            )
            for each in cluster.ask(sizes)
        ],
        as_json=as_json,
    )


def _topic_size(topic: TopicInfo, partitions: Sequence[PartitionSize]) -> TopicSize:
    sizes = [each.size_bytes for each in partitions if each.size_bytes is not None]
    return TopicSize(
        topic.name,
        len(topic.partitions),
        sum(each.records for each in partitions),
        sum(sizes) if len(sizes) == len(partitions) else None,
        max((each.newest_ms for each in partitions if each.newest_ms is not None), default=None),
    )


class PartitionSize(NamedTuple):
    """What a partition holds; None stands for what the cluster did not tell."""

    earliest: int
    latest: int
    size_bytes: int | None
    newest_ms: int | None

    @property
    def records(self) -> int:
        """Offsets between beginning and end."""
        return self.latest - self.earliest


def _leading(partitions: Iterable[PartitionInfo]) -> list[TopicPartition]:
    return [TopicPartition(each.topic, each.partition) for each in partitions if each.leader >= 0]


async def _sizes(
    client: ClusterClient, partitions: Sequence[PartitionInfo]
) -> dict[TopicPartition, PartitionSize]:
    """Return what each partition with a leader holds."""
    asked = _leading(partitions)
    leaders = {TopicPartition(each.topic, each.partition): each.leader for each in partitions}
    earliest, latest = await list_offsets(client, asked, EARLIEST), await list_offsets(client, asked, LATEST)
    newest = await newest_timestamps(client, asked)
    sizes: dict[TopicPartition, int] = {}
    with suppress(BrokerResponseError):  # it needs a permission for the cluster, the rest only for topics
        for directory in await describe_log_dirs(client, asked) if asked else ():
            for replica in directory.replicas:
                if leaders.get(replica.topic_partition) == directory.broker_id and not replica.is_future:
                    sizes[replica.topic_partition] = replica.size_bytes
    return {
        each: PartitionSize(
            earliest[each],
            latest[each],
            sizes.get(each),
            newest[each] if newest[each] >= 0 else None,
        )
        for each in asked
    }


@topics.command(example="splashdam topics describe orders --all-configs")
@topic_argument
@click.option("--all-configs", is_flag=True, help="Include configurations that have their defaults.")
@json_option
@on_cluster
def describe(cluster: Cluster, *, topic: str, all_configs: bool, as_json: bool) -> None:
    """Show the partitions of TOPIC with their offsets and replicas, and its configurations."""

    async def run(
        client: ClusterClient,
    ) -> tuple[TopicInfo, dict[str, ConfigValue], dict[TopicPartition, PartitionSize]]:
        found = await describe_topic(client, topic)
        configs = await describe_configs(client, Resource.TOPIC, topic)
        return found, configs, await _sizes(client, found.partitions)

    found, configs, sizes = cluster.ask(run)
    shown = {name: each for name, each in sorted(configs.items()) if all_configs or not each.is_default}
    now_ms = int(time() * 1000)
    rows = [
        _described(each, sizes.get(TopicPartition(topic, each.partition)), now_ms)
        for each in found.partitions
    ]
    if as_json:
        print_json(
            {
                "topic": topic,
                "id": format_uuid(found.topic_id),
                "partitions": [dict(zip(_PARTITION_COLUMNS, row, strict=True)) for row in rows],
                "configs": {name: each.value for name, each in shown.items()},
            }
        )
        return
    print_line(f"{topic}, id {format_uuid(found.topic_id)}, {counted(len(found.partitions), 'partition')}")
    print_listing(_PARTITION_COLUMNS, rows, as_json=False)
    for name, each in shown.items():
        print_line(f"{name}={'(secret)' if each.value is None else each.value}")


_PARTITION_COLUMNS = (
    *("partition", "earliest", "latest", "bytes", "newest"),
    *("leader", "leader epoch", "replicas", "in sync"),
)


def _described(each: PartitionInfo, size: PartitionSize | None, now_ms: int) -> tuple[object, ...]:
    return (
        each.partition,
        None if size is None else size.earliest,
        None if size is None else size.latest,
        shown_bytes(None if size is None else size.size_bytes),
        shown_age(None if size is None else size.newest_ms, now_ms),
        each.leader if each.leader >= 0 else None,
        each.leader_epoch,
        each.replicas,
        each.isr,
    )


@topics.command(example="splashdam topics alter orders --partitions 12 --unset retention.ms")
@topic_argument
@click.option(
    "--partitions", type=click.IntRange(1), metavar="N", help="New number of partitions; it cannot shrink."
)
@_config_option("A configuration to set. Repeatable.")
@click.option(
    "--unset",
    "unset",
    metavar="NAME",
    multiple=True,
    help="Reset this configuration to its default; repeatable.",
)
@on_cluster
def alter(
    cluster: Cluster,
    *,
    topic: str,
    partitions: int | None,
    configs: Mapping[str, str],
    unset: Sequence[str],
) -> None:
    """Add partitions to TOPIC, or change its configurations."""
    if partitions is None and not configs and not unset:
        raise click.UsageError("nothing to alter: give --partitions, --topic-config or --unset")
    for name in configs.keys() & set(unset):
        raise click.UsageError(f"--topic-config {name}={configs[name]} contradicts --unset {name}")

    async def run(client: ClusterClient) -> None:
        # Configurations first: a refused value leaves the topic as it was, but partitions cannot be taken
        # back.
        if configs or unset:
            await alter_configs(client, Resource.TOPIC, topic, changes=configs, delete=unset)
        if partitions is not None:
            await create_partitions(client, topic, partitions)

    cluster.ask(run)
    print_line(f"altered {topic}")


@topics.command(example="splashdam topics delete orders --yes")
@topic_argument
@yes_option
@on_cluster
def delete(cluster: Cluster, *, topic: str, yes: bool) -> None:
    """Delete TOPIC with all its records."""
    if not yes:
        click.confirm(f"Delete {topic} and all its records?", abort=True, err=True)

    async def run(client: ClusterClient) -> None:
        await delete_topic(client, topic)

    cluster.ask(run)
    print_line(f"deleted {topic}")
