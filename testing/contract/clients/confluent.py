"""confluent-kafka as a client of the contract."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import confluent_kafka
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs hide what it re-exports
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from splashdam.testing.contract.clients.in_process import (
    API_TIMEOUT_MS,
    CLIENT_ID,
    InProcessClient,
    ProduceCall,
    cluster_facts,
    name_of_code,
    record_fields,
)
from splashdam.testing.contract.clients.security import of_librdkafka
from splashdam.testing.contract.vocabulary import Read, Refused, Replicas, read_args

_REFUSALS = {
    KafkaError._AUTHENTICATION: "SASL_AUTHENTICATION_FAILED",
    KafkaError._SSL: "SSL_AUTHENTICATION_FAILED",
}
_SECONDS = API_TIMEOUT_MS / 1000


class ConfluentClient(InProcessClient):
    """librdkafka through confluent-kafka's producer, consumer and admin client."""

    name = "confluent-kafka"
    version = str(confluent_kafka.__version__)

    def __init__(self, bootstrap_servers: str, security: Mapping[str, Any] | None = None) -> None:
        super().__init__(bootstrap_servers, security)
        self._refusal: Refused | None = None

    def _settings(self, **options: Any) -> dict[str, Any]:
        names = {name.replace("_", "."): value for name, value in options.items()}
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "client.id": CLIENT_ID,
            "log_level": 0,
            "error_cb": self._note,
            "allow.auto.create.topics": False,
            **of_librdkafka(self.security),
            **names,
        }

    def _note(self, error: Any) -> None:
        """Keep a refusal by TLS or SASL: librdkafka tells it here alone, and goes on trying."""
        if error.code() in _REFUSALS:
            self._refusal = Refused(_REFUSALS[error.code()], error.str())

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient(self._settings())

    def name_of(self, error: BaseException) -> str:
        if isinstance(error, KafkaException):
            code = error.args[0].code()
            return str(error.args[0].name()).lstrip("_") if code < 0 else name_of_code(code)
        return super().name_of(error)

    def do_produce(self, **args: Any) -> list[dict[str, Any]]:
        """Producer.produce."""
        call = ProduceCall(**args)
        settings = self._settings(
            acks=call.acks,
            enable_idempotence=call.idempotent or call.transactional_id is not None,
            compression_type=call.compression,
            linger_ms=20,
            allow_auto_create_topics=call.create,
            message_timeout_ms=API_TIMEOUT_MS // 2,
            topic_metadata_propagation_max_ms=1000,
        )
        if call.transactional_id is not None:
            settings["transactional.id"] = call.transactional_id
        producer = Producer(settings)
        if call.transactional_id is not None:
            producer.init_transactions(_SECONDS)
            producer.begin_transaction()
        outcomes: list[dict[str, Any]] = [{} for _ in call.records]
        for index, each in enumerate(call.records):
            producer.produce(call.topic, **_message(each), on_delivery=_on_delivery(outcomes, index))
        self._deliver(producer)
        if call.transactional_id is not None:
            _end_transaction(producer, call.commit)
        return outcomes

    def _deliver(self, producer: Producer) -> None:
        self._refusal, until = None, time.monotonic() + _SECONDS
        while len(producer) and time.monotonic() < until:
            producer.poll(0.05)
            if self._refusal is not None:
                producer.purge()
                producer.flush(1)
                raise self._refusal

    def do_send_offsets(
        self, group: str, topic: str, offset: int, transactional_id: str, commit: bool
    ) -> None:
        """Producer.send_offsets_to_transaction, with the group metadata of a consumer."""
        producer = Producer(self._settings(transactional_id=transactional_id))
        consumer = self._consumer("read_uncommitted", group)
        try:
            producer.init_transactions(_SECONDS)
            producer.begin_transaction()
            offsets = [TopicPartition(topic, 0, offset)]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), _SECONDS)
            _end_transaction(producer, commit)
        finally:
            consumer.close()

    def _consumer(self, isolation: str, group: str, **options: Any) -> Consumer:
        return Consumer(
            self._settings(
                group_id=group,
                isolation_level=isolation,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                fetch_wait_max_ms=100,
                **options,
            )
        )

    def do_fetch(
        self, *, topic: str, partition: int, offset: int, count: int, isolation: str, timeout_ms: int
    ) -> list[dict[str, Any]]:
        """Consumer.poll, with an assigned partition; the required group id is never used."""
        consumer = self._consumer(isolation, "contract-unused")
        try:
            consumer.assign([TopicPartition(topic, partition, offset)])
            return [read_args(each) for each in _poll(consumer, count, timeout_ms)]
        finally:
            consumer.close()

    def do_consume(
        self, topic: str, group: str, count: int, isolation: str, timeout_ms: int, **options: str
    ) -> list[dict[str, Any]]:
        """Consumer.subscribe, poll and commit."""
        more: dict[str, Any] = {}
        if "protocol" in options:
            more["group_protocol"] = options["protocol"]
        if "assignor" in options:
            more["partition_assignment_strategy"] = options["assignor"]
        if "instance_id" in options:
            more["group_instance_id"] = options["instance_id"]
        consumer = self._consumer(isolation, group, **more)
        try:
            consumer.subscribe([topic])
            records = _poll(consumer, count, timeout_ms)
            next_offsets = {each.partition: each.offset + 1 for each in records}
            if next_offsets:
                consumer.commit(
                    offsets=[TopicPartition(topic, *each) for each in next_offsets.items()],
                    asynchronous=False,
                )
            return [read_args(each) for each in records]
        finally:
            consumer.close()

    def do_consume_by_coordinator(self, **args: Any) -> list[dict[str, Any]]:
        """`do_consume` with ``group.protocol=consumer`` (KIP-848)."""
        return self.do_consume(**args, protocol="consumer")

    def do_commit(self, group: str, topic: str, offsets: Mapping[str, Sequence[Any]]) -> None:
        """Consumer.commit without joining: the admin client sends no metadata."""
        consumer = self._consumer("read_uncommitted", group)
        try:
            consumer.commit(
                offsets=[
                    TopicPartition(topic, int(partition), offset, metadata)
                    for partition, (offset, metadata) in offsets.items()
                ],
                asynchronous=False,
            )
        finally:
            consumer.close()

    def do_committed(self, group: str, topic: str) -> dict[int, Any]:
        """AdminClient.list_consumer_group_offsets."""
        asked = ConsumerGroupTopicPartitions(group)
        found = self._admin.list_consumer_group_offsets([asked])[group].result(_SECONDS)
        return {
            each.partition: (each.offset, _metadata(each))
            for each in found.topic_partitions
            if each.topic == topic and each.offset >= 0
        }

    def do_offsets(self, topic: str, partition: int, at: str | int) -> int:
        """AdminClient.list_offsets."""
        where = TopicPartition(topic, partition)
        spec = getattr(OffsetSpec, at)() if isinstance(at, str) else OffsetSpec.for_timestamp(at)
        return int(self._admin.list_offsets({where: spec})[where].result(_SECONDS).offset)

    def do_create_topic(
        self,
        topic: str,
        partitions: int,
        replication_factor: int,
        configs: dict[str, str],
        validate_only: bool,
    ) -> None:
        """AdminClient.create_topics."""
        wanted = NewTopic(topic, partitions, replication_factor, config=configs)
        self._admin.create_topics([wanted], validate_only=validate_only)[topic].result(_SECONDS)

    def do_delete_topic(self, topic: str) -> None:
        """AdminClient.delete_topics."""
        self._admin.delete_topics([topic])[topic].result(_SECONDS)

    def do_list_topics(self) -> list[str]:
        """AdminClient.list_topics."""
        return sorted(self._admin.list_topics(timeout=_SECONDS).topics)

    def do_describe_topic(self, topic: str) -> list[dict[str, Any]]:
        """AdminClient.list_topics of one topic."""
        found = self._admin.list_topics(topic, timeout=_SECONDS).topics[topic]
        if found.error is not None:
            raise KafkaException(found.error)
        return [
            Replicas(each.id, each.leader, tuple(each.replicas), tuple(each.isrs))._asdict()
            for _, each in sorted(found.partitions.items())
        ]

    def do_create_partitions(self, topic: str, count: int) -> None:
        """AdminClient.create_partitions."""
        self._admin.create_partitions([NewPartitions(topic, count)])[topic].result(_SECONDS)

    def do_describe_configs(self, kind: str, name: str) -> dict[str, str | None]:
        """AdminClient.describe_configs."""
        resource = ConfigResource(kind, name)
        found = self._admin.describe_configs([resource])[resource].result(_SECONDS)
        return {key: each.value for key, each in found.items()}

    def do_alter_configs(
        self, kind: str, name: str, set: dict[str, str] | None = None, delete: Sequence[str] = ()
    ) -> None:
        """AdminClient.incremental_alter_configs."""
        changes = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in (set or {}).items()
        ]
        changes += [ConfigEntry(key, "", incremental_operation=AlterConfigOpType.DELETE) for key in delete]
        resource = ConfigResource(kind, name, incremental_configs=changes)
        self._admin.incremental_alter_configs([resource])[resource].result(_SECONDS)

    def do_delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """AdminClient.delete_records."""
        where = TopicPartition(topic, partition, before_offset)
        (future,) = self._admin.delete_records([where]).values()
        return int(future.result(_SECONDS).low_watermark)

    def do_list_groups(self) -> list[str]:
        """AdminClient.list_consumer_groups."""
        found = self._admin.list_consumer_groups().result(_SECONDS)
        for error in found.errors:
            raise error if isinstance(error, KafkaException) else KafkaException(error)
        return sorted(each.group_id for each in found.valid)

    def do_describe_group(self, group: str) -> dict[str, Any]:
        """AdminClient.describe_consumer_groups."""
        found = self._admin.describe_consumer_groups([group])[group].result(_SECONDS)
        return {"state": found.state.name.title(), "members": len(found.members)}

    def do_delete_group(self, group: str) -> None:
        """AdminClient.delete_consumer_groups."""
        self._admin.delete_consumer_groups([group])[group].result(_SECONDS)

    def do_describe_cluster(self) -> dict[str, Any]:
        """AdminClient.describe_cluster."""
        found = self._admin.describe_cluster().result(_SECONDS)
        return cluster_facts(found.cluster_id, found.controller.id, [each.id for each in found.nodes])


