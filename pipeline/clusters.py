"""A cluster as planners and tasks of Spark ask it: calls that block, over connections kept per process."""

from __future__ import annotations

import atexit
import os
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, TypeVar

import trio

from splashdam.client.running.connecting import TrackedConnect
from splashdam.model.values import IsolationLevel, TopicPartition
from splashdam.net.admin.topics import describe_topic, list_topics
from splashdam.net.clock import SystemClock
from splashdam.net.cluster.cluster_client import ClusterClient, open_cluster_client
from splashdam.net.cluster.fetch_client import EARLIEST, LATEST, FetchClient, open_fetch_client
from splashdam.net.cluster.fetching import FetchedBatches
from splashdam.net.guard import Guard
from splashdam.pipeline.cluster_config import ClusterConfig
from splashdam.pipeline.read_ahead import ReadAhead
from splashdam.pipeline.trio_thread import ClientPool, TrioThread
from splashdam.storage.topic_names import INTERNAL_TOPICS
from splashdam.wire.fields import NO_UUID

__all__ = ["EARLIEST", "LATEST", "ClusterConfig", "ClusterReader", "reader_for"]

T = TypeVar("T")
I = TypeVar("I")  # noqa: E741  # an item

_AT_ONCE = 8
"""Questions of one kind that are under way together."""

_INTERNAL_TOPICS = INTERNAL_TOPICS | {"__share_group_state"}
"""Kafka's own, which no pattern of topics means."""


