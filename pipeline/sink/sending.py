"""Sending the rows of a task, and the producers that a worker process keeps for the next task.

Spark reuses a worker process for many tasks, and forks new ones from it at any time. A producer works only in
the process that made it, so a process that inherits producers drops them. Producers close themselves when
their process exits; those that no task has used for a while are closed when the next task asks for one.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import attrs

from splashdam.client.producer import KafkaProducer
from splashdam.net.clock import Clock, SystemClock
from splashdam.pipeline.sink.options import SinkOptions
from splashdam.pipeline.sink.rows import RowReader

if TYPE_CHECKING:
    import pyarrow as pa

    from splashdam.client.reports import BulkDelivery


def send_rows(producer: KafkaProducer, reader: RowReader, batches: Iterable[pa.RecordBatch]) -> int:
    """Send all rows, and wait until the cluster has acknowledged them.

    Args:
        producer: sends them.
        reader: interprets the columns.
        batches: of the task.

    Returns:
        The number of rows.

    Raises:
        KafkaError: a row was not written; the error of the first such row.
        BulkSendError: a row cannot be sent.
    """
    sent = 0
    under_way: deque[BulkDelivery] = deque()
    for batch in batches:
        for mine in reader.read(batch):
            under_way.append(producer.send_arrow(mine.topic, mine.rows, may_be_empty=True, **mine.arguments))
            sent += mine.rows.num_rows
        # Not only at the end, so that an error ends the task early.
        while under_way and under_way[0].done():
            under_way.popleft().get()
    producer.flush()
    for delivery in under_way:
        delivery.get()
    return sent


IDLE_MS = 600_000
"""The default of ``spark.kafka.producer.cache.timeout`` in Spark's own sink."""

GIVE_UP_SECONDS = 1.0
"""Time for closing a producer whose task failed, or that is idle."""


@attrs.define
class _Kept:
    producer: KafkaProducer
    last_used_ms: float


class ProducerCache:
    """The producers of one process.

    Args:
        clock: measures how long producers are idle.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pid = os.getpid()
        self._kept: dict[tuple[tuple[str, str], ...], _Kept] = {}

    @contextmanager
    def producer(self, options: SinkOptions) -> Iterator[KafkaProducer]:
        """Lend the producer of these options to one task. It is closed if the task fails.

        Raises:
            KafkaConfigurationError: the options are invalid.
        """
        if self._pid != os.getpid():
            self._pid, self._kept = os.getpid(), {}
        self._close_idle()
        key = options.properties
        kept = self._kept.pop(key, None) or _Kept(KafkaProducer(**options.producer_options()), 0)
        try:
            yield kept.producer
        except BaseException:
            kept.producer.close(GIVE_UP_SECONDS)
            raise
        kept.last_used_ms = self._clock.now_ms()
        self._kept[key] = kept

    def _close_idle(self) -> None:
        now_ms = self._clock.now_ms()
        for key, kept in list(self._kept.items()):
            if now_ms - kept.last_used_ms > IDLE_MS:
                del self._kept[key]
                kept.producer.close(GIVE_UP_SECONDS)


CACHE = ProducerCache(SystemClock())
"""The cache of this process. A forked process starts with an empty one, see `ProducerCache.producer`."""
