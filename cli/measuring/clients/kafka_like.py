"""Measures splashdam and kafka-python by the same code: they share options, calls and futures."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from splashdam.cli.measuring.clients.security import security_options
from splashdam.cli.measuring.clock import (
    DELIVERY_SECONDS,
    Acks,
    Clock,
    Measurement,
    due_times,
    latency_figures,
    sleep_until,
)
from splashdam.cli.measuring.task import (
    TUNED_REQUEST_BYTES,
    Task,
    all_pairs,
    all_values,
    values,
    without_address,
)


def options(task: Task) -> dict[str, Any]:
    """Return the producer's options."""
    made: dict[str, Any] = {"bootstrap_servers": task.bootstrap, "acks": "all", "enable_idempotence": True}
    if task.tuned:
        made |= {
            "linger_ms": task.linger_ms,
            "batch_size": task.batch_bytes,
            "max_request_size": TUNED_REQUEST_BYTES,
        }
    if task.compression != "none":
        made["compression_type"] = task.compression
    return made


def measure(kafka_producer: Any, work: Callable[[Any, Task], Measurement], task: Task) -> Measurement:
    """Run ``work`` with a new producer, after it has delivered a first record."""
    made_with = options(task)
    producer = kafka_producer(**made_with, **security_options())
    # Connections, metadata and the producer id are not part of the measurement; a cold start has its own
    # scenario.
    producer.send(task.topic, b"warm").get(timeout=DELIVERY_SECONDS)
    result = work(producer, task)
    producer.close()
    return {**result, "options": without_address(made_with)}


def send(producer: Any, task: Task) -> Measurement:
    """Call ``send`` for each record, and drop its future; the destination counts the records."""
    topic, send_one = task.topic, producer.send
    if task.key_bytes:
        pairs = all_pairs(task)
        clock = Clock()
        for value, key in pairs:
            send_one(topic, value, key)
    else:
        todo = all_values(task)
        clock = Clock()
        for value in todo:
            send_one(topic, value)
    producer.flush()
    return clock.measured()


def keep(producer: Any, task: Task) -> Measurement:
    """Keep every future, and at the end wait for each."""
    topic, send_one, todo = task.topic, producer.send, all_values(task)
    clock = Clock()
    futures = [send_one(topic, value) for value in todo]
    for future in futures:
        future.get(timeout=DELIVERY_SECONDS)
    return clock.measured()


def callback(producer: Any, task: Task) -> Measurement:
    """Have the producer's thread call a Python function for each record."""
    topic, send_one, todo, acks = task.topic, producer.send, all_values(task), Acks()

    def delivered(_metadata: Any) -> None:
        acks.count += 1

    clock = Clock()
    for value in todo:
        send_one(topic, value).add_callback(delivered)
    producer.flush()
    acks.wait_for(task.count)
    return clock.measured()


def paced(producer: Any, task: Task) -> Measurement:
    """Measure from ``send`` to the callback, at a steady pace that does not wait for answers."""
    value, acks = values(task.size)[0], Acks()

    def delivered(sent: float, _metadata: Any) -> None:
        acks.seconds.append(time.perf_counter() - sent)
        acks.count += 1

    clock = Clock()
    for due in due_times(task):
        sleep_until(due)
        sent = time.perf_counter()
        producer.send(task.topic, value).add_callback(partial(delivered, sent))
    producer.flush()
    acks.wait_for(task.count)
    return {**clock.measured(), **latency_figures(acks.seconds)}


def blocking(producer: Any, task: Task) -> Measurement:
    """Measure from ``send`` until ``get`` returns, at the same pace if answers come soon enough."""
    value, seconds = values(task.size)[0], []
    clock = Clock()
    for due in due_times(task):
        sleep_until(due)
        sent = time.perf_counter()
        producer.send(task.topic, value).get(timeout=DELIVERY_SECONDS)
        seconds.append(time.perf_counter() - sent)
    return {**clock.measured(), **latency_figures(seconds)}


CALLS: Mapping[str, Callable[[Any, Task], Measurement]] = {
    "send": send,
    "keep": keep,
    "callback": callback,
    "paced": paced,
    "blocking": blocking,
}