class ClusterReader:
    """Asks a cluster, and reads from it. Any number of threads may use one; get it from `reader_for`.

    Failures that may pass (a leader moves, a connection breaks) are met by asking again, for
    ``default.api.timeout.ms``, 60 s unless told otherwise.

    Args:
        config: the cluster.
        isolation_level: with read_committed, records of aborted transactions are listed as such, and reading
            ends before the first transaction that is open.
    """

    def __init__(self, config: ClusterConfig, isolation_level: IsolationLevel) -> None:
        self._settings = config.fetch_settings(isolation_level)
        self._clock = SystemClock()
        self._connect = TrackedConnect(config.connect())
        common: dict[str, Any] = {
            "connect": self._connect,
            "clock": self._clock,
            "authenticator": config.authenticator(),
        }
        self._loop = TrioThread(f"splashdam reader of {config.bootstrap_servers}")
        nursery = self._loop.nursery
        open_fetch: Callable[[], AbstractAsyncContextManager[FetchClient]] = partial(
            open_fetch_client, config.addresses, settings=self._settings, **common
        )
        open_cluster: Callable[[], AbstractAsyncContextManager[ClusterClient]] = partial(
            open_cluster_client, config.addresses, settings=config.client_settings(), **common
        )
        self._fetch_clients = ClientPool(nursery, open_fetch)
        self._cluster_clients = ClientPool(nursery, open_cluster)

    def topics(self) -> list[str]:
        """The names of all topics but Kafka's internal ones, in order.

        Raises:
            CannotConnectError: nobody listens at any address.
        """
        return [name for name in self._ask(list_topics) if name not in _INTERNAL_TOPICS]

    def partitions(self, topic: str) -> list[int]:
        """The topic's partition numbers, ascending.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
            CannotConnectError: nobody listens at any address.
        """
        info = self._ask(partial(describe_topic, topic=topic))
        return [each.partition for each in info.partitions]

    def offsets(self, topic: str, partitions: Sequence[int], timestamp: int) -> dict[int, int]:
        """For each partition the first offset at or after a time, -1 where there is none.

        Args:
            topic: its name.
            partitions: which partitions.
            timestamp: milliseconds since the epoch, or `LATEST`, the offset behind the last record that can
                be read (with read_committed: that is stable), or `EARLIEST`.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
        """

        async def ask() -> dict[int, int]:
            async with self._fetch_clients.borrow() as client:
                return await client.offsets(topic, partitions, timestamp)

        return self._loop.call(ask)

    def topic_id(self, topic: str) -> bytes:
        """What tells a topic from a later one of its name; zeros from a broker that knows no such ids.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
        """
        return self._ask(partial(describe_topic, topic=topic)).topic_id

    def read(
        self, where: TopicPartition, first_offset: int, end_offset: int, *, topic_id: bytes = NO_UUID
    ) -> Generator[FetchedBatches, None, None]:
        """The batches of a range, in order, while the next ones are under way.

        The first may begin before the range and the last may end behind it; `RecordDecoder` cuts. With
        read_committed it ends early at a transaction that is open: who plans a range asks for `LATEST`, which
        is never behind one. Close the generator to stop early.

        Args:
            where: the partition.
            first_offset: where to begin.
            end_offset: where to stop.
            topic_id: of `topic_id`, when the range was planned; without it a topic that is made anew is
                noticed while it is read, but not if it was before.

        Raises:
            OffsetOutOfRangeError: the first offset is not there any more, or the log ends before the range.
            UnknownTopicOrPartitionError: the topic was deleted, and perhaps made anew.
            CorruptMessageError: the header of a batch is damaged.
        """
        ahead = ReadAhead(
            self._loop,
            self._fetch_clients,
            self._settings,
            self._clock,
            where=where,
            first_offset=first_offset,
            end_offset=end_offset,
            topic_id=topic_id,
        )
        yield from ahead.chunks()

    def ask(self, question: Callable[[ClusterClient, FetchClient], Awaitable[T]]) -> T:
        """What somebody makes of the cluster's answers.

        Raises:
            KafkaError: as the question does.
        """

        async def run() -> T:
            async with self._cluster_clients.borrow() as cluster, self._fetch_clients.borrow() as fetch:
                return await question(cluster, fetch)

        return self._loop.call(run)

    def ask_for_each(
        self, items: Sequence[I], question: Callable[[ClusterClient, I], Awaitable[T]]
    ) -> list[T]:
        """The answers to a question about each item, in their order; some are asked at once.

        Raises:
            KafkaError: as the first question that fails; the others are given up.
        """
        answers: dict[int, T] = {}
        failures: list[Exception] = []
        waiting = iter(enumerate(items))

        async def work(scope: trio.CancelScope) -> None:
            try:
                async with self._cluster_clients.borrow() as client:
                    for number, item in waiting:
                        answers[number] = await question(client, item)
            except Exception as error:
                failures.append(error)
                scope.cancel()

        async def run() -> list[T]:
            async with trio.open_nursery() as nursery:
                for _ in range(min(len(items), _AT_ONCE)):
                    nursery.start_soon(work, nursery.cancel_scope)
            if failures:
                raise failures[0]
            return [answers[number] for number in range(len(items))]

        return self._loop.call(run)

    @property
    def is_closed(self) -> bool:
        """Whether it is of no more use."""
        return self._loop.is_closed

    def close(self) -> None:
        """Ends connections and thread; calls that wait raise ``IllegalStateError``."""
        self._loop.close()

    def close_in_child(self) -> None:
        """After a fork: lets go of the child's copies of the sockets."""
        self._connect.close_in_child()

    def _ask(self, question: Callable[[ClusterClient], Awaitable[T]]) -> T:
        async def ask() -> T:
            async with self._cluster_clients.borrow() as client:
                return await question(client)

        return self._loop.call(ask)


_guard = Guard()
_readers: dict[tuple[int, ClusterConfig, IsolationLevel], ClusterReader] = {}


def reader_for(config: ClusterConfig, isolation_level: IsolationLevel) -> ClusterReader:
    """The reader of this process for a cluster: made once, kept for the tasks that follow.

    A process that was forked gets one of its own, and so does who comes after one was closed.

    Raises:
        KafkaConfigurationError: a property has no sense, or a file is missing here.
    """
    key = os.getpid(), config, isolation_level
    return _guard.run(_reader_for, key)


def _reader_for(key: tuple[int, ClusterConfig, IsolationLevel]) -> ClusterReader:
    reader = _readers.get(key)
    if reader is None or reader.is_closed:
        _, config, isolation_level = key
        reader = _readers[key] = ClusterReader(config, isolation_level)
    return reader


@atexit.register
def _close_all() -> None:
    for reader in _readers.values():
        reader.close()


def _after_fork_in_child() -> None:
    _guard.renew()
    for reader in _readers.values():
        reader.close_in_child()
    _readers.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
