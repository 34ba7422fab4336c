"""aiokafka as a client of the contract."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import BrokerResponseError, for_code
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from splashdam.testing.contract.clients.in_process import (
    CLIENT_ID,
    InProcessClient,
    ProduceCall,
    cluster_facts,
    name_of_code,
    record_fields,
)
from splashdam.testing.contract.clients.security import with_ssl_context
from splashdam.testing.contract.vocabulary import NOT_IN_CLIENT, Read, Refused, Replicas, read_args

_RESOURCES = {"topic": ConfigResourceType.TOPIC, "broker": ConfigResourceType.BROKER}


class AiokafkaClient(InProcessClient):
    """aiokafka's producer, consumer and admin client, each in an event loop of its own."""

    name = "aiokafka"
    logger = "aiokafka"
    version = aiokafka.__version__

    def name_of(self, error: BaseException) -> str:
        # An OSError has an ``errno``, too: the operating system's, not Kafka's.
        return name_of_code(error.errno) if isinstance(error, BrokerResponseError) else super().name_of(error)

    def do_produce(self, **args: Any) -> list[dict[str, Any]]:
        """AIOKafkaProducer.send; it has no option ``allow_auto_create_topics``."""
        return asyncio.run(self._produce(ProduceCall(**args)))

    def _common(self) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.bootstrap_servers,
            "client_id": CLIENT_ID,
            **with_ssl_context(self.security),
        }

    async def _produce(self, call: ProduceCall) -> list[dict[str, Any]]:
        producer = AIOKafkaProducer(**self._common(), **call.options())
        try:
            await producer.start()
            if call.transactional_id is not None:
                await producer.begin_transaction()
            sent = [await producer.send(call.topic, **record_fields(each)) for each in call.records]
            outcomes = [await self._outcome(each) for each in sent]
            if call.transactional_id is not None:
                await _end_transaction(producer, call.commit)
            return outcomes
        finally:
            await producer.stop()

    def do_send_offsets(
        self, group: str, topic: str, offset: int, transactional_id: str, commit: bool
    ) -> None:
        """AIOKafkaProducer.send_offsets_to_transaction."""

        async def send() -> None:
            producer = AIOKafkaProducer(**self._common(), transactional_id=transactional_id)
            try:
                await producer.start()
                await producer.begin_transaction()
                await producer.send_offsets_to_transaction({TopicPartition(topic, 0): offset}, group)
                await _end_transaction(producer, commit)
            finally:
                await producer.stop()

        asyncio.run(send())

    async def _outcome(self, sent: Awaitable[Any]) -> dict[str, Any]:
        try:
            metadata = await sent
        except Exception as error:  # any exception is this record's outcome
            return {"error": self.name_of(error), "text": str(error)}
        return {
            "partition": -1 if metadata is None else metadata.partition,
            "offset": -1 if metadata is None else metadata.offset,
        }

    def do_fetch(
        self, *, topic: str, partition: int, offset: int, count: int, isolation: str, timeout_ms: int
    ) -> list[dict[str, Any]]:
        """AIOKafkaConsumer.getmany, with an assigned partition."""

        async def fetch(consumer: AIOKafkaConsumer) -> list[dict[str, Any]]:
            where = TopicPartition(topic, partition)
            consumer.assign([where])
            consumer.seek(where, offset)
            return [read_args(each) for each in await _poll(consumer, count, timeout_ms)]

        return asyncio.run(self._consuming(fetch, isolation))

    def do_consume(
        self, topic: str, group: str, count: int, isolation: str, timeout_ms: int, **options: str
    ) -> list[dict[str, Any]]:
        """AIOKafkaConsumer.subscribe, getmany and commit."""

        async def consume(consumer: AIOKafkaConsumer) -> list[dict[str, Any]]:
            consumer.subscribe([topic])
            records = await _poll(consumer, count, timeout_ms)
            next_offsets = {TopicPartition(topic, each.partition): each.offset + 1 for each in records}
            if next_offsets:
                await consumer.commit(next_offsets)
            return [read_args(each) for each in records]

        instance = options.get("instance_id")
        return asyncio.run(self._consuming(consume, isolation, group, group_instance_id=instance))

    async def _consuming(
        self,
        task: Callable[[AIOKafkaConsumer], Awaitable[Any]],
        isolation: str,
        group: str | None = None,
        **options: Any,
    ) -> Any:
        consumer = AIOKafkaConsumer(
            **self._common(),
            group_id=group,
            isolation_level=isolation,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=100,
            **options,
        )
        try:
            await consumer.start()
            return await task(consumer)
        finally:
            await consumer.stop()

    def do_commit(self, group: str, topic: str, offsets: dict[str, list[Any]]) -> None:
        """AIOKafkaConsumer.commit, with assigned partitions: the admin client cannot commit."""

        async def commit(consumer: AIOKafkaConsumer) -> None:
            wanted = {
                TopicPartition(topic, int(partition)): OffsetAndMetadata(offset, metadata)
                for partition, (offset, metadata) in offsets.items()
            }
            consumer.assign(list(wanted))
            await consumer.commit(wanted)

        asyncio.run(self._consuming(commit, "read_uncommitted", group))

    def do_offsets(self, topic: str, partition: int, at: str | int) -> int:
        """AIOKafkaConsumer's beginning_offsets, end_offsets and offsets_for_times."""
        if at == "max_timestamp":
            raise Refused(NOT_IN_CLIENT, "the client cannot look for the largest timestamp")

        async def offsets(consumer: AIOKafkaConsumer) -> int:
            where = TopicPartition(topic, partition)
            if at == "earliest":
                return int((await consumer.beginning_offsets([where]))[where])
            if at == "latest":
                return int((await consumer.end_offsets([where]))[where])
            found = (await consumer.offsets_for_times({where: at}))[where]
            return -1 if found is None else int(found.offset)

        return int(asyncio.run(self._consuming(offsets, "read_uncommitted")))

    def _administer(self, task: Callable[[AIOKafkaAdminClient], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            admin = AIOKafkaAdminClient(**self._common())
            await admin.start()
            try:
                return await task(admin)
            finally:
                await admin.close()

        return asyncio.run(run())

    def do_committed(self, group: str, topic: str) -> dict[int, Any]:
        """AIOKafkaAdminClient.list_consumer_group_offsets."""
        found = self._administer(lambda admin: admin.list_consumer_group_offsets(group))
        return {
            where.partition: (each.offset, each.metadata)
            for where, each in found.items()
            if where.topic == topic and each.offset >= 0
        }

    def do_create_topic(
        self,
        topic: str,
        partitions: int,
        replication_factor: int,
        configs: dict[str, str],
        validate_only: bool,
    ) -> None:
        """AIOKafkaAdminClient.create_topics."""
        wanted = NewTopic(topic, partitions, replication_factor, topic_configs=configs)
        answer = self._administer(lambda admin: admin.create_topics([wanted], validate_only=validate_only))
        _check(answer.topic_errors)

    def do_delete_topic(self, topic: str) -> None:
        """AIOKafkaAdminClient.delete_topics."""
        _check(self._administer(lambda admin: admin.delete_topics([topic])).topic_error_codes)

    def do_list_topics(self) -> list[str]:
        """AIOKafkaAdminClient.list_topics."""
        return sorted(self._administer(lambda admin: admin.list_topics()))

    def do_describe_topic(self, topic: str) -> list[dict[str, Any]]:
        """AIOKafkaAdminClient.describe_topics."""
        (found,) = self._administer(lambda admin: admin.describe_topics([topic]))
        if found["error_code"]:
            raise for_code(found["error_code"])(topic)
        return [
            Replicas(each["partition"], each["leader"], each["replicas"], each["isr"])._asdict()
            for each in sorted(found["partitions"], key=lambda each: int(each["partition"]))
        ]

    def do_create_partitions(self, topic: str, count: int) -> None:
        """AIOKafkaAdminClient.create_partitions."""
        answer = self._administer(lambda admin: admin.create_partitions({topic: NewPartitions(count)}))
        _check(answer.topic_errors)

    def do_describe_configs(self, kind: str, name: str) -> dict[str, str | None]:
        """AIOKafkaAdminClient.describe_configs."""
        resource = ConfigResource(_RESOURCES[kind], name)
        (answer,) = self._administer(lambda admin: admin.describe_configs([resource]))
        ((code, message, _, _, entries),) = (tuple(each) for each in answer.resources)
        if code:
            raise for_code(code)(message)
        return {each[0]: each[1] for each in entries}

    def do_delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """AIOKafkaAdminClient.delete_records."""
        where = TopicPartition(topic, partition)
        wanted = {where: RecordsToDelete(before_offset)}
        return int(self._administer(lambda admin: admin.delete_records(wanted))[where])

    def do_list_groups(self) -> list[str]:
        """AIOKafkaAdminClient.list_consumer_groups."""
        found = self._administer(lambda admin: admin.list_consumer_groups())
        return sorted(each[0] for each in found)

    def do_describe_cluster(self) -> dict[str, Any]:
        """AIOKafkaAdminClient.describe_cluster."""
        found = self._administer(lambda admin: admin.describe_cluster())
        brokers = [each["node_id"] for each in found["brokers"]]
        return cluster_facts(found["cluster_id"], found["controller_id"], brokers)


async def _end_transaction(producer: AIOKafkaProducer, commit: bool) -> None:
    await (producer.commit_transaction() if commit else producer.abort_transaction())


def _check(errors: Sequence[Sequence[Any]]) -> None:
    for _, code, *_ in errors:
        if code:
            raise for_code(code)


async def _poll(consumer: AIOKafkaConsumer, count: int, timeout_ms: int) -> list[Read]:
    records: list[Read] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_ms / 1000):  # getmany() itself waits for an assignment for ever
            while len(records) < count:
                found = await consumer.getmany(timeout_ms=100, max_records=count - len(records))
                records += (_read(each) for of_partition in found.values() for each in of_partition)
    return records


def _read(record: Any) -> Read:
    return Read(
        record.partition, record.offset, record.key, record.value, record.timestamp, tuple(record.headers)
    )
