"""kafka-python as a client of the contract."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import kafka
from kafka.admin import AlterConfigOp, ConfigResource, KafkaAdminClient, OffsetSpec
from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

from splashdam.testing.contract.clients.in_process import (
    API_TIMEOUT_MS,
    CLIENT_ID,
    BlockingClient,
    cluster_facts,
    name_of_code,
)
from splashdam.testing.contract.clients.security import of_kafka_python
from splashdam.testing.contract.vocabulary import Read, Replicas, read_args

_CODE = re.compile(r"\[Error (\d+)\]")

_SPECS = {
    "earliest": OffsetSpec.EARLIEST,
    "latest": OffsetSpec.LATEST,
    "max_timestamp": OffsetSpec.MAX_TIMESTAMP,
}


class KafkaPythonClient(BlockingClient):
    """kafka-python's producer, consumer and admin client."""

    name = "kafka-python"
    logger = "kafka"
    version = kafka.__version__

    def _common(self) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.bootstrap_servers,
            "client_id": CLIENT_ID,
            **of_kafka_python(self.security),
        }

    @cached_property
    def _admin(self) -> KafkaAdminClient:
        return KafkaAdminClient(**self._common())

    def close(self) -> None:
        """Close the admin client, if one was opened."""
        if "_admin" in self.__dict__:
            self._admin.close()

    def name_of(self, error: BaseException) -> str:
        # An OSError has an ``errno``, too: the operating system's, not Kafka's.
        if isinstance(error, kafka.errors.BrokerResponseError):
            return name_of_code(error.errno)
        return super().name_of(error)

    def producer(self, **options: Any) -> kafka.KafkaProducer:
        # It tries again until this time is up, also if its password is wrong or no certificate is trusted.
        options["bootstrap_timeout_ms"] = API_TIMEOUT_MS // 4
        return kafka.KafkaProducer(**self._common(), **options)

    def send_offsets(self, producer: Any, group: str, topic: str, offset: int) -> None:
        offsets = {TopicPartition(topic, 0): OffsetAndMetadata(offset, "", -1)}
        producer.send_offsets_to_transaction(offsets, ConsumerGroupMetadata(group, -1, "", None))

    def _consumer(self, isolation: str, group: str | None = None, **options: Any) -> kafka.KafkaConsumer:
        return kafka.KafkaConsumer(
            **self._common(),
            group_id=group,
            isolation_level=isolation,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=100,
            allow_auto_create_topics=False,
            **options,
        )

    def do_fetch(
        self, *, topic: str, partition: int, offset: int, count: int, isolation: str, timeout_ms: int
    ) -> list[dict[str, Any]]:
        """KafkaConsumer.poll, with an assigned partition."""
        consumer = self._consumer(isolation)
        try:
            where = TopicPartition(topic, partition)
            consumer.assign([where])
            consumer.seek(where, offset)
            return [read_args(each) for each in _poll(consumer, count, timeout_ms)]
        finally:
            consumer.close()

    def do_consume(
        self, topic: str, group: str, count: int, isolation: str, timeout_ms: int, **options: str
    ) -> list[dict[str, Any]]:
        """KafkaConsumer.subscribe, poll and commit."""
        instance = options.get("instance_id")
        consumer = self._consumer(isolation, group, group_instance_id=instance)
        try:
            consumer.subscribe([topic])
            # Without metadata it may assign nothing, and would then wait for the next refresh.
            consumer.partitions_for_topic(topic)
            records = _poll(consumer, count, timeout_ms)
            next_offsets = {TopicPartition(topic, each.partition): each.offset + 1 for each in records}
            if next_offsets:
                consumer.commit(
                    {where: OffsetAndMetadata(offset, "", -1) for where, offset in next_offsets.items()}
                )
            return [read_args(each) for each in records]
        finally:
            consumer.close()

    def do_commit(self, group: str, topic: str, offsets: dict[str, list[Any]]) -> None:
        """AdminClient.alter_group_offsets."""
        wanted = {
            TopicPartition(topic, int(partition)): OffsetAndMetadata(offset, metadata, -1)
            for partition, (offset, metadata) in offsets.items()
        }
        for error in self._admin.alter_group_offsets(group, wanted).values():
            if error.errno:
                raise error

    def do_committed(self, group: str, topic: str) -> dict[int, Any]:
        """AdminClient.list_group_offsets."""
        found = self._admin.list_group_offsets({group: None})[group]
        return {
            where.partition: (each.offset, each.metadata)
            for where, each in found.items()
            if where.topic == topic and each.offset >= 0
        }

    def do_offsets(self, topic: str, partition: int, at: str | int) -> int:
        """AdminClient.list_partition_offsets."""
        where = TopicPartition(topic, partition)
        spec = _SPECS[at] if isinstance(at, str) else at
        return int(self._admin.list_partition_offsets({where: spec})[where].offset)

    def do_create_topic(
        self,
        topic: str,
        partitions: int,
        replication_factor: int,
        configs: dict[str, str],
        validate_only: bool,
    ) -> None:
        """AdminClient.create_topics."""
        wanted = {"num_partitions": partitions, "replication_factor": replication_factor, "configs": configs}
        self._admin.create_topics({topic: wanted}, validate_only=validate_only)

    def do_delete_topic(self, topic: str) -> None:
        """AdminClient.delete_topics."""
        self._admin.delete_topics([topic])

    def do_list_topics(self) -> list[str]:
        """AdminClient.list_topics."""
        return list(self._admin.list_topics())

    def do_describe_topic(self, topic: str) -> list[dict[str, Any]]:
        """AdminClient.describe_topics."""
        (found,) = self._admin.describe_topics([topic])
        if found["error_code"]:
            raise kafka.errors.for_code(found["error_code"])(topic)
        return [
            Replicas(
                each["partition_index"], each["leader_id"], each["replica_nodes"], each["isr_nodes"]
            )._asdict()
            for each in sorted(found["partitions"], key=lambda each: each["partition_index"])
        ]

    def do_create_partitions(self, topic: str, count: int) -> None:
        """AdminClient.create_partitions."""
        self._admin.create_partitions({topic: count})

    def do_describe_configs(self, kind: str, name: str) -> dict[str, str | None]:
        """AdminClient.describe_configs."""
        found = self._admin.describe_configs([ConfigResource(kind, name)], config_filter="all")
        (values,) = (each for resources in found.values() for each in resources.values())
        return {key: each["value"] for key, each in values.items()}

    def do_alter_configs(
        self, kind: str, name: str, set: dict[str, str] | None = None, delete: Sequence[str] = ()
    ) -> None:
        """AdminClient.alter_configs, incrementally."""
        changes: dict[str, Any] = {key: (AlterConfigOp.SET, value) for key, value in (set or {}).items()}
        changes.update(dict.fromkeys(delete, (AlterConfigOp.DELETE, None)))
        answers = self._admin.alter_configs([ConfigResource(kind, name, changes)])
        for answer in (each for resources in answers.values() for each in resources.values()):
            _raise(answer)

    def do_delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """AdminClient.delete_records."""
        where = TopicPartition(topic, partition)
        return int(self._admin.delete_records({where: before_offset})[where]["low_watermark"])

    def do_list_groups(self) -> list[str]:
        """AdminClient.list_groups."""
        return [each["group_id"] for each in self._admin.list_groups()]

    def do_describe_group(self, group: str) -> dict[str, Any]:
        """AdminClient.describe_groups."""
        found = self._admin.describe_groups([group])[group]
        return {"state": found["group_state"], "members": len(found["members"])}

    def do_delete_group(self, group: str) -> None:
        """AdminClient.delete_groups."""
        for error in self._admin.delete_groups([group]).values():
            _raise(error)

    def do_delete_offsets(self, group: str, topic: str, partition: int) -> None:
        """AdminClient.delete_group_offsets."""
        for error in self._admin.delete_group_offsets(group, [TopicPartition(topic, partition)]).values():
            _raise(error)

    def do_describe_cluster(self) -> dict[str, Any]:
        """AdminClient.describe_cluster."""
        found = self._admin.describe_cluster()
        brokers = [each["broker_id"] for each in found["brokers"]]
        return cluster_facts(found["cluster_id"], found["controller_id"], brokers)


def _raise(error: Any) -> None:
    """Raise the error of an answer. kafka-python reports it as class, as name, or as text with the code."""
    if isinstance(error, str):
        code = _CODE.match(error)
        if code is not None:
            error = kafka.errors.for_code(int(code[1]))(error)
        else:
            error = getattr(kafka.errors, "NoError" if error == "OK" else error)
    if error.errno:
        raise error


def _poll(consumer: kafka.KafkaConsumer, count: int, timeout_ms: int) -> list[Read]:
    until = time.monotonic() + timeout_ms / 1000
    records: list[Read] = []
    while len(records) < count and time.monotonic() < until:
        for found in consumer.poll(timeout_ms=100, max_records=count - len(records)).values():
            records += (
                Read(each.partition, each.offset, each.key, each.value, each.timestamp, tuple(each.headers))
                for each in found
            )
    return records
