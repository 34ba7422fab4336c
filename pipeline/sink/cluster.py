"""The sink's questions to its cluster: about transactions, and to the topic of decisions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

from splashdam.model.values import IsolationLevel
from splashdam.net.cluster.cluster_client import ClusterClient
from splashdam.net.cluster.fetch_client import FetchClient
from splashdam.pipeline.clusters import ClusterConfig, ClusterReader, reader_for
from splashdam.pipeline.sink.options import SinkOptions

T = TypeVar("T")
I = TypeVar("I")  # noqa: E741  # an item


class Clients(NamedTuple):
    """Who asks.

    Attributes:
        cluster: for coordinators and topics.
        fetch: for records, of committed transactions alone.
    """

    cluster: ClusterClient
    fetch: FetchClient


def ask(options: SinkOptions, question: Callable[[Clients], Awaitable[T]]) -> T:
    """What a question makes of the cluster's answers, over connections that this process keeps. Blocks.

    Raises:
        KafkaError: as the question does.
    """
    return _reader(options).ask(lambda cluster, fetch: question(Clients(cluster, fetch)))


def ask_for_each(
    options: SinkOptions, items: Sequence[I], question: Callable[[ClusterClient, I], Awaitable[T]]
) -> list[T]:
    """The answers to a question about each item, in their order; some are asked at once. Blocks.

    Raises:
        KafkaError: as the first question that fails.
    """
    return _reader(options).ask_for_each(items, question)


def _reader(options: SinkOptions) -> ClusterReader:
    return reader_for(ClusterConfig.from_options(dict(options.properties)), IsolationLevel.READ_COMMITTED)
