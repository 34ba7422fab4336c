"""confluent-kafka's consumers with ``group.protocol=consumer`` come, go and come back over real sockets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import confluent_kafka
import pytest

from splashdam.embedded_broker.embedded import EmbeddedBroker

PARTITIONS = 6
TIMEOUT_SECONDS = 300
RECORDS = 60


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[str]:
    """A broker with a topic ``t`` of six partitions, ten records in each; members are heard often."""
    with EmbeddedBroker(
        tmp_path,
        fsync=False,
        num_partitions=PARTITIONS,
        group_consumer_heartbeat_interval_ms=20,
        group_initial_rebalance_delay_ms=0,
    ) as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        for number in range(RECORDS):
            producer.produce("t", b"%d" % number, partition=number % PARTITIONS)
        producer.flush()
        yield broker.bootstrap_servers


class Reader:
    """A consumer, what it was called back with, and what it read."""

    def __init__(self, servers: str, *topics: str, **more: object) -> None:
        self.calls: list[tuple[str, list[int]]] = []
        self.values: list[bytes] = []
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "g",
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 100,
                "log_level": 0,
                **more,
            }
        )
        self._consumer.subscribe(
            list(topics or ("t",)), on_assign=self._note("assigned"), on_revoke=self._note("revoked")
        )

    def _note(self, what: str) -> Callable[..., None]:
        def note(_: object, partitions: list[confluent_kafka.TopicPartition]) -> None:
            self.calls.append((what, sorted(each.partition for each in partitions)))

        return note

    @property
    def partitions(self) -> set[int]:
        """What it has."""
        return {each.partition for each in self._consumer.assignment()}

    def poll(self) -> None:
        """Reads a little."""
        message = self._consumer.poll(0.01)
        if message is not None and message.error() is None:
            self.values.append(message.value() or b"")

    def close(self) -> None:
        """Leaves the group."""
        self._consumer.close()


def poll_until(is_so: Callable[[], bool], *readers: Reader) -> None:
    """Lets all read until something is so."""
    ends = time.monotonic() + TIMEOUT_SECONDS
    while not is_so():
        assert time.monotonic() < ends, [(each.partitions, each.calls) for each in readers]
        for each in readers:
            each.poll()


def share(*readers: Reader) -> list[int]:
    """How many partitions everybody has; nobody's are another's."""
    have = [each.partitions for each in readers]
    assert len(set().union(*have)) == sum(map(len, have)), (have, [each.calls for each in readers])
    return [len(each) for each in have]


def settled(reader: Reader) -> Reader:
    """Has all partitions before somebody else comes.

    librdkafka says that it owns nothing until its callback has run. To Kafka, and to us, that means that the
    share has been given up, so for a moment two readers would show the same partitions.
    """
    poll_until(lambda: share(reader) == [PARTITIONS], reader)
    return reader


def test_three_members_come_and_go(servers: str) -> None:
    """Each has its share, callbacks say what moves and nothing else does, and every record is read once."""
    first = Reader(servers)
    poll_until(lambda: len(first.values) == RECORDS, first)
    second = Reader(servers)
    poll_until(lambda: share(first, second) == [3, 3], first, second)
    third = Reader(servers)
    everybody = (first, second, third)
    poll_until(lambda: share(*everybody) == [2, 2, 2], *everybody)
    assert {what for what, _ in third.calls} == {"assigned"}
    assert [sum(len(some) for what, some in each.calls if what == "revoked") for each in everybody] == [
        4,
        1,
        0,
    ]
    third.close()
    second.close()
    poll_until(lambda: share(first) == [PARTITIONS], first)
    assert second.values == third.values == []
    first.close()
    again = Reader(servers)
    poll_until(lambda: share(again) == [PARTITIONS], again)
    for _ in range(10):
        again.poll()
    again.close()
    assert again.values == []


def test_static_member_restarts_without_a_move(servers: str) -> None:
    """What it had waits for it; the others hear nothing."""
    static = settled(Reader(servers, **{"group.instance.id": "i1"}))
    other = Reader(servers)
    poll_until(lambda: share(static, other) == [3, 3], static, other)
    had, calls = static.partitions, len(other.calls)
    static.close()
    again = Reader(servers, **{"group.instance.id": "i1"})
    poll_until(lambda: share(again, other) == [3, 3], again, other)
    assert again.partitions == had
    assert len(other.calls) == calls
    other.close()
    again.close()


def test_pattern_and_assignor_of_the_client(servers: str) -> None:
    """``^t.*`` is matched by the broker; ``range`` gives neighbours."""
    first = settled(Reader(servers, "^t.*", **{"group.remote.assignor": "range"}))
    second = Reader(servers, "^t.*", **{"group.remote.assignor": "range"})
    poll_until(lambda: share(first, second) == [3, 3], first, second)
    assert {frozenset(each.partitions) for each in (first, second)} == {
        frozenset({0, 1, 2}),
        frozenset({3, 4, 5}),
    }
    with suppress(confluent_kafka.KafkaException):
        first.close()
    second.close()


def test_members_change_to_the_new_protocol_and_back_one_by_one(servers: str) -> None:
    """A rolling upgrade and a rolling downgrade: at each step all is read, and no record twice."""
    classic = {
        "group.protocol": "classic",
        "partition.assignment.strategy": "range",
        "heartbeat.interval.ms": 20,
    }
    first, second = Reader(servers, **classic), Reader(servers, **classic)
    poll_until(lambda: share(first, second) == [3, 3], first, second)
    poll_until(lambda: len(first.values) + len(second.values) == RECORDS, first, second)
    first.close()
    new = Reader(servers)
    poll_until(lambda: share(new, second) == [3, 3], new, second)
    second.close()
    poll_until(lambda: share(new) == [PARTITIONS], new)
    back = Reader(servers, **classic)
    poll_until(lambda: share(new, back) == [3, 3], new, back)
    new.close()
    poll_until(lambda: share(back) == [PARTITIONS], back)
    back.close()
    assert new.values == back.values == []
