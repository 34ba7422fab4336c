"""Fetching while the caller decodes, within bounds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager

import pytest
import trio.testing

from splashdam.model.broker_errors import OffsetOutOfRangeError
from splashdam.model.errors import ProtocolError
from splashdam.model.values import TopicPartition
from splashdam.net.clock import SystemClock
from splashdam.net.cluster.fetch_client import FetchedBatches, FetchSettings
from splashdam.pipeline.clusters import AHEAD, ReadAhead
from splashdam.pipeline.trio_thread import ClientPool, TrioThread

WHERE = TopicPartition("flights", 0)
SIZE = 100_000


class FakeClient:
    """Has one record at each offset, and answers with one."""

    def __init__(self, *, has_news: bool = True) -> None:
        self.has_news = has_news
        self.asked: list[int] = []
        self.limits: list[int] = []

    async def fetch_batches(
        self, topic: str, positions: Mapping[int, int], *, max_partition_bytes: int
    ) -> list[FetchedBatches]:
        """The next record."""
        await trio.lowlevel.checkpoint()
        ((partition, offset),) = positions.items()
        self.asked.append(offset)
        self.limits.append(max_partition_bytes)
        if offset == 9:
            return []
        return [
            FetchedBatches(
                TopicPartition(topic, partition),
                memoryview(bytes(SIZE)),
                [],
                offset + self.has_news,
                high_watermark=99,
                last_stable_offset=99,
                log_start_offset=0,
            )
        ]


@pytest.fixture
def thread() -> Iterator[TrioThread]:
    """A loop for the test."""
    thread = TrioThread("test")
    yield thread
    thread.close()


def reading(
    thread: TrioThread, client: FakeClient, end_offset: int, settings: FetchSettings | None = None
) -> Iterator[FetchedBatches]:
    """A range from 0."""

    @asynccontextmanager
    async def open_client() -> AsyncIterator[FakeClient]:
        yield client

    clients = ClientPool(thread.nursery, open_client)
    ahead = ReadAhead(
        thread,
        clients,  # type: ignore[arg-type]  # it has the one method that is used
        settings or FetchSettings(),
        SystemClock(),
        where=WHERE,
        first_offset=0,
        end_offset=end_offset,
    )
    return ahead.chunks()


def test_memory_is_bounded(thread: TrioThread) -> None:
    """Trap 13: beside the chunk that the caller holds, one more is fetched, however slow the caller is."""
    client = FakeClient()
    chunks = reading(thread, client, 8)
    for taken in range(1, 9):
        assert next(chunks).next_offset == taken
        thread.call(trio.testing.wait_all_tasks_blocked)
        assert len(client.asked) == min(taken + AHEAD - 1, 8)
    assert list(chunks) == []


def test_short_ranges_ask_for_little(thread: TrioThread) -> None:
    """As much as the rest of the range may take, by what came so far; never more than the settings allow."""
    client = FakeClient()
    list(reading(thread, client, 4))
    assert client.limits == [65_536, 3 * SIZE, 2 * SIZE, SIZE]
    client = FakeClient()
    next(reading(thread, client, 2**40))
    assert client.limits[0] == FetchSettings().max_partition_bytes


def test_a_failure_comes_in_its_place(thread: TrioThread) -> None:
    """After all that was fetched before it."""
    chunks = reading(thread, FakeClient(), 20)
    assert [next(chunks).next_offset for _ in range(9)] == list(range(1, 10))
    with pytest.raises(ProtocolError, match="does not name flights-0, which was requested"):
        next(chunks)


def test_stopping_early_stops_fetching(thread: TrioThread) -> None:
    """The interrupted client is not used again."""
    client = FakeClient()
    chunks = reading(thread, client, 8)
    next(chunks)
    chunks.close()  # type: ignore[attr-defined]  # a generator
    thread.call(trio.testing.wait_all_tasks_blocked)
    assert len(client.asked) <= AHEAD


def test_a_broker_that_sends_no_news_is_not_asked_without_a_pause(thread: TrioThread) -> None:
    """It answers at once, with batches from before the position: so many questions as there are pauses."""
    client = FakeClient(has_news=False)
    settings = FetchSettings(timeout_ms=60, retry_backoff_ms=20)
    with pytest.raises(OffsetOutOfRangeError, match="flights-0: no record at offset 0 for 60 ms"):
        list(reading(thread, client, 4, settings))
    assert 2 <= len(client.asked) <= 60 / 20 + 1
