"""Measures aiokafka, in an event loop of its own. Its ``send_batch`` has one future for a whole batch."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from splashdam.cli.measuring.clients import asyncio_like
from splashdam.cli.measuring.clients.security import security_options
from splashdam.cli.measuring.clock import Acks, Clock, Measurement, due_times, latency_figures
from splashdam.cli.measuring.task import (
    TUNED_REQUEST_BYTES,
    Task,
    all_pairs,
    all_values,
    values,
    without_address,
)
from splashdam.testing.contract.clients.security import with_ssl_context


def options(task: Task) -> dict[str, Any]:
    """Return the producer's options."""
    made: dict[str, Any] = {"bootstrap_servers": task.bootstrap, "acks": "all", "enable_idempotence": True}
    if task.tuned:
        made |= {
            "linger_ms": task.linger_ms,
            "max_batch_size": task.batch_bytes,
            "max_request_size": TUNED_REQUEST_BYTES,
        }
    if task.compression != "none":
        made["compression_type"] = task.compression
    return made


async def send(producer: Any, task: Task) -> Measurement:
    """Call ``send`` for each record, and drop its future."""
    topic, send_one = task.topic, producer.send
    if task.key_bytes:
        pairs = all_pairs(task)
        clock = Clock()
        for value, key in pairs:
            await send_one(topic, value, key)
    else:
        todo = all_values(task)
        clock = Clock()
        for value in todo:
            await send_one(topic, value)
    await producer.flush()
    return clock.measured()


async def callback(producer: Any, task: Task) -> Measurement:
    """Have the event loop call a Python function for each record."""
    topic, send_one, todo, acks = task.topic, producer.send, all_values(task), Acks()

    def delivered(future: asyncio.Future[Any]) -> None:
        if future.exception() is None:
            acks.count += 1

    clock = Clock()
    for value in todo:
        (await send_one(topic, value)).add_done_callback(delivered)
    await producer.flush()
    await asyncio.sleep(0)  # callbacks of the last batch run in the next turn
    acks.wait_for(task.count)
    return clock.measured()


async def batches(producer: Any, task: Task) -> Measurement:
    """Fill batches with the batch builder, and send them to each partition in turn."""
    topic, todo, partitions = task.topic, all_values(task), itertools.cycle(range(task.partitions))
    clock = Clock()
    batch = producer.create_batch()
    append = batch.append
    for value in todo:
        if append(key=None, value=value, timestamp=None) is None:
            await producer.send_batch(batch, topic, partition=next(partitions))
            batch = producer.create_batch()
            append = batch.append
            append(key=None, value=value, timestamp=None)
    await producer.send_batch(batch, topic, partition=next(partitions))
    await producer.flush()
    return clock.measured()


async def paced(producer: Any, task: Task) -> Measurement:
    """Measure from ``send`` to the future's callback, at a steady pace that does not wait for answers."""
    value, acks = values(task.size)[0], Acks()

    def delivery(sent: float) -> Callable[[asyncio.Future[Any]], None]:
        def delivered(future: asyncio.Future[Any]) -> None:
            if future.exception() is None:
                acks.seconds.append(time.perf_counter() - sent)
                acks.count += 1

        return delivered

    clock = Clock()
    for due in due_times(task):
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        sent = time.perf_counter()
        (await producer.send(task.topic, value)).add_done_callback(delivery(sent))
    await producer.flush()
    await asyncio.sleep(0)
    acks.wait_for(task.count)
    return {**clock.measured(), **latency_figures(acks.seconds)}


async def blocking(producer: Any, task: Task) -> Measurement:
    """Measure each ``send_and_wait``, at the same pace if answers come soon enough."""
    value, seconds = values(task.size)[0], []
    clock = Clock()
    for due in due_times(task):
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        sent = time.perf_counter()
        await producer.send_and_wait(task.topic, value)
        seconds.append(time.perf_counter() - sent)
    return {**clock.measured(), **latency_figures(seconds)}


CALLS: Mapping[str, Callable[[Any, Task], Awaitable[Measurement]]] = {
    "send": send,
    "callback": callback,
    "batches": batches,
    "paced": paced,
    "blocking": blocking,
}


def measure(task: Task) -> Measurement:
    """Measure with a new producer, after it has delivered a first record."""
    return asyncio.run(_measure(task))


async def _measure(task: Task) -> Measurement:
    from aiokafka import AIOKafkaProducer

    made_with = options(task)
    producer = AIOKafkaProducer(**made_with, **with_ssl_context(security_options()))
    await producer.start()
    try:
        await producer.send_and_wait(task.topic, b"warm")
        if task.call in asyncio_like.CALLS:
            result = await asyncio_like.CALLS[task.call](producer.send, task)
        else:
            result = await CALLS[task.call](producer, task)
    finally:
        await producer.stop()
    return {**result, "options": without_address(made_with)}
