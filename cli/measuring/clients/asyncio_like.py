"""Measures the producers of asyncio programs by the same calls: ours, aiokafka's and confluent-kafka's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

from splashdam.cli.measuring.clock import Clock, Measurement, due_times, latency_figures
from splashdam.cli.measuring.task import Task, all_values, values

Send: TypeAlias = Callable[..., Awaitable["asyncio.Future[Any]"]]
"""``await send(topic, value=…)`` returns the future of the delivery; headers are a keyword."""

TASKS = 100

HEADERS: Sequence[tuple[str, bytes]] = [("trace", b"0123456789abcdef"), ("source", b"bench")]


async def gathered(send: Send, task: Task, **more: Any) -> Measurement:
    """Send all records, then wait for all futures with ``gather``."""
    topic, todo = task.topic, all_values(task)
    clock = Clock()
    await asyncio.gather(*[await send(topic, value=value, **more) for value in todo])
    return clock.measured()


async def gathered_with_headers(send: Send, task: Task) -> Measurement:
    """The same, with two headers for each record."""
    return await gathered(send, task, headers=HEADERS)


async def in_tasks(send: Send, task: Task) -> Measurement:
    """In 100 tasks, each of which waits for its record before it sends the next one."""
    topic, todo = task.topic, all_values(task)

    async def one_after_the_other() -> None:
        for value in todo:
            await (await send(topic, value=value))

    clock = Clock()
    await asyncio.gather(*(one_after_the_other() for _ in range(TASKS)))
    return clock.measured()


async def awaited(send: Send, task: Task) -> Measurement:
    """Measure each record that one task sends and waits for, at the pace if answers come soon enough."""
    value, seconds = values(task.size)[0], []
    clock = Clock()
    for due in due_times(task):
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        sent = time.perf_counter()
        await (await send(task.topic, value=value))
        seconds.append(time.perf_counter() - sent)
    return {**clock.measured(), **latency_figures(seconds)}


CALLS: Mapping[str, Callable[[Send, Task], Awaitable[Measurement]]] = {
    "gathered": gathered,
    "gathered_with_headers": gathered_with_headers,
    "in_tasks": in_tasks,
    "awaited": awaited,
}
