"""Produces and reads with clients that we did not write: kafka-python, confluent-kafka, aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import aiokafka
import confluent_kafka
import kafka

TIMEOUT_SECONDS = 300


class Sent(NamedTuple):
    """One record of a test; ``headers`` as all clients take them."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]


Produce: TypeAlias = Callable[..., list[int]]
"""Sends records to a topic, waits for all, and returns their offsets."""

Read: TypeAlias = Callable[[str, str, int], dict[int, list[Sent]]]
"""Reads all records of a topic's partitions by assigned partitions, from the beginning."""


def kafka_python_produce(servers: str, topic: str, records: Sequence[Sent], **options: Any) -> list[int]:
    """With kafka-python; ``options`` are its own."""
    producer = kafka.KafkaProducer(bootstrap_servers=servers, **options)
    try:
        futures = [
            producer.send(topic, each.value, each.key, each.headers, partition=each.partition)
            for each in records
        ]
        return [future.get(TIMEOUT_SECONDS).offset for future in futures]
    finally:
        producer.close()


def confluent_produce(servers: str, topic: str, records: Sequence[Sent], **options: Any) -> list[int]:
    """With confluent-kafka; ``options`` are librdkafka's with underscores."""
    dotted = {name.replace("_", "."): value for name, value in options.items()}
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "log_level": 0, **dotted})
    offsets: dict[int, int] = {}
    errors: list[confluent_kafka.KafkaError] = []

    def delivered(number: int) -> Callable[[Any, Any], None]:
        def report(error: Any, message: Any) -> None:  # one that raises keeps the producer for ever
            if error is not None:
                errors.append(error)
            else:
                offsets[number] = message.offset()

        return report

    for number, each in enumerate(records):
        producer.produce(topic, each.value, each.key, each.partition, delivered(number), headers=each.headers)
    assert producer.flush(TIMEOUT_SECONDS) == 0
    if errors:
        raise AssertionError(errors[0])
    return [offsets[number] for number in range(len(records))]


def aiokafka_produce(servers: str, topic: str, records: Sequence[Sent], **options: Any) -> list[int]:
    """With aiokafka; ``options`` are its own."""

    async def main() -> list[int]:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=servers, **options) as producer:
            futures = [
                await producer.send(
                    topic, each.value, each.key, partition=each.partition, headers=each.headers
                )
                for each in records
            ]
            reports = [await future for future in futures]
            return [-1 if report is None else report.offset for report in reports]

    return asyncio.run(main())


def kafka_python_read(servers: str, topic: str, count: int) -> dict[int, list[Sent]]:
    """With kafka-python, by assigned partitions."""
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=servers, group_id=None, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    try:
        partitions = consumer.partitions_for_topic(topic) or set()
        consumer.assign([kafka.TopicPartition(topic, partition) for partition in partitions])
        found: dict[int, list[Sent]] = {partition: [] for partition in partitions}
        while sum(map(len, found.values())) < count:
            polled = consumer.poll(timeout_ms=TIMEOUT_SECONDS * 1000)
            assert polled, f"{found} is all there is"
            for topic_partition, records in polled.items():
                found[topic_partition.partition] += [
                    Sent(topic_partition.partition, each.key, each.value, list(each.headers))
                    for each in records
                ]
        return found
    finally:
        consumer.close()


def confluent_read(servers: str, topic: str, count: int) -> dict[int, list[Sent]]:
    """With confluent-kafka, by assigned partitions."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "none", "enable.auto.commit": False}
    )
    try:
        partitions = list(consumer.list_topics(topic, TIMEOUT_SECONDS).topics[topic].partitions)
        consumer.assign(
            [
                confluent_kafka.TopicPartition(topic, each, confluent_kafka.OFFSET_BEGINNING)
                for each in partitions
            ]
        )
        found: dict[int, list[Sent]] = {partition: [] for partition in partitions}
        for _ in range(count):
            message = consumer.poll(TIMEOUT_SECONDS)
            assert message is not None, f"{found} is all there is"
            assert message.error() is None, message.error()
            headers = message.headers() or []
            found[message.partition()].append(
                Sent(message.partition(), message.key(), message.value(), headers)
            )
        return found
    finally:
        consumer.close()


PRODUCERS: dict[str, Produce] = {
    "kafka-python": kafka_python_produce,
    "confluent-kafka": confluent_produce,
    "aiokafka": aiokafka_produce,
}
READERS: dict[str, Read] = {"kafka-python": kafka_python_read, "confluent-kafka": confluent_read}
