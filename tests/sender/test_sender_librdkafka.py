"""The sender against a broker that we did not write: librdkafka's mock cluster, over TCP and in real time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager, closing
from typing import Any

import pytest
import trio
from support.clients.holding import holding
from support.clients.librdkafka_mock import LibrdkafkaMock, librdkafka_mock

from splashdam.accumulator.accumulator import RecordAccumulator
from splashdam.accumulator.open_batches import Appended
from splashdam.model.broker_errors import TopicAuthorizationFailedError, error_class
from splashdam.model.values import TopicPartition
from splashdam.net.clock import SystemClock
from splashdam.net.connect import TcpConnect
from splashdam.net.reentrant_lock import ReentrantLock
from splashdam.record.compression import NO_COMPRESSION
from splashdam.record.kernel import FutureCell
from splashdam.sender.metadata import Metadata
from splashdam.sender.sender import Sender
from splashdam.sender.settings import SenderSettings
from splashdam.sender.wakeup import Wakeup

PRODUCE, INIT_PRODUCER_ID = 0, 22


@pytest.fixture
def mock() -> Iterator[LibrdkafkaMock]:
    """Two brokers and a topic with four partitions."""
    with librdkafka_mock(2) as cluster:
        cluster.create_topic("t", 4)
        yield cluster


class Application:
    """A sender over TCP."""

    def __init__(self, mock: LibrdkafkaMock, **options: Any) -> None:
        settings = SenderSettings(bootstrap=mock.bootstrap, delivery_timeout_ms=20_000, **options)
        self.accumulator = RecordAccumulator(
            batch_bytes=16_384,
            linger_ms=1,
            buffer_memory=1 << 20,
            compression=NO_COMPRESSION,
            delivery_timeout_ms=settings.delivery_timeout_ms,
            retry_backoff_ms=10,
            retry_backoff_max_ms=50,
            random=lambda: 0.5,
        )
        self.metadata = Metadata(random=lambda: 0.5, retry_backoff_ms=10, retry_backoff_max_ms=50)
        self.guard = ReentrantLock()
        self.wakeup = Wakeup()
        self.clock = SystemClock()
        self.sender = Sender(
            settings=settings,
            accumulator=self.accumulator,
            metadata=self.metadata,
            connect=TcpConnect(),
            clock=self.clock,
            guard=self.guard,
            wakeup=self.wakeup,
        )

    @asynccontextmanager
    async def running(self) -> Any:
        """Runs the sender, at most 300 seconds."""
        with trio.fail_after(300), closing(self.wakeup):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.sender.run)
                yield
                self.sender.initiate_close()

    def send(self, value: bytes, partition: int = 0) -> FutureCell:
        """Appends and wakes."""
        now_ms = self.clock.now_ms()
        with holding(self.guard):
            self.metadata.request_topic("t", now_ms)
            answer = self.accumulator.append(
                TopicPartition("t", partition), now_ms, self.clock.wall_ms(), None, value, None
            )
        self.wakeup.wake()
        assert isinstance(answer, Appended)
        return answer.future

    async def outcome(self, future: FutureCell) -> int | BaseException:
        """Waits for the end of a record."""
        done = trio.Event()
        if future.outcome.add_waiter(done.set, future.index) is not None:
            await done.wait()
        error = future.outcome.error_of(future.index)
        return future.outcome.offset_of(future.index) if error is None else error


def read_back(mock: LibrdkafkaMock, count: int) -> dict[int, list[bytes]]:
    """The values of all partitions, read by confluent-kafka's consumer."""
    confluent_kafka = pytest.importorskip("confluent_kafka")
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": ",".join(f"{host}:{port}" for host, port in mock.bootstrap), "group.id": "g"}
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition("t", number, 0) for number in range(4)])
        values: dict[int, list[bytes]] = {number: [] for number in range(4)}
        while sum(map(len, values.values())) < count:
            messages = consumer.consume(1000, timeout=300)
            assert messages, values
            for message in messages:
                assert message.error() is None
                values[message.partition()].append(message.value())
        return values
    finally:
        consumer.close()


async def test_records_arrive(mock: LibrdkafkaMock) -> None:
    """Two thousand records over four partitions and two brokers; confluent-kafka reads them in order."""
    application = Application(mock)
    async with application.running():
        futures = [application.send(b"%05d" % number, number % 4) for number in range(2000)]
        outcomes = [await application.outcome(future) for future in futures]
    assert outcomes == [number // 4 for number in range(2000)]
    values = read_back(mock, 2000)
    assert values == {p: [b"%05d" % n for n in range(2000) if n % 4 == p] for p in range(4)}


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([6, 6, 6], None),
        ([19, 19, 19], None),
        ([7], None),
        ([2], None),
        ([45], None),
        ([59], None),
        ([10], error_class(10)),
        ([87], error_class(87)),
        ([29], TopicAuthorizationFailedError),
    ],
    ids=str,
)
async def test_injected_errors(
    mock: LibrdkafkaMock, codes: list[int], expected: Callable[..., Any] | None
) -> None:
    """The rows of the table in facts/producer.md: this record, and always the next one."""
    application = Application(mock)
    async with application.running():
        assert await application.outcome(application.send(b"warm")) == 0
        mock.push_errors(PRODUCE, *codes)
        outcome = await application.outcome(application.send(b"x"))
        if expected is None:
            assert outcome == 1
        else:
            assert type(outcome) is expected
        assert await application.outcome(application.send(b"next")) == (2 if expected is None else 1)
        assert application.sender.fatal_error is None


async def test_duplicate_sequence(mock: LibrdkafkaMock) -> None:
    """46 counts as delivered, without an offset; the next record goes through."""
    application = Application(mock)
    async with application.running():
        await application.outcome(application.send(b"warm"))
        mock.push_errors(PRODUCE, 46)
        assert await application.outcome(application.send(b"x")) == -1
        assert isinstance(await application.outcome(application.send(b"next")), int)


async def test_leader_moves(mock: LibrdkafkaMock) -> None:
    """The partition changes its broker in the middle; nothing is lost."""
    application = Application(mock)
    async with application.running():
        await application.outcome(application.send(b"warm"))
        for node_id in (1, 2, 1):
            mock.set_leader("t", 0, node_id)
            futures = [application.send(b"%d" % number) for number in range(20)]
            outcomes = [await application.outcome(future) for future in futures]
            assert all(isinstance(outcome, int) for outcome in outcomes), outcomes


async def test_producer_id_is_asked_for_again(mock: LibrdkafkaMock) -> None:
    """Retriable errors of InitProducerId only cost time."""
    mock.push_errors(INIT_PRODUCER_ID, 15, 14)
    application = Application(mock)
    async with application.running():
        assert await application.outcome(application.send(b"x")) == 0
