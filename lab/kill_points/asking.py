"""One question to a cluster, for programs without an event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from splashdam.net.addresses import parse_bootstrap_servers
from splashdam.net.clock import SystemClock
from splashdam.net.cluster.cluster_client import ClusterClient, ClusterClientSettings, open_cluster_client
from splashdam.net.connect import TcpConnect

T = TypeVar("T")
_SETTINGS = ClusterClientSettings(request_timeout_ms=5_000, timeout_ms=3_000)


def ask(address: str, question: Callable[[ClusterClient], Awaitable[T]]) -> T:
    """Ask, and return the answer.

    Args:
        address: the bootstrap servers.
        question: gets a client of the cluster.

    Raises:
        KafkaError: nobody answered within seconds, or the broker refused.
    """
    clock = SystemClock()

    async def run() -> T:
        servers = parse_bootstrap_servers(address)
        async with open_cluster_client(
            servers, connect=TcpConnect(), clock=clock, settings=_SETTINGS
        ) as client:
            return await question(client)

    return trio.run(run, clock=clock)
