"""The steps of clients of a broker whose disk fails, and the checks of its directory afterwards.

The steps cause every kind of write: records of all kinds of producers, rolled segments, transactions,
compaction, retention, topics that are created and deleted, configurations, offsets of a group.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import attrs
import trio

from splashdam.client.async_producer import AsyncKafkaProducer
from splashdam.model.broker_errors import OffsetOutOfRangeError
from splashdam.model.errors import KafkaError
from splashdam.model.transactions import OffsetAndMetadata
from splashdam.model.values import IsolationLevel, TopicPartition
from splashdam.net.admin.configs import Resource, alter_configs
from splashdam.net.admin.groups import commit_offsets, committed_offsets
from splashdam.net.admin.topics import create_partitions, create_topic, delete_records, delete_topic
from splashdam.net.clock import Clock
from splashdam.net.cluster.cluster_client import ClusterClient, ClusterClientSettings, open_cluster_client
from splashdam.net.cluster.fetch_client import EARLIEST, LATEST, FetchSettings, open_fetch_client
from splashdam.net.connect import Connect

SEGMENT_BYTES = 1024
PLAIN, ONCE, COMPACTED, RETAINED, TRANSACTIONS = TOPICS = (
    "plain",
    "not-idempotent",
    "compacted",
    "retained",
    "transactions",
)
_CONFIGS = {
    COMPACTED: {"cleanup.policy": "compact"},
    RETAINED: {"retention.bytes": str(2 * SEGMENT_BYTES)},
    # Without it a power cut may take a part of a transaction whose commit is on record, as in Kafka.
    TRANSACTIONS: {"flush.messages": "1"},
}
_KEYS = 3
_VALUE = b"." * 120
_RECORD_BYTES = 200
"""More than a record takes on disk, in a batch of its own."""


def broker_config(*, housekeeping_ms: int) -> dict[str, int | float]:
    """Return the broker's settings: small segments, and a short interval of housekeeping."""
    return {
        "num.partitions": 1,
        "log.segment.bytes": SEGMENT_BYTES,
        "log.retention.check.interval.ms": 2 * housekeeping_ms,
        "log.segment.delete.delay.ms": housekeeping_ms,
        "log.cleaner.backoff.ms": housekeeping_ms,
        "log.cleaner.min.cleanable.ratio": 0.01,
        "log.cleaner.dedupe.buffer.size": 1 << 20,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
    }


@attrs.define
class Books:
    """The records that the clients have sent, the broker's answers to them, and what is wrong on disk.

    Attributes:
        sent: values by topic; a record's number is its index in the list.
        acknowledged: numbers of the acknowledged records, by topic.
        committed: numbers of the committed transactions.
        offset: the group's last committed offset; -1 before the first commit.
        refusals: the texts of the errors that clients got.
        violations: the promises that were broken.
    """

    sent: dict[str, list[bytes]] = attrs.field(factory=dict)
    acknowledged: dict[str, set[int]] = attrs.field(factory=dict)
    committed: set[int] = attrs.field(factory=set)
    offset: int = -1
    refusals: list[str] = attrs.field(factory=list)
    violations: list[str] = attrs.field(factory=list)

    def compare(self, topic: str, found: list[bytes], *, is_power_cut: bool) -> None:
        """Compare the records of a topic with what was sent and acknowledged."""
        if topic == TRANSACTIONS:
            self._compare_transactions(found)
            return
        sent, acknowledged = self.sent.get(topic, []), self.acknowledged.get(topic, set())
        numbers = [sent.index(value) if value in sent else -1 for value in found]
        if numbers != sorted(set(numbers)) or -1 in numbers:
            self.violations.append(f"{topic}: records {numbers}")
        # The end of a log may be missing after a power cut.
        until = max(numbers, default=-1) if is_power_cut else len(sent)
        needed = {number for number in acknowledged if number <= until}
        if topic == COMPACTED:  # the newest of each key stays
            needed -= {
                old for old in needed if any(new > old and new % _KEYS == old % _KEYS for new in numbers)
            }
        if topic == RETAINED:  # the end stays
            first = min(numbers, default=len(sent))
            kept = int(_CONFIGS[RETAINED]["retention.bytes"]) // _RECORD_BYTES
            needed = {number for number in needed if number >= min(first, len(sent) - kept)}
        if lost := needed - set(numbers):
            self.violations.append(
                f"{topic}: {len(lost)} acknowledged records are gone, {min(lost)} is the first"
            )

    def _compare_transactions(self, found: list[bytes]) -> None:
        whole = {number: [b"%d %d" % (number, each) for each in range(2)] for number in range(3)}
        numbers = [number for number, values in whole.items() if set(values) & set(found)]
        if found != [value for number in numbers for value in whole[number]] or 1 in numbers:
            self.violations.append(f"{TRANSACTIONS}: {found}")
        if lost := self.committed - set(numbers):
            self.violations.append(f"{TRANSACTIONS}: {sorted(lost)} are gone")


