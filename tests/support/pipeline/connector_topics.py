"""Topics that hold a little of everything, and the books of what was sent: what any reader must find."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import attrs
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from splashdam import KafkaProducer

FIRST_MS = (int(time.time()) - 3600) * 1000 + 7
"""Timestamp of the first record of each topic; those after it follow second by second."""

PARTITIONS = {"plain": 3, "other": 1, "packed": 2, "transactions": 1, "trimmed": 1, "vacant": 2}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TRIMMED_BELOW = 4
_WAIT_SECONDS = 30

Headers = tuple[tuple[str, bytes | None], ...]


@attrs.frozen(order=True)
class Record:
    """One record as a reader finds it.

    Attributes:
        committed: False where its transaction was aborted or is open.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None = attrs.field(order=False)
    value: bytes | None = attrs.field(order=False)
    timestamp_ms: int = attrs.field(order=False)
    headers: Headers = attrs.field(order=False, default=())
    committed: bool = attrs.field(order=False, eq=False, default=True)


class Books:
    """Sends, and keeps what was sent with the offsets it was given."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.records: list[Record] = []

    def where(self, wanted: Callable[[Record], bool], headers: bool = False) -> list[Record]:
        """Those that a reader must find, in order, with or without their headers."""
        found = sorted(filter(wanted, self.records))
        return found if headers else [attrs.evolve(each, headers=()) for each in found]

    def fill(
        self, producer: KafkaProducer, topic: str, numbers: Iterable[int], committed: bool = True
    ) -> None:
        """Sends one record for each number; what they hold hangs on the number alone."""
        sent = []
        for number in numbers:
            partition = number % PARTITIONS[topic]
            key, value, headers = _contents(number)
            timestamp_ms = FIRST_MS + 1000 * number
            future = producer.send(
                topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
            )
            sent.append((future, partition, key, value, timestamp_ms, headers))
        for future, partition, *rest, headers in sent:
            offset = future.get(_WAIT_SECONDS).offset
            self.records.append(Record(topic, partition, offset, *rest, tuple(headers), committed))


def _contents(number: int) -> tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]:
    """Now and then no key, no value, no headers, the same header twice, one without a value."""
    key = None if number % 5 == 0 else b"key %d" % (number % 4)
    value = None if number % 7 == 3 and key else b"value %d " % number + bytes(range(number % 256))
    headers: list[tuple[str, bytes | None]] = [("n", b"%d" % number), ("n", None), ("é", b"")][: number % 4]
    return key, value, headers


def create(servers: str, topics: dict[str, int]) -> None:
    """Makes topics with so many partitions."""
    admin = AdminClient({"bootstrap.servers": servers})
    made = admin.create_topics([NewTopic(name, count, 1) for name, count in topics.items()])
    for each in made.values():
        each.result(_WAIT_SECONDS)


def delete_records(servers: str, topic: str, before_offset: int) -> None:
    """Deletes the head of partition 0."""
    admin = AdminClient({"bootstrap.servers": servers})
    for each in admin.delete_records([TopicPartition(topic, 0, before_offset)]).values():
        each.result(_WAIT_SECONDS)


@contextmanager
def filled(servers: str) -> Iterator[Books]:
    """All topics; a transaction stays open until the end of the block."""
    create(servers, PARTITIONS)
    books = Books(servers)
    with KafkaProducer(bootstrap_servers=servers) as producer:
        books.fill(producer, "plain", range(30))
        books.fill(producer, "other", range(5))
        books.fill(producer, "trimmed", range(10))
    for number, codec in enumerate(CODECS):
        with KafkaProducer(bootstrap_servers=servers, compression_type=codec) as producer:
            books.fill(producer, "packed", range(20 * number, 20 * (number + 1)))
    delete_records(servers, "trimmed", TRIMMED_BELOW)
    books.records = [
        each for each in books.records if each.topic != "trimmed" or each.offset >= TRIMMED_BELOW
    ]
    with KafkaProducer(bootstrap_servers=servers, transactional_id="books") as producer:
        _transactions(books, producer)
        yield books
        producer.abort_transaction()


def _transactions(books: Books, producer: KafkaProducer) -> None:
    producer.init_transactions()
    producer.begin_transaction()
    books.fill(producer, "transactions", range(3))
    producer.commit_transaction()
    producer.begin_transaction()
    books.fill(producer, "transactions", range(3, 6), committed=False)
    producer.abort_transaction()
    producer.begin_transaction()
    books.fill(producer, "transactions", range(6, 9))
    producer.commit_transaction()
    producer.begin_transaction()
    books.fill(producer, "transactions", range(9, 11), committed=False)
