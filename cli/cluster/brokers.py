"""``splashdam brokers``: the brokers of a cluster."""

from __future__ import annotations

import click

from splashdam.cli.commands import OnceCommand
from splashdam.cli.connecting import Cluster, on_cluster
from splashdam.cli.output import print_listing
from splashdam.cli.parameters import json_option
from splashdam.model.cluster import ClusterMetadata
from splashdam.net.cluster.cluster_client import ClusterClient


@click.command(cls=OnceCommand, example="splashdam brokers -b kafka.example.com:9092 --json")
@json_option
@on_cluster
def brokers(cluster: Cluster, *, as_json: bool) -> None:
    """List the brokers of a cluster, with the addresses that they give to clients.

    The controller is the broker that a cluster names for administrative requests; with KRaft, any of them.
    """

    async def run(client: ClusterClient) -> ClusterMetadata:
        return await client.cluster(())

    found = cluster.ask(run)
    print_listing(
        ("broker", "host", "port", "rack", "controller"),
        [
            (each.node_id, each.host, each.port, each.rack, each.node_id == found.controller_id)
            for _, each in sorted(found.nodes.items())
        ],
        as_json=as_json,
    )
