"""From nothing to the first acknowledged record: ``python -P cold_start.py CLIENT HOST:PORT TOPIC``.

Runs as a script in a fresh interpreter. It imports nothing before its clock starts, not even ``typing``.
Prints as JSON the milliseconds of the import, and those until the first acknowledgement. For ``trio``, which
splashdam imports in any case, both figures are the import. For a cluster with TLS or SASL, ``json`` is
imported before the clock starts, whichever client is measured.
"""

from __future__ import annotations

import os
import sys
import time

# Not imported from ``typing``, which would take part of the time that is measured.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def trio(_bootstrap: str, _topic: str, _security: dict[str, Any]) -> tuple[float, float]:
    import trio  # noqa: F401

    imported = time.perf_counter()
    return imported, imported


def splashdam(bootstrap: str, topic: str, security: dict[str, Any]) -> tuple[float, float]:
    from splashdam import KafkaProducer

    return _kafka_producer(KafkaProducer, bootstrap, topic, security)


def kafka_python(bootstrap: str, topic: str, security: dict[str, Any]) -> tuple[float, float]:
    from kafka import KafkaProducer

    return _kafka_producer(KafkaProducer, bootstrap, topic, security)


def _kafka_producer(
    kafka_producer: Any, bootstrap: str, topic: str, security: dict[str, Any]
) -> tuple[float, float]:
    imported = time.perf_counter()
    producer = kafka_producer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, **security)
    producer.send(topic, b"first").get(timeout=60)
    acknowledged = time.perf_counter()
    producer.close()
    return imported, acknowledged


def confluent_kafka(bootstrap: str, topic: str, security: dict[str, Any]) -> tuple[float, float]:
    from confluent_kafka import Producer

    imported = time.perf_counter()
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, **security}
    )
    delivered: list[object] = []
    producer.produce(topic, b"first", on_delivery=lambda error, _message: delivered.append(error))
    while not delivered:
        producer.poll(1)
    return imported, time.perf_counter()


def aiokafka(bootstrap: str, topic: str, security: dict[str, Any]) -> tuple[float, float]:
    import asyncio

    from aiokafka import AIOKafkaProducer

    imported = time.perf_counter()

    async def first_ack() -> float:
        if "SSL" in security.get("security_protocol", "").split("_"):
            from splashdam.testing.contract.clients.security import with_ssl_context

            options = with_ssl_context(security)
        else:
            options = security
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, **options
        )
        await producer.start()
        await producer.send_and_wait(topic, b"first")
        acknowledged = time.perf_counter()
        await producer.stop()
        return acknowledged

    return imported, asyncio.run(first_ack())


STARTS = {
    "trio": trio,
    "splashdam": splashdam,
    "kafka-python": kafka_python,
    "confluent-kafka": confluent_kafka,
    "aiokafka": aiokafka,
}


def _read(text: str) -> dict[str, Any]:
    import json

    options: dict[str, Any] = json.loads(text)
    return options


def main() -> None:
    """Start the client that the arguments name, and print its figures."""
    client, bootstrap, topic = sys.argv[1:]
    given = os.environ.get("SPLASHDAM_BENCH_SECURITY")
    security = _read(given) if given else {}
    start = time.perf_counter()
    imported, acknowledged = STARTS[client](bootstrap, topic, security)
    figures = (imported - start) * 1e3, (acknowledged - start) * 1e3
    sys.stdout.write('{{"import_ms": {:.3f}, "first_ack_ms": {:.3f}}}\n'.format(*figures))


if __name__ == "__main__":
    main()
