"""A scan over a topic, the newest records first: one window of one partition after the other.

Records are unpacked and searched in slices of a millisecond beside the loop. While other clients of the
broker in this process ask for something, the scan rests nine times as long as it works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

import attrs
import trio

from splashdam.console.criteria import Criteria
from splashdam.console.source import RunBeside
from splashdam.model.broker_errors import CorruptMessageError, OffsetOutOfRangeError
from splashdam.model.errors import UnsupportedCodecError, message_of
from splashdam.model.options import MAX_LONG
from splashdam.model.values import TopicPartition
from splashdam.net.clock import Clock
from splashdam.net.cluster.fetch_client import FetchClient
from splashdam.record.aborted_transactions import ABORT, control_type
from splashdam.record.batch import BatchHeader
from splashdam.record.legacy import is_legacy
from splashdam.record.reader import iter_records, iter_unpacked_records, unpack_records
from splashdam.record.record import Record
from splashdam.record.stored import iter_stored_headers

SLICE_MS = 1.0
_BETWEEN = 64
"""Records after which the time of a slice is looked at."""

CHUNK_BYTES = 512 * 1024
"""One fetch: the loop copies it in one go."""

_CHUNKS = 8
"""Fetches in the largest window: the last one of a window is mostly a small rest."""

_LEAST_BYTES = 4096
_FIRST_WINDOW = 64
_REST = 9
"""How much longer than it works a scan rests while others work."""


@attrs.frozen(kw_only=True)
class Hit:
    """A record that was found, or a batch that cannot be read.

    Attributes:
        topic_partition: where.
        record: None for a batch that cannot be read.
        header: of its batch.
        marker: ``commit`` or ``abort`` for a record that ends a transaction, else empty.
        problem: why the batch cannot be read.
    """

    topic_partition: TopicPartition
    record: Record | None
    header: BatchHeader
    marker: str = ""
    problem: str = ""

    @property
    def offset(self) -> int:
        """The offset of the record, or the first of the batch."""
        return self.header.base_offset if self.record is None else self.record.offset

    @property
    def timestamp_ms(self) -> int:
        """The time of the record, or the largest of the batch."""
        return self.header.max_timestamp if self.record is None else self.record.timestamp_ms


@attrs.frozen(kw_only=True)
class Span:
    """What is searched of a partition.

    Attributes:
        first: offset.
        end: the offset behind the last.
        bytes_per_offset: about, for progress and the size of windows.
    """

    first: int
    end: int
    bytes_per_offset: float = 0.0


class Walk:
    """Walks through the bytes of a partition, from offset ``low`` up to ``high``.

    Args:
        where: the partition.
        batches: bytes of its log.
        wanted: what is searched for.
        low: offset.
        high: likewise; None: up to the end.

    Attributes:
        next_offset: the offset behind what has been walked through.
        hits: what is found, in order; None now and then between.
    """

    def __init__(
        self,
        where: TopicPartition,
        batches: memoryview,
        wanted: Criteria,
        *,
        low: int,
        high: int | None = None,
    ) -> None:
        self.next_offset = low
        self.hits = self._walk()
        self._where = where
        self._batches = batches
        self._wanted = wanted
        self._low = low
        self._high = MAX_LONG if high is None else high

    def _walk(self) -> Iterator[Hit | None]:
        for start, header in iter_stored_headers(self._batches):
            if header.base_offset >= self._high:
                self.next_offset = max(self.next_offset, self._high)
                return
            # Nothing is found, but `advance` may end its slice here.
            yield None
            if header.next_offset > self._low:
                yield from (
                    self._in_marker(start, header) if header.is_control else self._in_batch(start, header)
                )
            self.next_offset = max(self.next_offset, header.next_offset)

    def _in_marker(self, start: int, header: BatchHeader) -> Iterator[Hit]:
        if self._wanted.matches is None and self._low <= header.base_offset:
            marker = "abort" if control_type(self._batches, start) == ABORT else "commit"
            for record in iter_records(self._batches, start):
                yield Hit(topic_partition=self._where, record=record, header=header, marker=marker)

    def _in_batch(self, start: int, header: BatchHeader) -> Iterator[Hit | None]:
        matches = self._wanted.matches
        try:
            for number, record in enumerate(_records(self._batches, start, header, self._wanted.needle)):
                if self._low <= record.offset < self._high and (matches is None or matches(record)):
                    yield Hit(topic_partition=self._where, record=record, header=header)
                elif not number % _BETWEEN:
                    yield None
        except (CorruptMessageError, UnsupportedCodecError) as error:
            yield Hit(topic_partition=self._where, record=None, header=header, problem=message_of(error))

    async def all(self, run: RunBeside, clock: Clock) -> list[Hit]:
        """Return all hits; slices of the work run beside the loop."""
        hits, has_more = list[Hit](), True
        while has_more:
            some, has_more = await run(partial(advance, self.hits, clock.now_ms))
            hits += some
        return hits


def _records(batches: memoryview, start: int, header: BatchHeader, needle: bytes | None) -> Iterator[Record]:
    if is_legacy(batches, start):
        return iter_records(batches, start)
    records = bytes(unpack_records(batches, start, header))
    # Most batches have no hit, and this is much faster than a look at each record.
    if needle is not None and needle not in records:
        return iter(())
    return iter_unpacked_records(header, records)


def advance(
    found: Iterator[Hit | None], now_ms: Callable[[], float], limit_ms: float = SLICE_MS
) -> tuple[list[Hit], bool]:
    """Go on for a slice of time; return the hits, and whether there is more."""
    until_ms = now_ms() + limit_ms
    hits = []
    for each in found:
        if each is not None:
            hits.append(each)
        if now_ms() >= until_ms:
            return hits, True
    return hits, False


class Scan:
    """Searches spans of a topic's partitions; ``step`` does one window of one of them.

    Args:
        client: fetches.
        topic: name of the topic.
        spans: what is searched, by partition.
        wanted: what is searched for.
        run: runs slices beside the loop.
        clock: of the console.
        work_of_others: counts what other clients of this process ask for; None: there are none.

    Attributes:
        searched_to: the offset from which each partition has been searched.
        gone: offsets that were deleted before they were searched.
    """

    def __init__(
        self,
        client: FetchClient,
        topic: str,
        spans: Mapping[int, Span],
        wanted: Criteria,
        *,
        run: RunBeside,
        clock: Clock,
        work_of_others: Callable[[], int] | None = None,
    ) -> None:
        self.searched_to = {partition: span.end for partition, span in spans.items()}
        self.gone = 0
        self._client = client
        self._topic = topic
        self._spans = spans
        self._wanted = wanted
        self._run = run
        self._clock = clock
        self._work_of_others = work_of_others
        self._work_seen = work_of_others() if work_of_others else 0
        # What is shown as it is ends after some records; what is searched mostly goes on for long.
        self._window = {
            partition: _FIRST_WINDOW if wanted.matches is None else self._per_chunk(span)
            for partition, span in spans.items()
        }
        self._line = [partition for partition, span in spans.items() if span.end > span.first]

    @property
    def is_done(self) -> bool:
        """Whether all has been searched."""
        return not self._line

    @property
    def total_bytes(self) -> int:
        """About how much there is to search."""
        return round(sum((span.end - span.first) * span.bytes_per_offset for span in self._spans.values()))

    @property
    def searched_bytes(self) -> int:
        """About how much of that has been searched."""
        return round(
            sum(
                (span.end - self.searched_to[partition]) * span.bytes_per_offset
                for partition, span in self._spans.items()
            )
        )

    def leave(self, partitions: Iterable[int]) -> None:
        """Search no more of these partitions."""
        left = set(partitions)
        self._line = [each for each in self._line if each not in left]

    async def step(self) -> list[Hit]:
        """Search the next window of the partition whose turn it is; return what was found, the newest first.

        Raises:
            KafkaError: the cluster does not answer.
        """
        partition = self._line.pop(0)
        span, high = self._spans[partition], self.searched_to[partition]
        low = max(span.first, high - self._window[partition])
        hits = await self._search(partition, low, high)
        self.searched_to[partition] = low
        # Where much is found a window is small: the page wants the newest, and not thousands at once.
        window = self._window[partition]
        is_rich = len(hits) > _FIRST_WINDOW and self._wanted.matches is not None
        self._window[partition] = (
            max(1, window // 4) if is_rich else min(window * 2, _CHUNKS * self._per_chunk(span))
        )
        if low > span.first:
            self._line.append(partition)
        hits.reverse()
        return hits

    def _per_chunk(self, span: Span) -> int:
        """Return how many offsets one fetch holds."""
        return max(1, int(CHUNK_BYTES / span.bytes_per_offset)) if span.bytes_per_offset else _FIRST_WINDOW

    async def _search(self, partition: int, low: int, high: int) -> list[Hit]:
        where, position, hits = TopicPartition(self._topic, partition), low, list[Hit]()
        per_offset = self._spans[partition].bytes_per_offset
        while position < high:
            began_ms = self._clock.now_ms()
            # No more than the window: what lies behind it has been searched.
            size = min(CHUNK_BYTES, _LEAST_BYTES + int((high - position) * per_offset))
            try:
                fetched = await self._client.fetch_bytes(
                    self._topic, {partition: position}, max_partition_bytes=size
                )
            except OffsetOutOfRangeError:  # retention was faster
                self.gone += high - position
                break
            await self._rest(began_ms)
            batches = fetched.get(partition, memoryview(b""))
            walk = Walk(where, batches, self._wanted, low=position, high=high)
            has_more = True
            while has_more:
                began_ms = self._clock.now_ms()
                some, has_more = await self._run(partial(advance, walk.hits, self._clock.now_ms))
                hits += some
                await self._rest(began_ms)
            # The same request would get the same answer, for ever.
            if walk.next_offset <= position:
                break
            position = walk.next_offset
        return hits

    async def _rest(self, began_ms: float) -> None:
        """Let others work, if there are any, for longer than this scan has worked."""
        if self._work_of_others is None:
            return
        work = self._work_of_others()
        if work != self._work_seen:
            self._work_seen = work
            await trio.sleep(_REST * (self._clock.now_ms() - began_ms) / 1000)
