"""Transactions of clients that we did not write, against our broker; read with librdkafka, read_committed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors
import pytest
from kafka_reading import make_topic, served

from splashdam.embedded_broker.embedded import EmbeddedBroker

WAIT_SECONDS = 30


class Transactional(Protocol):
    """What all of them can do, by one set of names."""

    def begin(self) -> None: ...
    def send(self, value: bytes) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class KafkaPython:
    """kafka-python."""

    fenced = (kafka.errors.KafkaError,)

    def __init__(self, servers: str, transactional_id: str) -> None:
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=servers, transactional_id=transactional_id, linger_ms=0
        )
        self._producer.init_transactions()
        self.begin = self._producer.begin_transaction
        self.abort = self._producer.abort_transaction

    def send(self, value: bytes) -> None:
        self._producer.send("t", value, partition=0).get(WAIT_SECONDS)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def close(self) -> None:
        with suppress(kafka.errors.KafkaError):
            self._producer.close(timeout=1)


class Confluent:
    """confluent-kafka."""

    fenced = (confluent_kafka.KafkaException,)

    def __init__(self, servers: str, transactional_id: str) -> None:
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": servers, "transactional.id": transactional_id, "log_level": 0}
        )
        self._producer.init_transactions(WAIT_SECONDS)
        self.begin = self._producer.begin_transaction

    def send(self, value: bytes) -> None:
        self._producer.produce("t", value, partition=0)
        self._producer.flush(WAIT_SECONDS)

    def commit(self) -> None:
        self._producer.commit_transaction(WAIT_SECONDS)

    def abort(self) -> None:
        self._producer.abort_transaction(WAIT_SECONDS)

    def close(self) -> None:
        self._producer.purge()


class Aiokafka:
    """aiokafka, in a loop of its own."""

    fenced = (aiokafka.errors.KafkaError,)

    def __init__(self, servers: str, transactional_id: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._producer = self._run(self._made(servers, transactional_id))

    async def _made(self, servers: str, transactional_id: str) -> Any:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, transactional_id=transactional_id)
        await producer.start()
        return producer

    def _run(self, coroutine: Any) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(coroutine, WAIT_SECONDS))

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, value: bytes) -> None:
        self._run(self._producer.send_and_wait("t", value, partition=0))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        with suppress(aiokafka.errors.KafkaError):
            self._run(self._producer.stop())
        self._loop.close()


CLIENTS: dict[str, Callable[[str, str], Any]] = {
    "kafka-python": KafkaPython,
    "confluent-kafka": Confluent,
    "aiokafka": Aiokafka,
}


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[str]:
    """A broker with a topic ``t`` of one partition."""
    with EmbeddedBroker(tmp_path) as broker:
        make_topic(broker.bootstrap_servers, "t")
        yield broker.bootstrap_servers


@pytest.mark.parametrize("client", CLIENTS)
def test_committed_and_aborted(servers: str, client: str) -> None:
    """What is committed is read, in order; what is aborted is there for read_uncommitted alone."""
    producer = CLIENTS[client](servers, "tx")
    for value, is_commit in [(b"1", True), (b"2", False), (b"3", True), (b"4", False)]:
        producer.begin()
        producer.send(value)
        producer.send(value * 2)
        (producer.commit if is_commit else producer.abort)()
        expected = [b"1", b"11"] if value in (b"1", b"2") else [b"1", b"11", b"3", b"33"]
        assert [record.value for record in served(servers, "t", committed=True)] == expected
    producer.close()
    assert len(served(servers, "t")) == 8


@pytest.mark.parametrize("client", CLIENTS)
def test_the_newer_instance_wins(servers: str, client: str) -> None:
    """The older one's open transaction is aborted, and it can neither write nor commit any more."""
    older = CLIENTS[client](servers, "tx")
    older.begin()
    older.send(b"old")
    newer = CLIENTS[client](servers, "tx")
    newer.begin()
    newer.send(b"new")
    with pytest.raises(older.fenced):
        older.commit()
    newer.commit()
    assert [record.value for record in served(servers, "t", committed=True)] == [b"new"]
    newer.close()
    older.close()
