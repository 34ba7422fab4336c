"""Consumers that we did not write, with a group id and assigned partitions: they commit and ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import aiokafka
import confluent_kafka
import kafka

TIMEOUT_SECONDS = 300


class Committed(NamedTuple):
    """What a group has committed for partition 0 of a topic."""

    offset: int
    metadata: str


Commit: TypeAlias = Callable[[str, str, str, Committed], None]
"""Commits for partition 0: servers, group, topic, and what."""

Ask: TypeAlias = Callable[[str, str, str], Committed | None]
"""Servers, group, topic; None where nothing is committed."""


def _kafka_python(servers: str, group: str) -> kafka.KafkaConsumer:
    return kafka.KafkaConsumer(bootstrap_servers=servers, group_id=group, enable_auto_commit=False)


def kafka_python_commit(servers: str, group: str, topic: str, what: Committed) -> None:
    """With kafka-python."""
    consumer = _kafka_python(servers, group)
    place = kafka.TopicPartition(topic, 0)
    try:
        consumer.assign([place])
        consumer.commit({place: kafka.OffsetAndMetadata(what.offset, what.metadata, -1)})
    finally:
        consumer.close()


def kafka_python_ask(servers: str, group: str, topic: str) -> Committed | None:
    """With kafka-python."""
    consumer = _kafka_python(servers, group)
    place = kafka.TopicPartition(topic, 0)
    try:
        consumer.assign([place])
        found = consumer.committed(place, metadata=True)
    finally:
        consumer.close()
    return None if found is None else Committed(found.offset, found.metadata)


def _confluent(servers: str, group: str) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False, "log_level": 0}
    )


def confluent_commit(servers: str, group: str, topic: str, what: Committed) -> None:
    """With confluent-kafka."""
    consumer = _confluent(servers, group)
    place = confluent_kafka.TopicPartition(topic, 0, what.offset, metadata=what.metadata)
    try:
        (done,) = consumer.commit(offsets=[place], asynchronous=False)
        assert done.error is None
    finally:
        consumer.close()


def confluent_ask(servers: str, group: str, topic: str) -> Committed | None:
    """With confluent-kafka, without the metadata: it reads those of others on to the next zero byte."""
    consumer = _confluent(servers, group)
    try:
        (found,) = consumer.committed([confluent_kafka.TopicPartition(topic, 0)], TIMEOUT_SECONDS)
    finally:
        consumer.close()
    assert found.error is None
    return None if found.offset < 0 else Committed(found.offset, "")


def aiokafka_commit(servers: str, group: str, topic: str, what: Committed) -> None:
    """With aiokafka."""

    async def main() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=servers, group_id=group, enable_auto_commit=False
        )
        place = aiokafka.TopicPartition(topic, 0)
        await consumer.start()
        try:
            consumer.assign([place])
            await consumer.commit({place: (what.offset, what.metadata)})
        finally:
            await consumer.stop()

    asyncio.run(main())


def aiokafka_ask(servers: str, group: str, topic: str) -> Committed | None:
    """With aiokafka, which tells the offset alone."""

    async def main() -> int | None:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=servers, group_id=group, enable_auto_commit=False
        )
        await consumer.start()
        try:
            place = aiokafka.TopicPartition(topic, 0)
            consumer.assign([place])
            found: int | None = await consumer.committed(place)
            return found
        finally:
            await consumer.stop()

    found = asyncio.run(main())
    return None if found is None else Committed(found, "")


COMMIT: dict[str, Commit] = {
    "kafka-python": kafka_python_commit,
    "confluent-kafka": confluent_commit,
    "aiokafka": aiokafka_commit,
}
ASK: dict[str, Ask] = {
    "kafka-python": kafka_python_ask,
    "confluent-kafka": confluent_ask,
    "aiokafka": aiokafka_ask,
}