def _end_transaction(producer: Producer, commit: bool) -> None:
    end = producer.commit_transaction if commit else producer.abort_transaction
    end(_SECONDS)


def _message(record: dict[str, Any]) -> dict[str, Any]:
    fields = record_fields(record)
    timestamp = fields.pop("timestamp_ms")
    return fields if timestamp is None else {**fields, "timestamp": timestamp}


def _metadata(committed: TopicPartition) -> str:
    """Return the metadata; librdkafka reads on to the next zero byte in memory, which may not be UTF-8."""
    try:
        return committed.metadata or ""
    except UnicodeDecodeError:
        return "not text"


def _on_delivery(outcomes: list[dict[str, Any]], index: int) -> Any:
    def note(error: Any, message: Any) -> None:
        if error is not None:
            outcomes[index] = {"error": _error_name(error), "text": error.str()}
        else:
            offset = message.offset()
            outcomes[index] = {"partition": message.partition(), "offset": -1 if offset is None else offset}

    return note


def _error_name(error: Any) -> str:
    return str(error.name()).lstrip("_") if error.code() < 0 else name_of_code(error.code())


def _poll(consumer: Consumer, count: int, timeout_ms: int) -> list[Read]:
    until = time.monotonic() + timeout_ms / 1000
    records: list[Read] = []
    while len(records) < count and time.monotonic() < until:
        message = consumer.poll(0.1)
        if message is None:
            continue
        error = message.error()
        if error is not None:
            raise Refused(_error_name(error), error.str())
        records.append(_read(message))
    return records


def _read(message: Any) -> Read:
    headers = tuple(message.headers() or ())
    stamp = message.timestamp()[1]
    return Read(message.partition(), message.offset(), message.key(), message.value(), stamp, headers)
