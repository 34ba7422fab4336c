"""Create topics for tests, over the protocol, so that it works with one broker and with a cluster."""

from __future__ import annotations

from splashdam.net.addresses import parse_bootstrap_servers
from splashdam.net.admin import topics
from splashdam.net.clock import SystemClock
from splashdam.net.cluster.cluster_client import open_cluster_client
from splashdam.net.connect import TcpConnect
from splashdam.net.run import run_in_trio


def create_topic(bootstrap_servers: str, name: str, partitions: int = topics.DEFAULT) -> None:
    """Create a topic and return once it exists. Not for use in a trio loop.

    Args:
        bootstrap_servers: addresses of brokers without TLS and SASL.
        name: of the topic.
        partitions: number of partitions; by default the cluster's ``num.partitions``. The replication factor
            is the cluster's default, too.

    Raises:
        BrokerResponseError: the cluster refuses the topic; the message says why.
        KafkaTimeoutError: the cluster did not answer.
    """

    async def create() -> None:
        async with open_cluster_client(
            parse_bootstrap_servers(bootstrap_servers), connect=TcpConnect(), clock=SystemClock()
        ) as client:
            await topics.create_topic(client, name, partitions=partitions)

    run_in_trio(create)
