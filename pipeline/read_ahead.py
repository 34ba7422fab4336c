"""One range of a partition, fetched in the loop while its reader decodes what came before."""

from __future__ import annotations

import queue
from collections.abc import Generator
from contextlib import suppress

import trio

from splashdam.model.broker_errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError
from splashdam.model.errors import IllegalStateError, ProtocolError
from splashdam.model.values import IsolationLevel, TopicPartition
from splashdam.net.clock import Clock
from splashdam.net.cluster.fetch_client import FetchClient, FetchSettings
from splashdam.net.cluster.fetching import FetchedBatches
from splashdam.pipeline.trio_thread import ClientPool, TrioThread
from splashdam.wire.fields import NO_UUID

AHEAD = 2
"""Chunks that are fetched and not yet done with: the one that is decoded, and the one under way."""

_GUESSED_BYTES = 1024
"""What an offset may cost, as long as nothing is known."""
_LEAST_BYTES = 64 * 1024


class ReadAhead:
    """Fetches a range, chunk by chunk, no further ahead than there is room for.

    Args:
        loop: where to fetch.
        clients: whom to ask.
        settings: those of the clients.
        clock: for the wait for records that should be there.
        where: the partition.
        first_offset: where to begin.
        end_offset: where to stop; the last chunk may go beyond.
        topic_id: the topic's id; without one, that of the first chunk.
    """

    def __init__(
        self,
        loop: TrioThread,
        clients: ClientPool[FetchClient],
        settings: FetchSettings,
        clock: Clock,
        *,
        where: TopicPartition,
        first_offset: int,
        end_offset: int,
        topic_id: bytes = NO_UUID,
    ) -> None:
        self._loop, self._clients, self._settings, self._clock = loop, clients, settings, clock
        self._where, self._position, self._end_offset = where, first_offset, end_offset
        self._topic_id = topic_id
        self._bytes_per_offset: float = _GUESSED_BYTES
        self._room = trio.Semaphore(AHEAD)
        self._scope = trio.CancelScope()
        self._chunks: queue.SimpleQueue[FetchedBatches | BaseException | None] = queue.SimpleQueue()

    def chunks(self) -> Generator[FetchedBatches, None, None]:
        """What is fetched, in order. Who stops early closes the generator, and the fetching stops, too."""
        self._loop.start_soon(self._run, lambda: self._chunks.put(_closed()))
        try:
            while (chunk := self._chunks.get()) is not None:
                if isinstance(chunk, BaseException):
                    raise chunk
                yield chunk
                del chunk  # what was fetched after it may use the memory
                self._loop.soon(self._room.release)
        finally:
            with suppress(IllegalStateError):
                self._loop.soon(self._scope.cancel)

    async def _run(self) -> None:
        try:
            with self._scope:
                async with self._clients.borrow() as client:
                    await self._fetch_all(client)
        except Exception as error:  # the reader's, not the loop's
            self._chunks.put(error)
        except BaseException:
            self._chunks.put(_closed())
            raise
        else:
            self._chunks.put(None)

    async def _fetch_all(self, client: FetchClient) -> None:
        while self._position < self._end_offset:
            await self._room.acquire()
            fetched = await self._next(client)
            if fetched is None:
                return
            self._bytes_per_offset = len(fetched.batches) / (fetched.next_offset - self._position)
            self._position = fetched.next_offset
            self._chunks.put(fetched)

    async def _next(self, client: FetchClient) -> FetchedBatches | None:
        """What comes next; None where what comes next is a transaction that is still open."""
        give_up_at_ms = self._clock.now_ms() + self._settings.timeout_ms
        while True:
            fetched = await self._fetch(client)
            self._check_topic(fetched.topic_id)
            if fetched.next_offset > self._position:
                return fetched
            if self._is_open(fetched):
                return None
            if self._clock.now_ms() >= give_up_at_ms:
                raise OffsetOutOfRangeError(
                    f"{self._where}: no record at offset {self._position} for {self._settings.timeout_ms:g}"
                    f" ms; asked for are those before {self._end_offset}, the high watermark is"
                    f" {fetched.high_watermark}"
                )
            # A broker waits by itself for records to come, but not if it sends what is no news.
            await trio.sleep(self._settings.retry_backoff_ms / 1000)

    async def _fetch(self, client: FetchClient) -> FetchedBatches:
        topic, partition = self._where
        for fetched in await client.fetch_batches(
            topic, {partition: self._position}, max_partition_bytes=self._wanted_bytes()
        ):
            return fetched
        raise ProtocolError(f"FetchResponse: asked about {self._where}, it does not name it")

    def _check_topic(self, found: bytes) -> None:
        """A topic that was made anew has other records at the same offsets. Old brokers do not tell."""
        if NO_UUID in (found, self._topic_id):
            self._topic_id = max(found, self._topic_id)
        elif found != self._topic_id:
            raise UnknownTopicOrPartitionError(
                f"{self._where}: the topic was deleted, and another was made by its name"
            )

    def _wanted_bytes(self) -> int:
        """No more than the rest of the range may take: what comes from behind it is thrown away."""
        rest = self._bytes_per_offset * (self._end_offset - self._position)
        return min(max(int(rest), _LEAST_BYTES), self._settings.max_partition_bytes)

    def _is_open(self, fetched: FetchedBatches) -> bool:
        committed = self._settings.isolation_level is IsolationLevel.READ_COMMITTED
        return committed and 0 <= fetched.last_stable_offset <= self._position < fetched.high_watermark


def _closed() -> IllegalStateError:
    return IllegalStateError("the reader was closed while it read")
