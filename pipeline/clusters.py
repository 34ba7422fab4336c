"""A Kafka cluster as Spark's planners and tasks use it: its address and client properties as a value that
travels to workers, and a reader with blocking calls over connections that each process keeps."""

from __future__ import annotations

import atexit
import logging
import os
import queue
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

import attrs
import trio

from splashdam.client.local import PREFIX
from splashdam.client.running.connecting import TrackedConnect, authenticator, make_tcp_connect, secured
from splashdam.client.settings.producer_settings import ProducerSettings
from splashdam.client.settings.rules import options_from_properties, producer_settings
from splashdam.model.broker_errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError
from splashdam.model.errors import (
    IllegalStateError,
    KafkaConfigurationError,
    ProtocolError,
    SettingText,
    WrongSettingError,
)
from splashdam.model.options import MAX_INT
from splashdam.model.values import IsolationLevel, TopicPartition
from splashdam.net.addresses import parse_bootstrap_servers
from splashdam.net.admin.topics import describe_topic, list_topics
from splashdam.net.clock import Clock, SystemClock
from splashdam.net.cluster.cluster_client import ClusterClient, ClusterClientSettings, open_cluster_client
from splashdam.net.cluster.fetch_client import (
    EARLIEST,
    LATEST,
    FetchClient,
    FetchedBatches,
    FetchSettings,
    open_fetch_client,
)
from splashdam.net.connect import Connect
from splashdam.net.connection.connection import Authenticator
from splashdam.net.reentrant_lock import ReentrantLock
from splashdam.pipeline.options import KAFKA, integer, one_of
from splashdam.pipeline.trio_thread import ClientPool, TrioThread
from splashdam.storage.topic_names import INTERNAL_TOPICS
from splashdam.wire.fields import NO_UUID

_logger = logging.getLogger("splashdam.pipeline")

BOOTSTRAP = "bootstrap.servers"
CLIENT_ID = "splashdam-pipeline"

CHUNK_BYTES = 8 * 1024 * 1024
"""Bytes that a Fetch requests of a partition by default; a reader holds up to three such chunks."""

_LEVELS = {
    "read_uncommitted": IsolationLevel.READ_UNCOMMITTED,
    "read_committed": IsolationLevel.READ_COMMITTED,
}

_READING: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "isolation.level": ("isolation_level", one_of(*_LEVELS)),
    "fetch.min.bytes": ("min_bytes", integer(0, MAX_INT)),
    "fetch.max.bytes": ("max_bytes", integer(1, MAX_INT)),
    "fetch.max.wait.ms": ("max_wait_ms", integer(0, MAX_INT)),
    "max.partition.fetch.bytes": ("max_partition_bytes", integer(1, MAX_INT)),
    "default.api.timeout.ms": ("timeout_ms", integer(1, MAX_INT)),
}
"""Properties of consumers that apply here and that producers do not have."""

_WITHOUT_MEANING = frozenset(
    (
        "check.crcs",
        "client.rack",
        "exclude.internal.topics",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "max.poll.records",
        "partition.assignment.strategy",
        "session.timeout.ms",
    )
)
"""Properties of consumers in a group. Here is no group: Spark keeps the offsets in its checkpoint."""

_REFUSED = {
    "auto.offset.reset": SettingText("set the option {0} instead", "startingOffsets"),
    "enable.auto.commit": "no offsets are committed; they are in Spark's checkpoint",
    "interceptor.classes": "interceptors are not called for what Spark reads or writes",
    "key.deserializer": "keys are read as bytes; cast the column",
    "value.deserializer": "values are read as bytes; cast the column",
    "key.serializer": "cast the column to string or binary instead",
    "value.serializer": "cast the column to string or binary instead",
}


