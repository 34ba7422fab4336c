"""What splashdam can do to a cluster, under contract: topics, configurations, groups and their offsets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import trio

from splashdam.model.broker_errors import BrokerResponseError
from splashdam.model.groups import OffsetAndMetadata
from splashdam.model.values import TopicPartition
from splashdam.net.addresses import parse_bootstrap_servers
from splashdam.net.admin import configs, groups, topics
from splashdam.net.clock import SystemClock
from splashdam.net.cluster.cluster_client import ClusterClient, ClusterClientSettings, open_cluster_client
from splashdam.net.connect import TcpConnect
from splashdam.testing.contract.clients.in_process import (
    API_TIMEOUT_MS,
    CLIENT_ID,
    InProcessClient,
    name_of_code,
)
from splashdam.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

T = TypeVar("T")

_SETTINGS = ClusterClientSettings(client_id=CLIENT_ID, timeout_ms=API_TIMEOUT_MS / 2)


class SplashdamAdmin(InProcessClient):
    """The operations of `splashdam.net.admin`, each over connections of its own."""

    def name_of(self, error: BaseException) -> str:
        cause: BaseException | None = error
        while cause is not None:  # a time-out says what it waited for
            if isinstance(cause, BrokerResponseError):
                return name_of_code(cause.code)
            cause = cause.__cause__
        return super().name_of(error)

    def _administer(self, task: Callable[[ClusterClient], Awaitable[T]]) -> T:
        async def run() -> T:
            async with open_cluster_client(
                parse_bootstrap_servers(self.bootstrap_servers),
                connect=TcpConnect(),
                clock=SystemClock(),
                settings=_SETTINGS,
            ) as client:
                return await task(client)

        return trio.run(run)

    def do_create_topic(
        self,
        topic: str,
        partitions: int,
        replication_factor: int,
        configs: dict[str, str],
        validate_only: bool,
    ) -> None:
        """CreateTopics."""
        self._administer(
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
        self._administer(lambda client: topics.delete_topic(client, topic))

    def do_list_topics(self) -> list[str]:
        """Metadata of all topics."""
        return self._administer(topics.list_topics)

    def do_describe_topic(self, topic: str) -> list[dict[str, Any]]:
        """Metadata of one topic."""
        found = self._administer(lambda client: topics.describe_topic(client, topic))
        return [
            {
                "partition": each.partition,
                "leader": each.leader,
                "replicas": each.replicas,
                "isr": each.isr,
            }
            for each in found.partitions
        ]

    def do_create_partitions(self, topic: str, count: int) -> None:
        """CreatePartitions."""
        self._administer(lambda client: topics.create_partitions(client, topic, count))

    def do_describe_configs(self, kind: str, name: str) -> dict[str, str | None]:
        """DescribeConfigs."""
        resource = configs.Resource[kind.upper()]
        found = self._administer(lambda client: configs.describe_configs(client, resource, name))
        return {key: each.value for key, each in found.items()}

    def do_alter_configs(
        self, kind: str, name: str, set: Mapping[str, str] | None = None, delete: Sequence[str] = ()
    ) -> None:
        """IncrementalAlterConfigs."""
        resource = configs.Resource[kind.upper()]
        self._administer(
            lambda client: configs.alter_configs(client, resource, name, changes=set, delete=delete)
        )

    def do_delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """DeleteRecords."""
        where = TopicPartition(topic, partition)
        return self._administer(lambda client: topics.delete_records(client, where, before_offset))

    def do_describe_cluster(self) -> dict[str, Any]:
        """DescribeCluster."""

        def facts(answer: DescribeClusterResponse) -> dict[str, Any]:
            return {
                "cluster_id": answer.cluster_id,
                "controller": answer.controller_id,
                "brokers": sorted(each.broker_id for each in answer.brokers),
            }

        return self._administer(lambda client: client.any(DescribeClusterRequest(), facts))

    def do_list_groups(self) -> list[str]:
        """ListGroups of every broker."""
        return [each.group_id for each in self._administer(groups.list_groups)]

    def do_delete_group(self, group: str) -> None:
        """DeleteGroups."""
        self._administer(lambda client: groups.delete_group(client, group))

    def do_committed(self, group: str, topic: str) -> dict[int, Any]:
        """OffsetFetch."""
        found = self._administer(lambda client: groups.committed_offsets(client, group))
        return {
            where.partition: (each.offset, each.metadata)
            for where, each in found.items()
            if where.topic == topic
        }

    def do_commit(self, group: str, topic: str, offsets: Mapping[str, Sequence[Any]]) -> None:
        """OffsetCommit from outside of the group."""
        wanted = {
            TopicPartition(topic, int(partition)): OffsetAndMetadata(offset, metadata)
            for partition, (offset, metadata) in offsets.items()
        }
        self._administer(lambda client: groups.commit_offsets(client, group, wanted))

    def do_delete_offsets(self, group: str, topic: str, partition: int) -> None:
        """OffsetDelete."""
        where = [TopicPartition(topic, partition)]
        self._administer(lambda client: groups.delete_offsets(client, group, where))
