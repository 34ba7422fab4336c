"""Topics for tests, made by Kafka's protocol, so that one broker and several are asked alike."""

from __future__ import annotations

import trio

from splashdam.net.addresses import parse_bootstrap_servers
from splashdam.net.admin import topics
from splashdam.net.clock import SystemClock
from splashdam.net.cluster.cluster_client import open_cluster_client
from splashdam.net.connect import TcpConnect


def create_topic(bootstrap_servers: str, name: str, partitions: int = topics.DEFAULT) -> None:
    """Makes a topic; returns once it is there. Not from inside a trio loop.

    Args:
        bootstrap_servers: addresses of brokers that ask for no password.
        name: of the topic.
        partitions: how many; by default as the cluster's settings say, as the replicas are.

    Raises:
        BrokerResponseError: the cluster refuses the topic; the text says why.
        KafkaTimeoutError: it did not answer.
    """

    async def create() -> None:
        async with open_cluster_client(
            parse_bootstrap_servers(bootstrap_servers), connect=TcpConnect(), clock=SystemClock()
        ) as client:
            await topics.create_topic(client, name, partitions=partitions)

    trio.run(create)
