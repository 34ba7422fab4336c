"""Transactional producers that we did not write, by one set of names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors

WAIT_SECONDS = 300


class Transactional(Protocol):
    """What all of them can do; they write to partition 0 of topic ``t``."""

    def begin(self) -> None: ...
    def send(self, value: bytes) -> None: ...
    def send_offset(self, group: str, offset: int) -> None: ...
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

    def send_offset(self, group: str, offset: int) -> None:
        place = {kafka.TopicPartition("t", 0): kafka.OffsetAndMetadata(offset, "", -1)}
        self._producer.send_offsets_to_transaction(place, group)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def close(self) -> None:
        with suppress(kafka.errors.KafkaError):
            self._producer.close(timeout=1)


class Confluent:
    """confluent-kafka."""

    fenced = (confluent_kafka.KafkaException,)

    def __init__(self, servers: str, transactional_id: str) -> None:
        self._servers = servers
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": servers, "transactional.id": transactional_id, "log_level": 0}
        )
        self._producer.init_transactions(WAIT_SECONDS)
        self.begin = self._producer.begin_transaction

    def send(self, value: bytes) -> None:
        self._producer.produce("t", value, partition=0)
        self._producer.flush(WAIT_SECONDS)  # or an abort takes it back before it is sent

    def send_offset(self, group: str, offset: int) -> None:
        member = confluent_kafka.Consumer(
            {"bootstrap.servers": self._servers, "group.id": group, "log_level": 0}
        )
        place = [confluent_kafka.TopicPartition("t", 0, offset)]
        self._producer.send_offsets_to_transaction(place, member.consumer_group_metadata(), WAIT_SECONDS)
        member.close()

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

    def send_offset(self, group: str, offset: int) -> None:
        place = {aiokafka.TopicPartition("t", 0): offset}
        self._run(self._producer.send_offsets_to_transaction(place, group))

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
