"""splashdam as a client of the contract: its producer, its fetch client and its admin functions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from importlib.metadata import version
from typing import Any, TypeVar

import trio

from splashdam.client.producer import KafkaProducer
from splashdam.client.running.connecting import authenticator, secured
from splashdam.client.settings.rules import producer_settings
from splashdam.model.broker_errors import BrokerResponseError
from splashdam.model.transactions import OffsetAndMetadata
from splashdam.model.values import IsolationLevel, TopicPartition
from splashdam.net.addresses import parse_bootstrap_servers
from splashdam.net.admin import configs, groups, topics
from splashdam.net.clock import SystemClock
from splashdam.net.cluster.cluster_client import ClusterClient, ClusterClientSettings, open_cluster_client
from splashdam.net.cluster.fetch_client import EARLIEST, LATEST, FetchClient, FetchSettings, open_fetch_client
from splashdam.net.connect import Connect, TcpConnect
from splashdam.net.connection.connection import Authenticator
from splashdam.net.run import run_in_trio
from splashdam.record.reader import Record
from splashdam.testing.contract.clients.in_process import (
    API_TIMEOUT_MS,
    CLIENT_ID,
    BlockingClient,
    cluster_facts,
    name_of_code,
)
from splashdam.testing.contract.vocabulary import Read, Replicas, read_args
from splashdam.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

T = TypeVar("T")

MAX_TIMESTAMP = -3
"""ListOffsets' timestamp for the record with the largest timestamp (KIP-734)."""

_ADMIN_SETTINGS = ClusterClientSettings(client_id=CLIENT_ID, timeout_ms=API_TIMEOUT_MS / 2)
_ISOLATION = {
    "read_uncommitted": IsolationLevel.READ_UNCOMMITTED,
    "read_committed": IsolationLevel.READ_COMMITTED,
}


