"""Consumers that we did not write, as members of a group: each polls in a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from threading import Condition, Event, Thread
from types import TracebackType
from typing import Any, Protocol

import aiokafka
import confluent_kafka
import kafka

SECONDS = 300
HEARTBEAT_MS, SESSION_MS = 100, 6000


class Consumer(Protocol):
    """One client's consumer, subscribed."""

    def poll(self) -> list[bytes]:
        """Values that have come, after a moment at most."""
        ...

    def assigned(self) -> int:
        """How many partitions it has."""
        ...

    def close(self) -> None:
        """Leaves, as its client does."""
        ...


class KafkaPython:
    """kafka-python's, which assigns by range, or sticky."""

    def __init__(self, servers: str, group: str, topic: str, instance_id: str | None = None) -> None:
        self._consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            group_instance_id=instance_id,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=HEARTBEAT_MS,
            session_timeout_ms=SESSION_MS,
        )

    def poll(self) -> list[bytes]:
        """One poll, long enough for a rebalance: a shorter one leaves it half done."""
        found = self._consumer.poll(timeout_ms=500, max_records=10)
        return [record.value for records in found.values() for record in records]

    def assigned(self) -> int:
        """Partitions."""
        return len(self._consumer.assignment())

    def close(self) -> None:
        """Commits and leaves."""
        self._consumer.close()


class Confluent:
    """confluent-kafka's; ``strategy`` chooses eager or cooperative."""

    strategy = "range,roundrobin"

    def __init__(self, servers: str, group: str, topic: str, instance_id: str | None = None) -> None:
        options: dict[str, Any] = {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": self.strategy,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "session.timeout.ms": SESSION_MS,
            "log_level": 0,
        }
        if instance_id is not None:
            options["group.instance.id"] = instance_id
        self.revoked = 0
        self._consumer = confluent_kafka.Consumer(options)
        self._consumer.subscribe([topic], on_revoke=self._on_revoke)

    def _on_revoke(self, _: object, partitions: list[object]) -> None:
        self.revoked += len(partitions)

    def poll(self) -> list[bytes]:
        """What has come within a tenth of a second."""
        return [message.value() for message in self._consumer.consume(10, 0.1) if message.error() is None]

    def assigned(self) -> int:
        """Partitions."""
        return len(self._consumer.assignment())

    def close(self) -> None:
        """Commits and leaves; a static member just goes."""
        self._consumer.close()


class Cooperative(Confluent):
    """confluent-kafka's, which keeps what it has while the group rebalances."""

    strategy = "cooperative-sticky"


class Aiokafka:
    """aiokafka's, in an event loop of its own."""

    def __init__(self, servers: str, group: str, topic: str, instance_id: str | None = None) -> None:
        self._runner = asyncio.Runner()
        self._runner.run(self._start(servers, group, topic, instance_id))

    async def _start(self, servers: str, group: str, topic: str, instance_id: str | None) -> None:
        self._consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            group_instance_id=instance_id,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=HEARTBEAT_MS,
            session_timeout_ms=SESSION_MS,
        )
        await self._consumer.start()

    def poll(self) -> list[bytes]:
        """What has come within a tenth of a second."""
        found = self._runner.run(self._consumer.getmany(timeout_ms=100, max_records=10))
        return [record.value for records in found.values() for record in records]

    def assigned(self) -> int:
        """Partitions."""
        return len(self._consumer.assignment())

    def close(self) -> None:
        """Commits and leaves."""
        self._runner.run(self._consumer.stop())
        self._runner.close()


class Member:
    """A consumer in a thread.

    Attributes:
        values: what it has read.
        assigned: how many partitions it has.
    """

    def __init__(self, make: Callable[[], Consumer], changed: Condition) -> None:
        self.values: list[bytes] = []
        self.assigned = 0
        self._make, self._changed, self._ends = make, changed, Event()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        consumer = self._make()
        try:
            while not self._ends.is_set():
                values = consumer.poll()
                with self._changed:
                    self.values += values
                    self.assigned = consumer.assigned()
                    self._changed.notify_all()
        finally:
            consumer.close()
            with self._changed:
                self.assigned = 0
                self._changed.notify_all()

    def stop(self) -> None:
        """Closes the consumer."""
        self._ends.set()
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()


class Members:
    """The members of a test; all are closed at its end."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._all: list[Member] = []

    def __enter__(self) -> Members:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for member in self._all:
            member.stop()

    def add(self, make: Callable[[], Consumer]) -> Member:
        """One more."""
        member = Member(make, self._changed)
        self._all.append(member)
        return member

    def wait_assigned(self, *counts: int, of: Iterable[Member]) -> None:
        """Until these members have so many partitions each."""
        members = list(of)
        with self._changed:
            done = self._changed.wait_for(
                lambda: sorted(each.assigned for each in members) == sorted(counts), SECONDS
            )
        assert done, [each.assigned for each in members]

    def wait_read(self, values: Iterable[bytes]) -> None:
        """Until they all together have read these."""
        wanted = set(values)
        with self._changed:
            done = self._changed.wait_for(
                lambda: wanted <= {value for each in self._all for value in each.values}, SECONDS
            )
        assert done


CONSUMERS: dict[str, type[KafkaPython] | type[Confluent] | type[Aiokafka]] = {
    "kafka-python": KafkaPython,
    "confluent-kafka": Confluent,
    "confluent-kafka cooperative": Cooperative,
    "aiokafka": Aiokafka,
}
