"""One measurement of one client, in a process of its own: `python contenders.py '{"client": …}'`.

Every client does the same: connects, sends one record and waits until it is acknowledged (metadata and
producer id are warm then), and only then starts the clock: `count` sends, one flush, stop. Prints one line of
JSON. Whether the records arrived is not asked here but at the sink.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import resource
import sys
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

TOPIC = "bench"
BATCH_BYTES = 1_000_000
LINGER_MS = 5
DISTINCT_VALUES = 1_000

Measurement = dict[str, Any]
"""What `measured` returns, with the client's name and version added by `main`."""


def values(size: int) -> list[bytes]:
    """JSON-like values of exactly `size` bytes, the same for every client."""
    draw = random.Random(size)
    made = []
    for number in range(DISTINCT_VALUES):
        text = json.dumps({"id": number, "user": draw.randrange(10**6), "at": draw.random(), "note": ""})
        made.append((text[:-2] + "x" * (size - len(text)) + text[-2:]).encode()[:size])
    return made


def records(task: dict[str, Any]) -> Iterator[bytes]:
    return itertools.islice(itertools.cycle(values(task["size"])), task["count"])


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def peak_rss_bytes() -> int:
    """Highest resident size of this process. Not ru_maxrss where /proc exists: that survives an exec."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Clock:
    """Wall and CPU time of the measured part."""

    def __init__(self) -> None:
        self.cpu, self.wall = cpu_seconds(), time.perf_counter()

    def measured(self) -> Measurement:
        seconds, cpu = time.perf_counter() - self.wall, cpu_seconds() - self.cpu
        return {"seconds": seconds, "cpu_seconds": cpu, "peak_rss_bytes": peak_rss_bytes()}


def run_splashdam(task: dict[str, Any]) -> Measurement:
    from splashdam import KafkaProducer

    return _run_kafka_producer(KafkaProducer, task)


def run_kafka_python(task: dict[str, Any]) -> Measurement:
    from kafka import KafkaProducer

    return _run_kafka_producer(KafkaProducer, task)


def _run_kafka_producer(kafka_producer: Any, task: dict[str, Any]) -> Measurement:
    """One code for both: they share options, and `send()` returns a future for every record."""
    tuned = {"linger_ms": LINGER_MS, "batch_size": BATCH_BYTES, "max_request_size": 4 << 20}
    producer = kafka_producer(
        bootstrap_servers=task["bootstrap"],
        acks="all",
        enable_idempotence=True,
        **(tuned if task["tuned"] else {}),
    )
    producer.send(TOPIC, b"warm").get(timeout=30)
    todo, send = records(task), producer.send
    clock = Clock()
    for value in todo:
        send(TOPIC, value)
    producer.flush()
    result = clock.measured()
    producer.close()
    return result


def run_confluent_kafka(task: dict[str, Any]) -> Measurement:
    """`produce()` without a callback: it only fills a queue, so look at its memory beside its rate."""
    from confluent_kafka import Producer

    tuned = {
        "linger.ms": LINGER_MS,
        "batch.size": BATCH_BYTES,
        "batch.num.messages": 100_000,
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 256 << 10,
    }
    config = {"bootstrap.servers": task["bootstrap"], "acks": "all", "enable.idempotence": True}
    producer = Producer({**config, **(tuned if task["tuned"] else {})})
    producer.produce(TOPIC, b"warm")
    producer.flush(30)
    todo, produce = records(task), producer.produce
    clock = Clock()
    for value in todo:
        while True:
            try:
                produce(TOPIC, value)
                break
            except BufferError:
                producer.poll(0.01)
    producer.flush()
    return clock.measured()


def run_aiokafka(task: dict[str, Any]) -> Measurement:
    return asyncio.run(_run_aiokafka(task))


async def _run_aiokafka(task: dict[str, Any]) -> Measurement:
    from aiokafka import AIOKafkaProducer

    tuned = {"linger_ms": LINGER_MS, "max_batch_size": BATCH_BYTES, "max_request_size": 4 << 20}
    producer = AIOKafkaProducer(
        bootstrap_servers=task["bootstrap"],
        acks="all",
        enable_idempotence=True,
        **(tuned if task["tuned"] else {}),
    )
    await producer.start()
    await producer.send_and_wait(TOPIC, b"warm")
    todo, send = records(task), producer.send
    clock = Clock()
    for value in todo:
        await send(TOPIC, value)
    await producer.flush()
    result = clock.measured()
    await producer.stop()
    return result


CLIENTS: dict[str, Callable[[dict[str, Any]], Measurement]] = {
    "splashdam": run_splashdam,
    "kafka-python": run_kafka_python,
    "confluent-kafka": run_confluent_kafka,
    "aiokafka": run_aiokafka,
}


def main() -> None:
    task = json.loads(sys.argv[1])
    result = CLIENTS[task["client"]](task)
    print(json.dumps({**result, "version": metadata.version(task["client"])}))


if __name__ == "__main__":
    main()
