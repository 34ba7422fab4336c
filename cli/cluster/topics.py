"""``splashdam topics``: create, list, describe, alter and delete topics of any cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import click

from splashdam.cli.commands import OnceGroup
from splashdam.cli.connecting import Cluster, on_cluster
from splashdam.cli.output import counted, print_table
from splashdam.cli.parameters import Command, pairs, topic_argument
from splashdam.model.broker_errors import BrokerResponseError, ErrorCode
from splashdam.net.admin.configs import ConfigValue, Resource, alter_configs, describe_configs
from splashdam.net.admin.topics import (
    DEFAULT,
    create_partitions,
    create_topic,
    delete_topic,
    describe_topic,
    list_topics,
)
from splashdam.net.cluster.cluster_client import ClusterClient
from splashdam.storage.directories.partition_metadata import format_uuid
from splashdam.storage.topic_names import INTERNAL_TOPICS


def _config_option(what: str) -> Callable[[Command], Command]:
    return click.option(
        "-c", "--topic-config", "configs", metavar="NAME=VALUE", multiple=True, callback=pairs, help=what
    )


@click.group(cls=OnceGroup, short_help="Create, list, describe, alter and delete topics.")
def topics() -> None:
    """Manage topics of a cluster, or of the broker in a directory (``-b embedded:DIR``)."""


@topics.command()
@topic_argument
@click.option(
    "--partitions",
    type=click.IntRange(1),
    help="Number of partitions. Default: the cluster's num.partitions.",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1),
    help="Replicas of each partition. Default: the cluster's default.replication.factor.",
)
@_config_option("A configuration of the topic, for example retention.ms=3600000. Repeatable.")
@click.option("--if-not-exists", is_flag=True, help="Leave a topic that exists as it is.")
@partial(on_cluster, may_be_new=True)
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

    click.echo(f"created {topic}" if cluster.ask(run) else f"{topic} exists")


@topics.command(name="list")
@click.option("--internal", is_flag=True, help="Include internal topics.")
@on_cluster
def list_(cluster: Cluster, *, internal: bool) -> None:
    """List the names of all topics, one a line."""
    for name in cluster.ask(list_topics):
        if internal or name not in INTERNAL_TOPICS:
            click.echo(name)


@topics.command()
@topic_argument
@click.option("--all-configs", is_flag=True, help="Include configurations that have their defaults.")
@on_cluster
def describe(cluster: Cluster, *, topic: str, all_configs: bool) -> None:
    """Show the partitions of TOPIC, their replicas, and its configurations."""

    async def run(client: ClusterClient) -> tuple[Any, dict[str, ConfigValue]]:
        return await describe_topic(client, topic), await describe_configs(client, Resource.TOPIC, topic)

    found, configs = cluster.ask(run)
    click.echo(f"{topic}, id {format_uuid(found.topic_id)}, {counted(len(found.partitions), 'partition')}")
    print_table(
        ("partition", "leader", "leader epoch", "replicas", "in sync"),
        [
            (
                each.partition,
                each.leader if each.leader >= 0 else "none",
                each.leader_epoch,
                ", ".join(map(str, each.replicas)),
                ", ".join(map(str, each.isr)),
            )
            for each in found.partitions
        ],
    )
    shown = {name: each for name, each in sorted(configs.items()) if all_configs or not each.is_default}
    for name, each in shown.items():
        click.echo(f"{name}={'(secret)' if each.value is None else each.value}")


@topics.command()
@topic_argument
@click.option("--partitions", type=click.IntRange(1), help="New number of partitions; it cannot shrink.")
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
    click.echo(f"altered {topic}")


@topics.command()
@topic_argument
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@on_cluster
def delete(cluster: Cluster, *, topic: str, yes: bool) -> None:
    """Delete TOPIC with all its records."""
    if not yes:
        click.confirm(f"Delete {topic} and all its records?", abort=True, err=True)

    async def run(client: ClusterClient) -> None:
        await delete_topic(client, topic)

    cluster.ask(run)
    click.echo(f"deleted {topic}")
