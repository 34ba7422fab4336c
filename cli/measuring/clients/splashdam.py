"""Measures splashdam."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from splashdam.cli.measuring.clients import kafka_like
from splashdam.cli.measuring.clock import Clock, Measurement
from splashdam.cli.measuring.task import Task, chunks
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


CALLS: Mapping[str, Callable[[Any, Task], Measurement]] = {
    **kafka_like.CALLS,
    "send_many": send_many,
    "send_arrow": send_arrow,
}


def measure(task: Task) -> Measurement:
    """Measure with a new producer; the result names the kernel's twin (``c`` or ``python``)."""
    from splashdam.client.producer import KafkaProducer

    return {**kafka_like.measure(KafkaProducer, CALLS[task.call], task), "twin": IMPL}
