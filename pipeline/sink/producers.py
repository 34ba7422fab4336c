"""The producers of a worker process: one for each set of options, kept for the next task.

Spark uses a worker process again for many tasks, and forks new ones from it at any time. A producer is of use
only where it was made, so a process that finds another one's forgets them. Producers close themselves when
their process exits; those that no task has asked for for a while are closed when the next one asks for any.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import attrs

from splashdam.client.producer import KafkaProducer
from splashdam.net.clock import Clock, SystemClock
from splashdam.pipeline.sink.options import SinkOptions

IDLE_MS = 600_000
"""As ``spark.kafka.producer.cache.timeout`` of Spark's own sink."""

GIVE_UP_SECONDS = 1.0
"""What a producer may still take whose task has failed, or that nobody uses any more."""


@attrs.define
class _Kept:
    producer: KafkaProducer
    last_used_ms: float


class ProducerCache:
    """The producers of one process.

    Args:
        clock: for how long they are idle.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pid = os.getpid()
        self._kept: dict[tuple[tuple[str, str], ...], _Kept] = {}

    @contextmanager
    def producer(self, options: SinkOptions) -> Iterator[KafkaProducer]:
        """The producer of these options, for one task. It is given up where the task fails.

        Raises:
            KafkaConfigurationError: it cannot be made.
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
"""Of this process, and of those forked from it."""
