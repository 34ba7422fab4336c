"""From ``send()`` to the ``poll()`` of a consumer: ``end_to_end.py CONSUMER HOST:PORT TOPIC RECORDS PACE``.

The process is a consumer that others wrote, with its defaults. It starts a second process, with splashdam's
producer, which sends at a fixed pace with linger 0 as soon as the consumer has a first record of each
partition. Each record has its number and the moment of its ``send()``, by the monotonic clock, which all
processes of a Linux machine share. Prints median and 99th percentile as JSON, and fails unless each record
came once.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from splashdam.cli.measuring.clock import DELIVERY_SECONDS, latency_figures, sleep_until

PARTITIONS = 4
RECORD_BYTES = 100
POLL_SECONDS = 1.0
SEND = "send"
"""In place of a consumer's name: the part of the second process."""

Poll: TypeAlias = Callable[[], Iterable[bytes]]
"""Waits for records, and returns their values, or nothing after `POLL_SECONDS`."""


def kafka_python(bootstrap: str, topic: str) -> Poll:
    """Return the ``poll`` of kafka-python's consumer, without a group."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id=None)
    consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])

    def poll() -> list[bytes]:
        found = consumer.poll(timeout_ms=int(POLL_SECONDS * 1000))
        return [record.value for records in found.values() for record in records]

    return poll


def confluent_kafka(bootstrap: str, topic: str) -> Poll:
    """Return the ``poll`` of confluent-kafka's consumer; it has a group's name, but no group."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])

    def poll() -> list[bytes]:
        message = consumer.poll(POLL_SECONDS)
        if message is None:
            return []
        if message.error() is not None:
            raise KafkaException(message.error())
        return [message.value()]

    return poll


CONSUMERS: Mapping[str, Callable[[str, str], Poll]] = {
    "kafka-python": kafka_python,
    "confluent-kafka": confluent_kafka,
}


def stamped(number: int) -> bytes:
    """Return the value of a record that is sent now."""
    return (b"%d %d " % (number, time.monotonic_ns())).ljust(RECORD_BYTES, b"x")


def waits(poll: Poll, count: int, patience_seconds: float = DELIVERY_SECONDS) -> Sequence[float]:
    """Return the seconds from ``send()`` to the end of the ``poll`` that returned the record, by its number.

    Raises:
        SystemExit: a record came twice, or some did not come.
    """
    found: dict[int, float] = {}
    give_up_at = time.monotonic() + patience_seconds
    while len(found) < count:
        values, now = poll(), time.monotonic_ns()
        for value in values:
            number, sent = map(int, value.split()[:2])
            if number in found:
                raise SystemExit(f"record {number} came twice")
            found[number] = (now - sent) / 1e9
        if time.monotonic() > give_up_at:
            raise SystemExit(f"{len(found):,} of {count:,} records came within {patience_seconds:g} s")
    return [found[number] for number in range(count)]


def send(bootstrap: str, topic: str, count: int, per_second: float) -> None:
    """Send a first record to each partition, wait for a line of input, and send the others at the pace."""
    from splashdam.client.producer import KafkaProducer

    with KafkaProducer(
        bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, linger_ms=0
    ) as producer:
        for partition in range(PARTITIONS):
            producer.send(topic, stamped(partition), partition=partition).get()
        sys.stdin.readline()
        start = time.perf_counter()
        for number in range(count):
            sleep_until(start + number / per_second)
            producer.send(topic, stamped(number))
        producer.flush()


def measure(consumer: str, arguments: Sequence[str], count: int) -> dict[str, Any]:
    """Return the figures of one consumer.

    Raises:
        SystemExit: the producer failed, or a record did not come once.
    """
    bootstrap, topic = arguments[:2]
    poll = CONSUMERS[consumer](bootstrap, topic)
    command = [sys.executable, __file__, SEND, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as producer:
        try:
            # A consumer takes a while until it reads a new topic; that is not the way of a record.
            waits(poll, PARTITIONS)
            assert producer.stdin is not None
            producer.stdin.write(b"\n")
            producer.stdin.flush()
            found = waits(poll, count)
        except BaseException:
            producer.kill()
            raise
    if producer.returncode != 0:
        raise SystemExit(f"the producer ended with status {producer.returncode}")
    return {**latency_figures(found), "received": len(found)}


def main() -> None:
    """Be the consumer that the arguments name, or its producer."""
    who, *arguments = sys.argv[1:]
    bootstrap, topic, count, per_second = arguments
    if who == SEND:
        send(bootstrap, topic, int(count), float(per_second))
    else:
        print(json.dumps(measure(who, arguments, int(count))))


if __name__ == "__main__":
    main()
