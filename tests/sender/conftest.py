"""A sender with everything around it, in memory and in virtual time."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from typing import Any

import attrs
import pytest
import trio
from support.clients.holding import holding
from support.scripted.cluster import ScriptedCluster
from trio.testing import MockClock

from splashdam.accumulator.accumulator import RecordAccumulator
from splashdam.accumulator.open_batches import Appended
from splashdam.model.values import TopicPartition
from splashdam.net.memory import MemoryNetwork
from splashdam.net.reentrant_lock import ReentrantLock
from splashdam.record.compression import NO_COMPRESSION
from splashdam.record.kernel import FutureCell
from splashdam.sender.metadata import Metadata
from splashdam.sender.sender import Sender
from splashdam.sender.settings import SenderSettings
from splashdam.sender.wakeup import Wakeup
from splashdam.testing.clock import VirtualClock

ACCUMULATOR_DEFAULTS: dict[str, Any] = {
    "batch_bytes": 16_384,
    "linger_ms": 0,
    "buffer_memory": 1_000_000,
    "retry_backoff_ms": 100,
    "retry_backoff_max_ms": 1_000,
    "topic_compression": None,
    "availability_timeout_ms": 0,
}


class Rig:
    """One sender, one scripted cluster, and what an application does with them."""

    def __init__(
        self, clock: VirtualClock, seed: int = 0, *, cluster: dict[str, Any], **options: Any
    ) -> None:
        self.clock = clock
        self.network = MemoryNetwork()
        self.cluster = ScriptedCluster(self.network, **cluster)
        names = {field.name for field in attrs.fields(SenderSettings)}
        settings = SenderSettings(
            **{"bootstrap": self.cluster.bootstrap, **{k: v for k, v in options.items() if k in names}}
        )
        drawn = random.Random(seed)
        accumulator_options = {
            **ACCUMULATOR_DEFAULTS,
            **{k: v for k, v in options.items() if k in ACCUMULATOR_DEFAULTS},
        }
        self.accumulator = RecordAccumulator(
            compression=options.get("compression", NO_COMPRESSION),
            delivery_timeout_ms=settings.delivery_timeout_ms,
            random=drawn.random,
            **accumulator_options,
        )
        self.metadata = Metadata(random=drawn.random)
        self.wakeup = Wakeup()
        self.guard = ReentrantLock()
        self.sender = Sender(
            settings=settings,
            accumulator=self.accumulator,
            metadata=self.metadata,
            connect=self.network.connect,
            clock=clock,
            guard=self.guard,
            wakeup=self.wakeup,
            on_drained=options.get("on_drained", lambda: None),
            random=drawn.random,
        )
        self.futures: list[FutureCell] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Cluster and sender run; on the way out the sender is closed, and everything must have ended."""
        with closing(self.wakeup):
            async with trio.open_nursery() as nursery:
                await nursery.start(self.cluster.run)
                async with trio.open_nursery() as sending:
                    sending.start_soon(self.sender.run)
                    yield
                    self.sender.initiate_close()
                nursery.cancel_scope.cancel()
        assert self.accumulator.free_bytes == self.accumulator.buffer_memory
        assert all(future.done() for future in self.futures)

    def append(self, value: bytes, topic: str = "t", partition: int = 0, key: bytes | None = None) -> Any:
        """Appends and wakes, as the producers do; asks for the topic if it is not known."""
        now_ms = self.clock.now_ms()
        with holding(self.guard):
            if not self.metadata.cluster.partition_count(topic):
                self.metadata.request_topic(topic, now_ms)
            answer = self.accumulator.append(
                TopicPartition(topic, partition), now_ms, self.clock.wall_ms(), key, value, None
            )
        self.wakeup.wake()
        return answer

    def send(self, value: bytes, **where: Any) -> FutureCell:
        """A record for which there is memory."""
        answer = self.append(value, **where)
        assert isinstance(answer, Appended)
        self.futures.append(answer.future)
        return answer.future

    async def outcome(self, future: FutureCell) -> int | BaseException:
        """Waits for a record's end: its offset, or its error."""
        done = trio.Event()
        if future.outcome.add_waiter(done.set, future.index) is not None:
            await done.wait()
        error = future.outcome.error_of(future.index)
        return future.outcome.offset_of(future.index) if error is None else error

    async def send_and_wait(self, value: bytes, **where: Any) -> int | BaseException:
        """One record's whole way."""
        return await self.outcome(self.send(value, **where))

    def values(self, topic: str = "t", partition: int = 0) -> list[bytes | None]:
        """The values in a partition of the cluster."""
        return self.cluster.logs[TopicPartition(topic, partition)].values


@pytest.fixture
def make_rig(autojump_clock: MockClock) -> Iterator[Callable[..., Rig]]:
    """Makes rigs: options of accumulator and sender by name, ``cluster`` for the scripted cluster."""
    made: list[Rig] = []

    def make(**options: Any) -> Rig:
        cluster = {"topics": {"t": 1}, **options.pop("cluster", {})}
        made.append(Rig(VirtualClock(autojump_clock), cluster=cluster, **options))
        return made[-1]

    yield make
    for each in made:
        each.wakeup.close()


@pytest.fixture
def rig_class() -> type[Rig]:
    """The rig itself, for tests that run their own loops."""
    return Rig