@attrs.frozen
class Clients:
    """How to get at the broker.

    Attributes:
        host: of the broker.
        port: likewise.
        connect: opens streams.
        clock: for deadlines.
        patience_ms: how long a client tries again.
        most_refused: so many refused records end a step of the workload: the next ones would be refused, too.
    """

    host: str
    port: int
    connect: Connect
    clock: Clock
    patience_ms: float = 10_000
    most_refused: int = 1

    def admin(self) -> AbstractAsyncContextManager[ClusterClient]:
        """Open a client that administers."""
        settings = ClusterClientSettings(timeout_ms=3 * self.patience_ms)
        return open_cluster_client(
            [(self.host, self.port)], connect=self.connect, clock=self.clock, settings=settings
        )

    def producer(self, **options: Any) -> AsyncKafkaProducer:
        """Open a producer."""
        return AsyncKafkaProducer(
            connect=self.connect,
            clock=self.clock,
            bootstrap_servers=f"{self.host}:{self.port}",
            linger_ms=0,
            request_timeout_ms=self.patience_ms / 5,
            delivery_timeout_ms=self.patience_ms,
            max_block_ms=self.patience_ms,
            **options,
        )

    async def read(self, topic: str, seconds: float) -> tuple[list[bytes], str]:
        """Return the committed values of a topic, and the obstacle if not all can be read, else ""."""
        settings = FetchSettings(isolation_level=IsolationLevel.READ_COMMITTED, max_wait_ms=100)
        found: list[bytes] = []
        async with open_fetch_client(
            [(self.host, self.port)], connect=self.connect, clock=self.clock, settings=settings
        ) as client:
            end = (await client.offsets(topic, [0], LATEST))[0]
            position = (await client.offsets(topic, [0], EARLIEST))[0]
            with trio.move_on_after(seconds):
                while position < end:
                    try:
                        fetched = await client.fetch(topic, {0: position})
                    except OffsetOutOfRangeError:  # retention has removed what was in front meanwhile
                        position = (await client.offsets(topic, [0], EARLIEST))[0]
                        continue
                    for news in fetched:
                        position = news.next_offset
                        found += [record.value or b"" for record in news.records]
                return found, ""
        return found, f"{topic} cannot be read beyond offset {position} of {end}"


