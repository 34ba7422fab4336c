"""One run of ``tail``: where each partition begins and ends, and what is written meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import BinaryIO

import attrs
import click
import trio

from splashdam.cli.connecting import Cluster
from splashdam.cli.exiting import interrupts_raise
from splashdam.cli.output import counted, output_failures
from splashdam.cli.records.rendering import Render
from splashdam.model.errors import IllegalArgumentError
from splashdam.model.transactions import OffsetAndMetadata
from splashdam.model.values import IsolationLevel, TopicPartition
from splashdam.net.admin.groups import commit_offsets, committed_offsets, describe_group
from splashdam.net.clock import SystemClock
from splashdam.net.cluster.cluster_client import ClusterClient
from splashdam.net.cluster.fetch_client import (
    EARLIEST,
    LATEST,
    FetchClient,
    FetchedPartition,
    FetchSettings,
    open_fetch_client,
)

_COMMIT_INTERVAL_S = 5.0
"""Kafka's default of auto.commit.interval.ms."""


@attrs.frozen(kw_only=True)
class Start:
    """Where each partition begins; exactly one attribute is given.

    Attributes:
        timestamp: `EARLIEST`, `LATEST`, or milliseconds since the epoch.
        offset: this one, or the nearest that exists.
        last: so many records before the end.
    """

    timestamp: int | None = None
    offset: int | None = None
    last: int | None = None

    @property
    def is_end(self) -> bool:
        """Whether only records that are still to come are read."""
        return self.timestamp == LATEST

    async def offsets(self, client: FetchClient, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        """Return the first offset to read of each partition."""
        last = await client.offsets(topic, partitions, LATEST)
        if self.timestamp == LATEST:
            return last
        if self.timestamp is not None and self.timestamp != EARLIEST:
            found = await client.offsets(topic, partitions, self.timestamp)
            return {number: offset if offset >= 0 else last[number] for number, offset in found.items()}
        first = await client.offsets(topic, partitions, EARLIEST)
        if self.offset is not None:
            return {number: min(max(self.offset, first[number]), last[number]) for number in partitions}
        if self.last is not None:
            return {number: max(first[number], last[number] - self.last) for number in partitions}
        return first


@attrs.define(kw_only=True)
class Output:
    """Where records are written, until as many are written as are wanted.

    Attributes:
        stream: takes the bytes.
        render: makes them.
        left: how many records are still wanted; None: all.
    """

    stream: BinaryIO
    render: Render
    left: int | None

    def write(self, news: FetchedPartition, end: int | None) -> int:
        """Write the records before ``end``, and return the offset behind the last one that was looked at.

        Raises:
            BrokenPipeError: the reader of the output has closed it.
            OutputFailure: the output cannot be written.
        """
        with interrupts_raise(), output_failures():
            for record in news.records:
                if self.left == 0 or (end is not None and record.offset >= end):
                    self.stream.flush()
                    return record.offset
                self.stream.write(self.render(news.topic_partition, record))
                if self.left is not None:
                    self.left -= 1
            self.stream.flush()
        return news.next_offset


class GroupProgress:
    """Reads and commits the offsets of a group, as a consumer does that is assigned its partitions by hand.

    Args:
        client: of the cluster, used by nothing else.
        group: the group id.
    """

    def __init__(self, client: ClusterClient, group: str) -> None:
        self._client = client
        self._group = group
        self._committed: Mapping[TopicPartition, OffsetAndMetadata] = {}
        self._reached: dict[TopicPartition, int] = {}

    async def begin(self) -> None:
        """Read what is committed.

        Raises:
            IllegalArgumentError: the group has members, which read the partitions themselves.
        """
        found = await describe_group(self._client, self._group)
        if found is not None and found.members:
            raise IllegalArgumentError(
                f"group {self._group!r} has {counted(len(found.members), 'member')}, which commit its"
                " offsets; stop them, or read without --group"
            )
        self._committed = await committed_offsets(self._client, self._group)

    def committed(self, where: TopicPartition) -> int | None:
        """Return the offset that was committed, if one was."""
        return self._committed[where].offset if where in self._committed else None

    def reached(self, where: TopicPartition, offset: int) -> None:
        """Note that everything before the offset is written."""
        self._reached[where] = offset

    async def commit(self) -> None:
        """Commit what was reached and is not committed yet."""
        reached = dict(self._reached)
        if reached:
            found = {where: OffsetAndMetadata(offset) for where, offset in reached.items()}
            await commit_offsets(self._client, self._group, found)
            # Only now: a commit that is cancelled or fails leaves its offsets to the next one.
            for where, offset in reached.items():
                if self._reached.get(where) == offset:
                    del self._reached[where]

    async def keep_committing(self) -> None:
        """Commit every five seconds."""
        while True:
            await trio.sleep(_COMMIT_INTERVAL_S)
            await self.commit()


@attrs.define(kw_only=True)
class Reading:
    """One run of the command.

    Attributes:
        topics: what to read.
        partitions: which of their partitions; none means all.
        start: where to begin.
        exit_at_end: stop at the offsets that were the ends at the beginning.
        until_ms: stop before the first record at or after this time, which has passed.
        isolation_level: whether records of open and aborted transactions are read.
        output: where the records go.
        progress: of a group, whose offsets come before ``start`` and are committed; None without a group.
    """

    topics: Sequence[str]
    partitions: Sequence[int]
    start: Start
    exit_at_end: bool
    until_ms: int | None
    isolation_level: IsolationLevel
    output: Output
    progress: GroupProgress | None = None

    async def run(self, cluster: Cluster) -> None:
        """Read until there is enough, each topic over connections of its own.

        Raises:
            KafkaError: a topic or a partition does not exist, or the cluster cannot be read.
            BrokenPipeError: the reader of the output has closed it.
            OutputFailure: the output cannot be written.
        """
        async with trio.open_nursery() as nursery:
            for topic in self.topics:
                nursery.start_soon(self._read, cluster, topic, nursery.cancel_scope)

    async def _read(self, cluster: Cluster, topic: str, enough: trio.CancelScope) -> None:
        settings = FetchSettings(
            client_id="splashdam-tail",
            timeout_ms=cluster.timeout_ms,
            request_timeout_ms=cluster.timeout_ms,
            awaits_first_broker=False,
            isolation_level=self.isolation_level,
        )
        async with open_fetch_client(
            cluster.addresses,
            connect=cluster.connect,
            clock=SystemClock(),
            settings=settings,
            authenticator=cluster.authenticator,
        ) as client:
            partitions = await self._chosen(client, topic)
            positions = await self._starts(client, topic, partitions)
            ends = await self._ends(client, topic, partitions)
            while self.output.left != 0:
                positions = {
                    number: offset
                    for number, offset in positions.items()
                    if offset < ends.get(number, offset + 1)
                }
                if not positions:
                    return
                for news in await client.fetch(topic, positions):
                    number = news.topic_partition.partition
                    reached = self.output.write(news, ends.get(number))
                    # Not the last record's offset plus one: markers and compacted records have offsets, too.
                    positions[number] = news.next_offset
                    if self.progress is not None:
                        self.progress.reached(news.topic_partition, reached)
            enough.cancel()

    async def _chosen(self, client: FetchClient, topic: str) -> list[int]:
        existing = await client.partitions(topic)
        missing = set(self.partitions) - set(existing)
        if missing:
            raise IllegalArgumentError(
                f"{topic} has no partition {min(missing)}; it has {len(existing)}, numbered from 0"
            )
        return sorted(set(self.partitions)) or existing

    async def _starts(self, client: FetchClient, topic: str, partitions: list[int]) -> dict[int, int]:
        found = await self.start.offsets(client, topic, partitions)
        if self.progress is not None:
            for number in partitions:
                committed = self.progress.committed(TopicPartition(topic, number))
                found[number] = found[number] if committed is None else committed
        elif self.start.is_end and not self.exit_at_end and self.until_ms is None:
            click.echo(f"following {topic} from its end", err=True)
        return found

    async def _ends(self, client: FetchClient, topic: str, partitions: list[int]) -> dict[int, int]:
        if not self.exit_at_end and self.until_ms is None:
            return {}
        # Asked for once: with a busy producer the present end would move on for ever.
        ends = await client.offsets(topic, partitions, LATEST)
        if self.until_ms is not None:
            late = await client.offsets(topic, partitions, self.until_ms)
            ends = {number: late[number] if late[number] >= 0 else end for number, end in ends.items()}
        return ends


@asynccontextmanager
async def committing(client: ClusterClient, group: str) -> AsyncIterator[GroupProgress]:
    """Yield a group's progress; commit it meanwhile and, whatever ends the block, in the end."""
    progress = GroupProgress(client, group)
    await progress.begin()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(progress.keep_committing)
        try:
            yield progress
        finally:
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):  # Ctrl-C, too; the client has a time-out
                await progress.commit()
