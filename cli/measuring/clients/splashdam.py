"""Measures splashdam."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from splashdam.cli.measuring.clients import asyncio_like, kafka_like
from splashdam.cli.measuring.clients.security import security_options
from splashdam.cli.measuring.clock import Clock, Measurement, due_times, latency_figures
from splashdam.cli.measuring.task import Task, chunks, values, without_address
from splashdam.record.kernel import IMPL


def send_many(producer: Any, task: Task) -> Measurement:
    """Send lists of values; each call returns one delivery for all of its records."""
    todo = chunks(task)
    clock = Clock()
    for chunk in todo:
        producer.send_many(task.topic, chunk)
    producer.flush()
    return clock.measured()


def send_arrow(producer: Any, task: Task) -> Measurement:
    """Send Arrow tables, which are made beforehand, as a data frame would provide them."""
    import pyarrow

    lists = list(chunks(task))
    full = pyarrow.table({"value": pyarrow.array(lists[0], pyarrow.binary())})
    todo = [full.slice(0, len(each)) for each in lists]
    clock = Clock()
    for table in todo:
        producer.send_arrow(task.topic, table)
    producer.flush()
    return clock.measured()


async def awaiting(producer: Any, task: Task) -> Measurement:
    """Measure each ``await (await send())`` of a trio task, at the same pace if answers come soon enough."""
    import trio

    value, seconds = values(task.size)[0], []
    clock = Clock()
    for due in due_times(task):
        await trio.sleep(max(0.0, due - time.perf_counter()))
        sent = time.perf_counter()
        await (await producer.send(task.topic, value))
        seconds.append(time.perf_counter() - sent)
    return {**clock.measured(), **latency_figures(seconds)}


async def _measure_in_a_loop(task: Task) -> Measurement:
    from splashdam.client.async_producer import AsyncKafkaProducer

    made_with = kafka_like.options(task)
    async with AsyncKafkaProducer(**made_with, **security_options()) as producer:
        await (await producer.send(task.topic, b"warm"))
        result = await awaiting(producer, task)
    return {**result, "options": without_address(made_with)}


CALLS: Mapping[str, Callable[[Any, Task], Measurement]] = {
    **kafka_like.CALLS,
    "send_many": send_many,
    "send_arrow": send_arrow,
}


def measure(task: Task) -> Measurement:
    """Measure with a new producer; the result names the kernel's twin (``c`` or ``python``)."""
    if task.call in asyncio_like.CALLS:
        return {**asyncio.run(_measure_under_asyncio(task)), "twin": IMPL}
    if task.call == "awaiting":
        from splashdam.net.run import run_in_trio

        return {**run_in_trio(_measure_in_a_loop, task), "twin": IMPL}
    from splashdam.client.producer import KafkaProducer

    return {**kafka_like.measure(KafkaProducer, CALLS[task.call], task), "twin": IMPL}


async def _measure_under_asyncio(task: Task) -> Measurement:
    from splashdam.client.asyncio_producer import AsyncioKafkaProducer

    made_with = kafka_like.options(task)
    async with AsyncioKafkaProducer(**made_with, **security_options()) as producer:
        await producer.send_and_wait(task.topic, b"warm")
        result = await asyncio_like.CALLS[task.call](producer.send, task)
    return {**result, "options": without_address(made_with)}