@attrs.frozen
class ClusterConfig:
    """A cluster's address and the client's properties. It can be pickled, and serves as a dictionary key.

    Attributes:
        bootstrap_servers: ``host:port`` of some brokers, separated by commas.
    """

    bootstrap_servers: str
    _properties: tuple[tuple[str, str], ...] = attrs.field(default=(), repr=False)  # with passwords

    @classmethod
    def from_options(cls, kafka: Mapping[str, str]) -> ClusterConfig:
        """Make a config of the ``kafka.*`` options, without that prefix: Kafka's names for consumers and
        producers.

        Raises:
            KafkaConfigurationError: ``bootstrap.servers`` is missing or ``embedded:…``, or a property is
                unknown, refused or invalid.
        """
        given = {name: text.strip() for name, text in kafka.items()}
        servers = given.pop(BOOTSTRAP, "")
        if not servers:
            raise KafkaConfigurationError(
                f"option {KAFKA + BOOTSTRAP} is missing: name HOST:PORT of a broker"
            )
        if servers.startswith(PREFIX):
            problem = (
                "Spark's workers are processes of their own, and cannot reach a broker inside this one. Start"
                " `splashdam broker`, or EmbeddedBroker(directory, port=0) in the driver, and give its"
                " address"
            )
            raise WrongSettingError(KAFKA + BOOTSTRAP, problem, given=repr(servers))
        for name in given.keys() & _REFUSED.keys():
            raise KafkaConfigurationError(
                SettingText("{0} cannot be set: {why}", KAFKA + name, why=_REFUSED[name])
            )
        for name in sorted(given.keys() & _WITHOUT_MEANING):
            _logger.warning("%s has no effect: Spark keeps the offsets, and there is no group", KAFKA + name)
            del given[name]
        config = cls(servers, tuple(sorted(given.items())))
        parse_bootstrap_servers(servers)
        config.fetch_settings(config.isolation_level)
        return config

    @property
    def properties(self) -> dict[str, str]:
        """The properties for a producer's ``from_properties``: all but those that concern only reading."""
        rest = {name: text for name, text in self._properties if name not in _READING}
        return {BOOTSTRAP: self.bootstrap_servers, **rest}

    @property
    def isolation_level(self) -> IsolationLevel:
        """``kafka.isolation.level``; read_uncommitted by default, as in Kafka's consumers."""
        level: IsolationLevel = self._reading().get("isolation_level", IsolationLevel.READ_UNCOMMITTED)
        return level

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return parse_bootstrap_servers(self.bootstrap_servers)

    def connect(self) -> Connect:
        """Return how to connect: TCP, with TLS if the properties say so.

        Raises:
            KafkaConfigurationError: a file that TLS needs is missing on this machine, or invalid.
        """
        settings = self._settings()
        return secured(settings, make_tcp_connect(settings))

    def authenticator(self) -> Authenticator | None:
        """Return what authenticates the client with SASL, None without SASL."""
        return authenticator(self._settings())

    def fetch_settings(self, isolation_level: IsolationLevel) -> FetchSettings:
        """Return the settings of a fetch client.

        Raises:
            KafkaConfigurationError: a property is unknown or invalid.
        """
        settings = self._settings()
        given = {"max_partition_bytes": CHUNK_BYTES, **self._reading(), "isolation_level": isolation_level}
        fetch = FetchSettings(
            client_id=self._client_id(),
            request_timeout_ms=settings.request_timeout_ms,
            retry_backoff_ms=settings.retry_backoff_ms,
            **given,
        )
        return attrs.evolve(fetch, max_bytes=max(fetch.max_bytes, fetch.max_partition_bytes))

    def client_settings(self) -> ClusterClientSettings:
        """Return the settings of a client for metadata and coordinators."""
        settings = self._settings()
        return ClusterClientSettings(
            client_id=self._client_id(),
            request_timeout_ms=settings.request_timeout_ms,
            retry_backoff_ms=settings.retry_backoff_ms,
        )

    def _client_id(self) -> str:
        return dict(self._properties).get("client.id", CLIENT_ID)

    def _settings(self) -> ProducerSettings:
        return producer_settings(options_from_properties(self.properties, what="client"))

    def _reading(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, text in self._properties:
            if name in _READING:
                field, parse = _READING[name]
                try:
                    found[field] = parse(text)
                except ValueError as error:
                    raise WrongSettingError(KAFKA + name, str(error), given=repr(text)) from error
        if "isolation_level" in found:
            found["isolation_level"] = _LEVELS[found["isolation_level"]]
        return found


__all__ = ["EARLIEST", "LATEST", "ClusterConfig", "ClusterReader", "reader_for"]

T = TypeVar("T")
I = TypeVar("I")  # noqa: E741  # an item

_AT_ONCE = 8
"""Requests of one kind that are in flight together."""


class Clients(NamedTuple):
    """The clients that a function passed to `ClusterReader.ask` may use.

    Attributes:
        cluster: for coordinators and topics.
        fetch: for records and offsets, at the reader's isolation level.
    """

    cluster: ClusterClient
    fetch: FetchClient


class ClusterReader:
    """Sends requests to a cluster and reads from it. It is thread-safe; get one from `reader_for`.

    Transient failures (a leader moves, a connection breaks) are retried for ``default.api.timeout.ms``, 60 s
    by default.

    Args:
        config: the cluster.
        isolation_level: with read_committed, Fetch responses list aborted transactions, and reading ends at
            the last stable offset.
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
        """Return the names of all topics but Kafka's internal ones, sorted.

        Raises:
            CannotConnectError: nobody listens at any address.
        """
        return [name for name in self._ask(list_topics) if name not in INTERNAL_TOPICS]

    def partitions(self, topic: str) -> list[int]:
        """Return the topic's partition numbers, ascending.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
            CannotConnectError: nobody listens at any address.
        """
        info = self._ask(partial(describe_topic, topic=topic))
        return [each.partition for each in info.partitions]

    def offsets(self, topic: str, partitions: Sequence[int], timestamp: int) -> dict[int, int]:
        """Return for each partition the offset of its first record at or after a timestamp, else -1.

        Args:
            topic: its name.
            partitions: which partitions.
            timestamp: milliseconds since the epoch, or `EARLIEST`, or `LATEST`: the high watermark, or
                with read_committed the last stable offset.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
        """

        async def ask() -> dict[int, int]:
            async with self._fetch_clients.borrow() as client:
                return await client.offsets(topic, partitions, timestamp)

        return self._loop.call(ask)

    def topic_id(self, topic: str) -> bytes:
        """Return the topic's id, which a later topic of the same name does not have; zeros from old brokers.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
        """
        return self._ask(partial(describe_topic, topic=topic)).topic_id

    def read(
        self, where: TopicPartition, first_offset: int, end_offset: int, *, topic_id: bytes = NO_UUID
    ) -> Generator[FetchedBatches, None, None]:
        """Yield the batches of a range in order, while the next ones are fetched.

        The first batch may begin before the range and the last may end after it; `RecordDecoder` drops the
        surplus. With read_committed the range ends early at an open transaction, so plan it up to `LATEST`,
        which lies before the first open transaction. Close the generator to stop early.

        Args:
            where: the partition.
            first_offset: where to begin.
            end_offset: where to stop.
            topic_id: what `topic_id` returned when the range was planned. Without it, a topic that is deleted
                and created again is noticed only if that happens while it is read.

        Raises:
            OffsetOutOfRangeError: the first offset no longer exists, or the log ends before the range does.
            UnknownTopicOrPartitionError: the topic was deleted, and perhaps created again.
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

    def ask(self, function: Callable[[Clients], Awaitable[T]]) -> T:
        """Run a coroutine function with clients of the cluster, and return its result.

        Raises:
            KafkaError: raised by ``function``.
        """

        async def run() -> T:
            async with self._cluster_clients.borrow() as cluster, self._fetch_clients.borrow() as fetch:
                return await function(Clients(cluster, fetch))

        return self._loop.call(run)

    def ask_for_each(
        self, items: Sequence[I], function: Callable[[ClusterClient, I], Awaitable[T]]
    ) -> list[T]:
        """Run a coroutine function for each item, some concurrently, and return the results in the items'
        order.

        Raises:
            KafkaError: raised by the first call that fails; the others are cancelled.
        """
        answers: dict[int, T] = {}
        failures: list[Exception] = []
        # Shared by all workers: whoever is free takes the next item.
        waiting = iter(enumerate(items))

        async def work(scope: trio.CancelScope) -> None:
            try:
                async with self._cluster_clients.borrow() as client:
                    for number, item in waiting:
                        answers[number] = await function(client, item)
            except Exception as error:
                # Kept, because the nursery would raise an exception group.
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
        """Whether it was closed, or belongs to the process that this one was forked from."""
        return self._loop.is_closed

    def close(self) -> None:
        """Close the connections and end the thread; waiting calls raise ``IllegalStateError``."""
        self._loop.close()

    def close_in_child(self) -> None:
        """Close the child's copies of the sockets after a fork."""
        self._connect.close_in_child()

    def _ask(self, function: Callable[[ClusterClient], Awaitable[T]]) -> T:
        async def ask() -> T:
            async with self._cluster_clients.borrow() as client:
                return await function(client)

        return self._loop.call(ask)


_guard = ReentrantLock()
_readers: dict[tuple[int, ClusterConfig, IsolationLevel], ClusterReader] = {}


def reader_for(config: ClusterConfig, isolation_level: IsolationLevel) -> ClusterReader:
    """Return this process's reader of a cluster, which is kept for later tasks.

    A forked process gets a reader of its own; a closed reader is replaced.

    Raises:
        KafkaConfigurationError: a property is invalid, or a file that it names is missing on this machine.
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
def close_readers() -> None:
    """Close this process's readers; `reader_for` makes new ones."""
    for reader in _readers.values():
        reader.close()
    _readers.clear()


def _after_fork_in_child() -> None:
    _guard.renew()
    for reader in _readers.values():
        reader.close_in_child()
    _readers.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)


