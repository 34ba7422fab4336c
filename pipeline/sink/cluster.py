"""The sink's questions to its cluster: about transactions, and to the topic of decisions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

import trio

from splashdam.client.settings_rules import producer_settings
from splashdam.client.wiring import authenticator, make_tcp_connect, secured
from splashdam.model.values import IsolationLevel
from splashdam.net.addresses import parse_bootstrap_servers
from splashdam.net.clock import SystemClock
from splashdam.net.cluster_client import ClusterClient, ClusterClientSettings, open_cluster_client
from splashdam.net.fetch_client import FetchClient, FetchSettings, open_fetch_client
from splashdam.pipeline.sink.options import SinkOptions

T = TypeVar("T")

_CLIENT_ID = "splashdam-spark-sink"


class Clients(NamedTuple):
    """Who asks.

    Attributes:
        cluster: for coordinators and topics.
        fetch: for records, of committed transactions alone.
    """

    cluster: ClusterClient
    fetch: FetchClient


def ask(options: SinkOptions, task: Callable[[Clients], Awaitable[T]]) -> T:
    """What a task makes of the cluster's answers. Blocks; connections last as long as the task.

    Raises:
        KafkaError: as the task does.
    """
    settings = producer_settings(options.producer_options())
    addresses = parse_bootstrap_servers(settings.bootstrap_servers)
    clock, connect = SystemClock(), secured(settings, make_tcp_connect(settings))
    who = authenticator(settings)

    async def run() -> T:
        async with (
            open_cluster_client(
                addresses,
                connect=connect,
                clock=clock,
                settings=ClusterClientSettings(client_id=_CLIENT_ID),
                authenticator=who,
            ) as cluster,
            open_fetch_client(
                addresses,
                connect=connect,
                clock=clock,
                settings=FetchSettings(client_id=_CLIENT_ID, isolation_level=IsolationLevel.READ_COMMITTED),
                authenticator=who,
            ) as fetch,
        ):
            return await task(Clients(cluster, fetch))

    return trio.run(run)
