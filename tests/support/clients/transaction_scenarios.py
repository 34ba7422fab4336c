"""What transactions promise, played on any broker; what readers see of them is asked of kafka-python."""

from __future__ import annotations

from collections.abc import Callable

import kafka
import pytest

from splashdam.client.producer import KafkaProducer
from splashdam.model.broker_errors import ProducerFencedError
from splashdam.model.errors import TransactionFailedError

Make = Callable[..., KafkaProducer]
"""Makes an initialised producer for a transactional id."""

Scenario = Callable[[str, Make, str], None]
"""Takes the broker's address, what makes producers, and a name for topics, groups and transactional ids."""

WAIT_SECONDS = 100
"""Against a hang alone, below the limit of a test: a busy machine may take long for right answers."""


def committed(servers: str, topic: str, count: int) -> list[bytes]:
    """The first ``count`` values that kafka-python reads of partition 0 with ``read_committed``."""
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", isolation_level="read_committed"
    )
    try:
        consumer.assign([kafka.TopicPartition(topic, 0)])
        return [next(consumer).value for _ in range(count)]
    finally:
        consumer.close()


def readers_see_what_was_committed(servers: str, make: Make, name: str) -> None:
    """Readers of two topics see committed records in order; aborted ones are in the log and are skipped."""
    producer, topics = make(name, linger_ms=0), (name, f"{name}-2")
    for number in range(6):
        producer.begin_transaction()
        futures = [producer.send(topic, b"%d" % number) for topic in topics]
        if number % 2:
            for future in futures:
                future.get(timeout=WAIT_SECONDS)
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    with producer.transaction():
        for topic in topics:
            producer.send(topic, b"end")
    for topic in topics:
        assert committed(servers, topic, 4) == [b"0", b"2", b"4", b"end"]


def the_newer_producer_fences_the_older(servers: str, make: Make, name: str) -> None:
    """The older producer's open transaction is aborted, and its calls fail for good."""
    old = make(name)
    old.begin_transaction()
    old.send(name, b"old").get(timeout=WAIT_SECONDS)
    new = make(name)
    with new.transaction():
        new.send(name, b"new")
    with pytest.raises(ProducerFencedError):
        old.commit_transaction()
    with pytest.raises(ProducerFencedError):
        old.begin_transaction()
    assert committed(servers, name, 1) == [b"new"]


def offsets_are_committed_with_the_records(servers: str, make: Make, name: str) -> None:
    """Read, transform, write: the group's offset moves with the commit, and not with an abort."""
    source = make(f"{name}-source")
    with source.transaction():
        source.send(name, b"1")
        source.send(name, b"2")
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=servers,
        group_id=name,
        enable_auto_commit=False,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    try:
        where = kafka.TopicPartition(name, 0)
        consumer.assign([where])
        first = next(consumer)
        producer = make(f"{name}-copy")
        for commits in (False, True):
            producer.begin_transaction()
            producer.send(f"{name}-2", first.value)
            producer.send_offsets_to_transaction({where: first.offset + 1}, consumer.group_metadata())
            if commits:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
            assert consumer.committed(where) == (first.offset + 1 if commits else None)
    finally:
        consumer.close()
    assert committed(servers, f"{name}-2", 1) == [b"1"]


def one_transaction_is_lost_and_not_the_producer(servers: str, make: Make, name: str) -> None:
    """A record is too large for the topic."""
    producer = make(name, max_request_size=5_000_000, linger_ms=0)
    with producer.transaction():
        producer.send(name, b"before")
    producer.begin_transaction()
    producer.send(name, b"x" * 2_000_000)
    with pytest.raises(TransactionFailedError, match="MessageTooLarge"):
        producer.commit_transaction()
    producer.abort_transaction()
    with producer.transaction():
        producer.send(name, b"after")
    assert committed(servers, name, 2) == [b"before", b"after"]


def many_follow_each_other(servers: str, make: Make, name: str) -> None:
    """Markers of the last one are still being written when the next one begins (51)."""
    producer = make(name)
    for number in range(40):
        with producer.transaction():
            producer.send(name, b"%d" % number)
    assert committed(servers, name, 40) == [b"%d" % number for number in range(40)]


def what_is_open_is_aborted_by_close(servers: str, make: Make, name: str) -> None:
    """So that readers do not wait for it until its timeout."""
    with make(name) as producer:
        producer.begin_transaction()
        producer.send(name, b"left")
    with make(name).transaction():
        pass
    producer = make(name)
    with producer.transaction():
        producer.send(name, b"next")
    assert committed(servers, name, 1) == [b"next"]


SCENARIOS: list[Scenario] = [
    readers_see_what_was_committed,
    the_newer_producer_fences_the_older,
    offsets_are_committed_with_the_records,
    one_transaction_is_lost_and_not_the_producer,
    many_follow_each_other,
    what_is_open_is_aborted_by_close,
]


class Producers:
    """Makes producers for one broker, and closes them in the end."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._made: list[KafkaProducer] = []

    def __call__(self, name: str, **options: object) -> KafkaProducer:
        producer = KafkaProducer(bootstrap_servers=self._servers, transactional_id=name, **options)  # type: ignore[arg-type]  # tests know them
        self._made.append(producer)
        producer.init_transactions()
        return producer

    def close(self) -> None:
        """Closes all of them."""
        for producer in self._made:
            producer.close()