AHEAD = 2
"""Chunks in memory: the one that is being decoded, and the one that is being fetched."""

_GUESSED_BYTES = 1024
"""Assumed size of a record until the first chunk has arrived."""
_LEAST_BYTES = 64 * 1024


class ReadAhead:
    """Fetches a range chunk by chunk, at most `AHEAD` chunks ahead of its consumer.

    Args:
        loop: where the fetching task runs.
        clients: fetch clients to borrow one from.
        settings: of the clients.
        clock: for the time-out of records that should exist.
        where: the partition.
        first_offset: where to begin.
        end_offset: where to stop; the last chunk may extend beyond it.
        topic_id: the topic's id; by default that of the first chunk.
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
        # This limits the queue, whose `put` must not block the loop.
        self._room = trio.Semaphore(AHEAD)
        self._scope = trio.CancelScope()
        self._chunks: queue.SimpleQueue[FetchedBatches | BaseException | None] = queue.SimpleQueue()

    def chunks(self) -> Generator[FetchedBatches, None, None]:
        """Yield the fetched chunks in order. Closing the generator stops the fetching."""
        self._loop.start_soon(self._run, lambda: self._chunks.put(_closed()))
        try:
            while (chunk := self._chunks.get()) is not None:
                if isinstance(chunk, BaseException):
                    raise chunk
                yield chunk
                del chunk  # before the next is awaited: this one's memory is free for it
                self._loop.soon(self._room.release)
        finally:
            # The thread has ended, and its tasks with it.
            with suppress(IllegalStateError):
                self._loop.soon(self._scope.cancel)

    async def _run(self) -> None:
        try:
            with self._scope:
                async with self._clients.borrow() as client:
                    await self._fetch_all(client)
        except Exception as error:  # belongs to the consumer; the loop goes on
            self._chunks.put(error)
        except BaseException:
            self._chunks.put(_closed())
            raise
        else:
            self._chunks.put(None)

    async def _fetch_all(self, client: FetchClient) -> None:
        while self._position < self._end_offset:
            # Released by the consumer for each chunk that it is done with.
            await self._room.acquire()
            fetched = await self._next(client)
            if fetched is None:
                return
            self._bytes_per_offset = len(fetched.batches) / (fetched.next_offset - self._position)
            self._position = fetched.next_offset
            self._chunks.put(fetched)

    async def _next(self, client: FetchClient) -> FetchedBatches | None:
        """Return the next chunk, None at a transaction that is still open."""
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
                    f" ms; the range ends at {self._end_offset}, the high watermark is"
                    f" {fetched.high_watermark}"
                )
            # A broker delays an empty Fetch response itself, but not one that holds only older records.
            await trio.sleep(self._settings.retry_backoff_ms / 1000)

    async def _fetch(self, client: FetchClient) -> FetchedBatches:
        topic, partition = self._where
        for fetched in await client.fetch_batches(
            topic, {partition: self._position}, max_partition_bytes=self._wanted_bytes()
        ):
            return fetched
        raise ProtocolError(f"the FetchResponse does not name {self._where}, which was requested")

    def _check_topic(self, found: bytes) -> None:
        """A topic that was created again has other records at the same offsets. Brokers before 2.8 send no
        ids."""
        if NO_UUID in (found, self._topic_id):
            self._topic_id = max(found, self._topic_id)
        elif found != self._topic_id:
            raise UnknownTopicOrPartitionError(
                f"{self._where}: the topic was deleted, and another was created under its name"
            )

    def _wanted_bytes(self) -> int:
        """Return about what the rest of the range takes."""
        # Records behind the range would be fetched in vain; a wrong estimate only costs a further request.
        rest = self._bytes_per_offset * (self._end_offset - self._position)
        return min(max(int(rest), _LEAST_BYTES), self._settings.max_partition_bytes)

    def _is_open(self, fetched: FetchedBatches) -> bool:
        committed = self._settings.isolation_level is IsolationLevel.READ_COMMITTED
        return committed and 0 <= fetched.last_stable_offset <= self._position < fetched.high_watermark


def _closed() -> IllegalStateError:
    return IllegalStateError("the reader was closed while it read")
