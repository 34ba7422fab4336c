"""A user's own cluster as the destination: a topic whose end offsets count the records."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import attrs
import trio

from splashdam.cli.connecting import Cluster
from splashdam.model.broker_errors import UnknownTopicOrPartitionError
from splashdam.model.errors import KafkaTimeoutError
from splashdam.model.values import TopicPartition
from splashdam.net.admin.topics import create_topic, delete_topic, list_offsets
from splashdam.net.cluster.cluster_client import ClusterClient
from splashdam.net.cluster.fetch_client import LATEST

_TIMEOUT_MS = 30_000
_PAUSE_SECONDS = 0.1
_CLIENT_ID = "splashdam-bench"


@attrs.define
class BenchTopic:
    """A topic on a cluster, and the number of its records when the measurement began."""

    cluster: Cluster
    bootstrap: str
    topic: str
    partitions: int
    before: int = 0

    def counts(self) -> dict[str, int]:
        """Return how many records have arrived since the beginning, by the end offsets."""
        return {"records": self.end() - self.before}

    def end(self) -> int:
        """Return the sum of the end offsets of all partitions."""
        return self.cluster.ask(self._end)

    def wait_until_known(self) -> None:
        """Wait until the brokers' metadata have the new topic.

        Raises:
            KafkaTimeoutError: they do not have it after half a minute.
        """
        self.cluster.ask(self._known)

    async def _known(self, client: ClusterClient) -> None:
        with trio.move_on_after(_TIMEOUT_MS / 1000):
            while True:
                try:
                    await self._end(client)
                except UnknownTopicOrPartitionError:
                    await trio.sleep(_PAUSE_SECONDS)
                else:
                    return
        raise KafkaTimeoutError(
            f"topic {self.topic!r} was created, but {_TIMEOUT_MS} ms later the brokers do not know it"
        )

    async def _end(self, client: ClusterClient) -> int:
        partitions = [TopicPartition(self.topic, number) for number in range(self.partitions)]
        return sum((await list_offsets(client, partitions, LATEST)).values())

    @contextmanager
    def opened(self) -> Iterator[BenchTopic]:
        """Yield the topic for one measurement, whose count begins at zero."""
        self.before = self.end()
        yield self


@contextmanager
def bench_topic(
    cluster: Cluster, bootstrap: str, partitions: int, replication_factor: int
) -> Iterator[BenchTopic]:
    """Create a topic with a random name, and delete it at the end, also after Ctrl-C.

    Args:
        cluster: for the requests.
        bootstrap: its addresses, for the processes that send.
        partitions: their number.
        replication_factor: -1 for the cluster's default.

    Raises:
        KafkaError: the cluster cannot be reached, or refuses the topic.
    """
    cluster = cluster._replace(client_id=_CLIENT_ID)
    topic = f"splashdam-bench-{secrets.token_hex(4)}"
    cluster.ask(
        partial(create_topic, topic=topic, partitions=partitions, replication_factor=replication_factor)
    )
    try:
        made = BenchTopic(cluster._replace(timeout_ms=_TIMEOUT_MS), bootstrap, topic, partitions)
        # A created topic takes a moment to reach every broker; the first client must not pay for it.
        made.wait_until_known()
        yield made
    finally:
        cluster.ask(partial(delete_topic, topic=topic))
