"""Measures confluent-kafka (librdkafka).

``produce()`` without a callback only fills a queue, and does not report what becomes of a record. So read its
rate together with its memory.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from splashdam.cli.measuring.clients import asyncio_like
from splashdam.cli.measuring.clients.security import security_options
from splashdam.cli.measuring.clock import (
    DELIVERY_SECONDS,
    Acks,
    Clock,
    Measurement,
    due_times,
    latency_figures,
)
from splashdam.cli.measuring.task import (
    TUNED_REQUEST_BYTES,
    Task,
    all_pairs,
    all_values,
    chunks,
    values,
    without_address,
)

_POLL_EVERY = 500
"""Records between two polls for callbacks. Usual is a poll per record, which would be slower."""


def options(task: Task) -> dict[str, Any]:
    """Return the producer's options."""
    made = {"bootstrap.servers": task.bootstrap, "acks": "all", "enable.idempotence": True}
    if task.tuned:
        made |= {
            "linger.ms": task.linger_ms,
            "batch.size": task.batch_bytes,
            "batch.num.messages": 100_000,
            "message.max.bytes": TUNED_REQUEST_BYTES,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 256 << 10,
        }
    if task.compression != "none":
        made["compression.type"] = task.compression
    return made


def _produce(producer: Any, topic: str, *arguments: Any, **named: Any) -> None:
    """Try again while the queue is full, as its documentation says."""
    while True:
        try:
            producer.produce(topic, *arguments, **named)
        except BufferError:
            producer.poll(0.01)
        else:
            return


def _flush(producer: Any) -> None:
    left = producer.flush(DELIVERY_SECONDS)
    if left:
        raise TimeoutError(f"{left:,} records were not delivered within {DELIVERY_SECONDS} s")


def produce(producer: Any, task: Task) -> Measurement:
    """Call ``produce`` without a callback.

    The loop is written out: a function around each call would cost time that the client does not take.
    """
    topic, produce_one = task.topic, producer.produce
    if task.key_bytes:
        pairs = all_pairs(task)
        clock = Clock()
        for value, key in pairs:
            try:
                produce_one(topic, value, key)
            except BufferError:
                _produce(producer, topic, value, key)
    else:
        todo = all_values(task)
        clock = Clock()
        for value in todo:
            try:
                produce_one(topic, value)
            except BufferError:
                _produce(producer, topic, value)
    _flush(producer)
    return clock.measured()


def callback(producer: Any, task: Task) -> Measurement:
    """Have ``poll`` call a Python function for each record."""
    topic, produce_one, poll, acks = task.topic, producer.produce, producer.poll, Acks()

    def delivered(error: Any, _message: Any) -> None:
        if error is None:
            acks.count += 1

    todo, until_poll = all_values(task), _POLL_EVERY
    clock = Clock()
    for value in todo:
        try:
            produce_one(topic, value, on_delivery=delivered)
        except BufferError:
            _produce(producer, topic, value, on_delivery=delivered)
        until_poll -= 1
        if not until_poll:
            poll(0)
            until_poll = _POLL_EVERY
    _flush(producer)
    acks.wait_for(task.count)
    return clock.measured()


def produce_batch(producer: Any, task: Task) -> Measurement:
    """Send lists of dicts, which are made beforehand. If the queue is full, send the refused records again.

    confluent-kafka marks a refused record by an entry in its dict; such a dict cannot be sent again as it is.
    """
    prepared = {len(chunk): [{"value": value} for value in chunk] for chunk in chunks(task)}
    todo = [prepared[len(chunk)] for chunk in chunks(task)]
    clock = Clock()
    for messages in todo:
        left = messages
        while producer.produce_batch(task.topic, left) < len(left):
            refused = [{"value": each["value"]} for each in left if "_error" in each]
            for each in left:
                each.pop("_error", None)
            left = refused
            producer.poll(0.01)
    _flush(producer)
    return clock.measured()


def paced(producer: Any, task: Task) -> Measurement:
    """Measure from ``produce`` to the callback, at a steady pace; the thread polls while it waits."""
    value, acks = values(task.size)[0], Acks()

    def delivery(sent: float) -> Callable[[Any, Any], None]:
        def delivered(error: Any, _message: Any) -> None:
            if error is None:
                acks.seconds.append(time.perf_counter() - sent)
                acks.count += 1

        return delivered

    clock = Clock()
    for due in due_times(task):
        while (remaining := due - time.perf_counter()) > 0:
            producer.poll(remaining)
        producer.produce(task.topic, value, on_delivery=delivery(time.perf_counter()))
    _flush(producer)
    acks.wait_for(task.count)
    return {**clock.measured(), **latency_figures(acks.seconds)}


def blocking(producer: Any, task: Task) -> Measurement:
    """Measure from ``produce`` to the callback, waiting for each record, at the same pace if possible."""
    value, seconds, acks = values(task.size)[0], [], Acks()

    def delivered(error: Any, _message: Any) -> None:
        if error is None:
            acks.count += 1

    clock = Clock()
    for number, due in enumerate(due_times(task)):
        while (remaining := due - time.perf_counter()) > 0:
            time.sleep(remaining)
        sent = time.perf_counter()
        producer.produce(task.topic, value, on_delivery=delivered)
        while acks.count <= number:
            producer.poll(1)
        seconds.append(time.perf_counter() - sent)
    return {**clock.measured(), **latency_figures(seconds)}


CALLS: Mapping[str, Callable[[Any, Task], Measurement]] = {
    "produce": produce,
    "callback": callback,
    "produce_batch": produce_batch,
    "paced": paced,
    "blocking": blocking,
}


def measure(task: Task) -> Measurement:
    """Measure with a new producer, after it has delivered a first record."""
    from confluent_kafka import Producer

    if task.call in asyncio_like.CALLS:
        return asyncio.run(_measure_under_asyncio(task))
    made_with = options(task)
    producer = Producer({**made_with, **security_options()})
    # As for the other clients: connections, metadata and the producer id are not part of the measurement.
    producer.produce(task.topic, b"warm")
    _flush(producer)
    return {**CALLS[task.call](producer, task), "options": without_address(made_with)}


async def _measure_under_asyncio(task: Task) -> Measurement:
    from confluent_kafka.aio import AIOProducer

    # Records wait in its buffer until it has so many: as many as there are tasks. Else each would wait for
    # `buffer_timeout`, a second by default; so a single task that waits for each record is not measured.
    batch_size = asyncio_like.TASKS if task.call == "in_tasks" else 1000
    made_with = options(task)
    producer = AIOProducer({**made_with, **security_options()}, batch_size=batch_size, buffer_timeout=0.005)
    warm = await producer.produce(task.topic, value=b"warm")
    await producer.flush()
    await warm
    result = await asyncio_like.CALLS[task.call](producer.produce, task)
    await producer.close()
    return {**result, "options": without_address(made_with)}
