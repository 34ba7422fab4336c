"""A single request to a cluster, for programs without an event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from lab.trio_runs import run_interruptible
from splashdam.net.addresses import parse_bootstrap_servers
from splashdam.net.clock import SystemClock
from splashdam.net.cluster.cluster_client import ClusterClient, ClusterClientSettings, open_cluster_client
from splashdam.net.connect import TcpConnect

T = TypeVar("T")
_SETTINGS = ClusterClientSettings(request_timeout_ms=5_000, timeout_ms=1_000)


def ask(address: str, question: Callable[[ClusterClient], Awaitable[T]]) -> T:
    """Open a client, send the request, and return the result.

    Args:
        address: the bootstrap servers.
        question: gets the client, and sends the request.

    Raises:
        KafkaError: there was no answer within a few seconds, or the broker refused.
    """
    clock = SystemClock()

    async def run() -> T:
        servers = parse_bootstrap_servers(address)
        async with open_cluster_client(
            servers, connect=TcpConnect(), clock=clock, settings=_SETTINGS
        ) as client:
            return await question(client)

    return run_interruptible(run, clock=clock)