class SplashdamClient(BlockingClient):
    """`KafkaProducer`, `FetchClient`, and `splashdam.net.admin`, each over connections of its own."""

    name = "splashdam"
    version = version("splashdam")

    def name_of(self, error: BaseException) -> str:
        cause: BaseException | None = error
        while cause is not None:  # the cause of a timeout is the broker's last refusal
            if isinstance(cause, BrokerResponseError):
                return name_of_code(cause.code)
            cause = cause.__cause__
        return super().name_of(error)

    def common(self) -> dict[str, Any]:
        """Return the options of every producer."""
        return {"bootstrap_servers": self.bootstrap_servers, "client_id": CLIENT_ID, **self.security}

    @cached_property
    def _way_in(self) -> tuple[Connect, Authenticator | None]:
        settings = producer_settings(self.common())
        return secured(settings, TcpConnect()), authenticator(settings)

    def producer(self, **options: Any) -> KafkaProducer:
        return KafkaProducer(**self.common(), **options)

    def send_offsets(self, producer: Any, group: str, topic: str, offset: int) -> None:
        producer.send_offsets_to_transaction({TopicPartition(topic, 0): offset}, group)

    def do_fetch(
        self, *, topic: str, partition: int, offset: int, count: int, isolation: str, timeout_ms: int
    ) -> list[dict[str, Any]]:
        """FetchClient.fetch."""

        async def fetch(client: FetchClient) -> list[dict[str, Any]]:
            records: list[Read] = []
            position = offset
            with trio.move_on_after(timeout_ms / 1000):
                while len(records) < count:
                    for news in await client.fetch(topic, {partition: position}):
                        position = news.next_offset
                        records += (_read(partition, each) for each in news.records)
            return [read_args(each) for each in records[:count]]

        return self._reading(fetch, isolation)

    def do_offsets(self, topic: str, partition: int, at: str | int) -> int:
        """FetchClient.offsets."""
        named = {"earliest": EARLIEST, "latest": LATEST, "max_timestamp": MAX_TIMESTAMP}
        timestamp = named[at] if isinstance(at, str) else at

        async def offsets(client: FetchClient) -> int:
            return (await client.offsets(topic, [partition], timestamp))[partition]

        return self._reading(offsets)

    def _reading(self, task: Callable[[FetchClient], Awaitable[T]], isolation: str = "read_uncommitted") -> T:
        settings = FetchSettings(
            client_id=CLIENT_ID,
            timeout_ms=API_TIMEOUT_MS / 2,
            max_wait_ms=100,
            isolation_level=_ISOLATION[isolation],
        )

        connect, authenticator_ = self._way_in

        async def run() -> T:
            async with open_fetch_client(
                parse_bootstrap_servers(self.bootstrap_servers),
                connect=connect,
                clock=SystemClock(),
                settings=settings,
                authenticator=authenticator_,
            ) as client:
                return await task(client)

        return run_in_trio(run)

    def do_create_topic(
        self,
        topic: str,
        partitions: int,
        replication_factor: int,
        configs: dict[str, str],
        validate_only: bool,
    ) -> None:
        """CreateTopics."""
        self.administer(
            lambda client: topics.create_topic(
                client,
                topic,
                partitions=partitions,
                replication_factor=replication_factor,
                configs=configs,
                validate_only=validate_only,
            )
        )

    def do_delete_topic(self, topic: str) -> None:
        """DeleteTopics."""
        self.administer(lambda client: topics.delete_topic(client, topic))

    def do_list_topics(self) -> list[str]:
        """Metadata of all topics."""
        return self.administer(topics.list_topics)

    def do_describe_topic(self, topic: str) -> list[dict[str, Any]]:
        """Metadata of one topic."""
        found = self.administer(lambda client: topics.describe_topic(client, topic))
        return [
            Replicas(each.partition, each.leader, tuple(each.replicas), tuple(each.isr))._asdict()
            for each in found.partitions
        ]

    def do_create_partitions(self, topic: str, count: int) -> None:
        """CreatePartitions."""
        self.administer(lambda client: topics.create_partitions(client, topic, count))

    def do_describe_configs(self, kind: str, name: str) -> dict[str, str | None]:
        """DescribeConfigs."""
        resource = configs.Resource[kind.upper()]
        found = self.administer(lambda client: configs.describe_configs(client, resource, name))
        return {key: each.value for key, each in found.items()}

    def do_alter_configs(
        self, kind: str, name: str, set: Mapping[str, str] | None = None, delete: Sequence[str] = ()
    ) -> None:
        """IncrementalAlterConfigs."""
        resource = configs.Resource[kind.upper()]
        self.administer(
            lambda client: configs.alter_configs(client, resource, name, changes=set, delete=delete)
        )

    def do_delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """DeleteRecords."""
        where = TopicPartition(topic, partition)
        return self.administer(lambda client: topics.delete_records(client, where, before_offset))

    def do_describe_cluster(self) -> dict[str, Any]:
        """DescribeCluster."""

        def facts(answer: DescribeClusterResponse) -> dict[str, Any]:
            brokers = [each.broker_id for each in answer.brokers]
            return cluster_facts(answer.cluster_id, answer.controller_id, brokers)

        return self.administer(lambda client: client.any(DescribeClusterRequest(), facts))

    def do_list_groups(self) -> list[str]:
        """ListGroups of every broker."""
        return [each.group_id for each in self.administer(groups.list_groups)]

    def do_delete_group(self, group: str) -> None:
        """DeleteGroups."""
        self.administer(lambda client: groups.delete_group(client, group))

    def do_committed(self, group: str, topic: str) -> dict[int, Any]:
        """OffsetFetch."""
        found = self.administer(lambda client: groups.committed_offsets(client, group))
        return {
            where.partition: (each.offset, each.metadata)
            for where, each in found.items()
            if where.topic == topic
        }

    def do_commit(self, group: str, topic: str, offsets: Mapping[str, Sequence[Any]]) -> None:
        """OffsetCommit by a client that is no member of the group."""
        wanted = {
            TopicPartition(topic, int(partition)): OffsetAndMetadata(offset, metadata)
            for partition, (offset, metadata) in offsets.items()
        }
        self.administer(lambda client: groups.commit_offsets(client, group, wanted))

    def do_delete_offsets(self, group: str, topic: str, partition: int) -> None:
        """OffsetDelete."""
        where = [TopicPartition(topic, partition)]
        self.administer(lambda client: groups.delete_offsets(client, group, where))

    def administer(self, task: Callable[[ClusterClient], Awaitable[T]]) -> T:
        """Run a task with a client of the cluster, and return its result."""

        connect, authenticator_ = self._way_in

        async def run() -> T:
            async with open_cluster_client(
                parse_bootstrap_servers(self.bootstrap_servers),
                connect=connect,
                clock=SystemClock(),
                settings=_ADMIN_SETTINGS,
                authenticator=authenticator_,
            ) as client:
                return await task(client)

        return run_in_trio(run)


def _read(partition: int, record: Record) -> Read:
    return Read(
        partition, record.offset, record.key, record.value, record.timestamp_ms, tuple(record.headers)
    )