@attrs.frozen
class Workload:
    """What clients do with the first broker on a directory.

    Attributes:
        clients: of the broker.
        books: are written.
        housekeeping_s: time for the cleaner, and to delete the files of deleted topics and segments.
    """

    clients: Clients
    books: Books
    housekeeping_s: float

    async def run(self) -> None:
        """Do everything that writes."""
        async with self.clients.admin() as admin:
            for topic in TOPICS:
                await self._try(partial(create_topic, admin, topic, configs=_CONFIGS.get(topic)))
            await self._send(PLAIN, 12)
            await self._send(ONCE, 6, enable_idempotence=False, retries=0)
            await self._send(COMPACTED, 12)
            await self._send(RETAINED, 24)
            await self._transactions()
            await self._try(lambda: self._commit(admin))
            kept = {"retention.ms": "100000000"}
            await self._try(lambda: alter_configs(admin, Resource.TOPIC, PLAIN, changes=kept))
            await self._try(lambda: create_partitions(admin, PLAIN, 2))
            await self._try(lambda: create_topic(admin, "short-lived"))
            await self._try(lambda: delete_topic(admin, "short-lived"))
            await trio.sleep(self.housekeeping_s)
            await self._send(COMPACTED, 3)

    async def _try(self, step: Callable[[], Awaitable[object]]) -> None:
        """Run a step; an error that the client gets is no violation, for the books do not count the step."""
        try:
            await step()
        except KafkaError as error:
            self.books.refusals.append(f"{type(error).__name__}: {error}")

    async def _send(self, topic: str, count: int, **options: Any) -> None:
        sent = self.books.sent.setdefault(topic, [])
        self.books.acknowledged.setdefault(topic, set())
        refused_before = len(self.books.refusals)
        async with self.clients.producer(**options) as producer:
            for number in range(len(sent), len(sent) + count):
                if len(self.books.refusals) - refused_before >= self.clients.most_refused:
                    return
                sent.append(b"%d " % number + _VALUE)
                await self._try(partial(self._send_one, producer, topic, number))

    async def _send_one(self, producer: AsyncKafkaProducer, topic: str, number: int) -> None:
        value, key = self.books.sent[topic][number], b"%d" % (number % _KEYS)
        await (await producer.send(topic, value, key=key, partition=0))
        self.books.acknowledged[topic].add(number)

    async def _transactions(self) -> None:
        async def run() -> None:
            async with self.clients.producer(transactional_id="x") as producer:
                await producer.init_transactions()
                for number in range(3):
                    await producer.begin_transaction()
                    for each in range(2):
                        await producer.send(TRANSACTIONS, b"%d %d" % (number, each), partition=0)
                    if number == 1:
                        await producer.abort_transaction()
                    else:
                        await producer.commit_transaction()
                        self.books.committed.add(number)

        await self._try(run)

    async def _commit(self, admin: ClusterClient) -> None:
        where = TopicPartition(PLAIN, 0)
        for offset in (1, 2):
            await commit_offsets(admin, "group", {where: OffsetAndMetadata(offset, "")})
            self.books.offset = offset


async def look(
    clients: Clients, books: Books, there: Collection[str], *, is_power_cut: bool, seconds: float
) -> None:
    """Compare the topics with the books; then every topic must take new records.

    Args:
        clients: of a new broker on the directory.
        books: get the violations.
        there: the topics that the broker has.
        is_power_cut: whether the end of what was written may be missing.
        seconds: the limit for reading a topic.
    """
    async with clients.admin() as admin:
        for name in TOPICS:
            if name in there:
                found, trouble = await clients.read(name, seconds)
                books.violations += [trouble] if trouble else []
                books.compare(name, found, is_power_cut=is_power_cut)
            elif books.acknowledged.get(name) and not is_power_cut:
                books.violations.append(f"topic {name} is gone")
            else:
                await create_topic(admin, name)
        await _compare_offset(admin, books, is_power_cut)
        async with clients.producer() as producer:
            for name in TOPICS:
                await (await producer.send(name, b"again", key=b"again", partition=0))
        await delete_records(admin, TopicPartition(PLAIN, 0), 1)


async def _compare_offset(admin: ClusterClient, books: Books, is_power_cut: bool) -> None:
    found = (await committed_offsets(admin, "group")).get(TopicPartition(PLAIN, 0))
    offset = -1 if found is None else found.offset
    if offset < books.offset and not is_power_cut:
        books.violations.append(f"the committed offset is {offset}, not {books.offset}")
