"""splashdam's own producer and its reader under contract."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import version
from typing import Any, Literal, TypeVar, cast

import trio

from splashdam.client.producer import KafkaProducer
from splashdam.model.errors import KafkaError
from splashdam.model.values import IsolationLevel, TopicPartition
from splashdam.net.addresses import parse_bootstrap_servers
from splashdam.net.clock import SystemClock
from splashdam.net.cluster.fetch_client import EARLIEST, LATEST, FetchClient, FetchSettings, open_fetch_client
from splashdam.net.connect import TcpConnect
from splashdam.record.reader import Record
from splashdam.testing.contract.clients.in_process import API_TIMEOUT_MS, CLIENT_ID
from splashdam.testing.contract.clients.splashdam_admin import SplashdamAdmin
from splashdam.testing.contract.vocabulary import Read, decoded, read_args

T = TypeVar("T")
CompressionName = Literal["none", "gzip", "snappy", "lz4", "zstd"]

MAX_TIMESTAMP = -3
"""As a timestamp: the offset of the record with the largest one."""

_ACKS: dict[str, Literal[-1, 0, 1]] = {"all": -1, "1": 1, "0": 0}
_ISOLATION = {
    "read_uncommitted": IsolationLevel.READ_UNCOMMITTED,
    "read_committed": IsolationLevel.READ_COMMITTED,
}


class SplashdamClient(SplashdamAdmin):
    """splashdam's `KafkaProducer`, `FetchClient` for what a producer cannot do, and its admin functions."""

    name = "splashdam"
    version = version("splashdam")

    def do_produce(
        self,
        *,
        topic: str,
        records: Sequence[dict[str, Any]],
        acks: str,
        idempotent: bool,
        compression: str,
        transactional_id: str | None,
        commit: bool,
        create: bool,
    ) -> list[dict[str, Any]]:
        """Through its KafkaProducer."""
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap_servers,
            client_id=CLIENT_ID,
            acks=_ACKS[acks],
            enable_idempotence=idempotent or transactional_id is not None,
            compression_type=cast("CompressionName", compression),
            transactional_id=transactional_id,
            linger_ms=20,
            max_block_ms=API_TIMEOUT_MS // 2,
            delivery_timeout_ms=API_TIMEOUT_MS // 2,
            request_timeout_ms=API_TIMEOUT_MS // 4,
            allow_auto_create_topics=create,
        )
        with producer:
            if transactional_id is not None:
                producer.init_transactions()
                producer.begin_transaction()
            sent = [self._send(producer, topic, each) for each in records]
            outcomes = [self._outcome(each) for each in sent]
            if transactional_id is not None:
                end = producer.commit_transaction if commit else producer.abort_transaction
                end()
            return outcomes

    def do_send_offsets(
        self, group: str, topic: str, offset: int, transactional_id: str, commit: bool
    ) -> None:
        """KafkaProducer.send_offsets_to_transaction."""
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap_servers, client_id=CLIENT_ID, transactional_id=transactional_id
        )
        with producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send_offsets_to_transaction({TopicPartition(topic, 0): offset}, group)
            end = producer.commit_transaction if commit else producer.abort_transaction
            end()

    def _send(self, producer: KafkaProducer, topic: str, record: dict[str, Any]) -> Any:
        try:
            return producer.send(
                topic,
                decoded(record["value"]),
                decoded(record["key"]),
                headers=[(name, decoded(value)) for name, value in record["headers"]],
                partition=record["partition"],
                timestamp_ms=record["timestamp_ms"],
            )
        except KafkaError as error:
            return error

    def _outcome(self, sent: Any) -> dict[str, Any]:
        if isinstance(sent, KafkaError):
            return {"error": self.name_of(sent), "text": str(sent)}
        try:
            metadata = sent.get(timeout=API_TIMEOUT_MS / 1000)
        except Exception as error:  # of any kind: it is this record's outcome
            return {"error": self.name_of(error), "text": str(error)}
        return {"partition": metadata.partition, "offset": metadata.offset}

    def _reading(self, task: Callable[[FetchClient], Awaitable[T]], isolation: str = "read_uncommitted") -> T:
        settings = FetchSettings(
            client_id=CLIENT_ID,
            timeout_ms=API_TIMEOUT_MS / 2,
            max_wait_ms=100,
            isolation_level=_ISOLATION[isolation],
        )

        async def run() -> T:
            async with open_fetch_client(
                parse_bootstrap_servers(self.bootstrap_servers),
                connect=TcpConnect(),
                clock=SystemClock(),
                settings=settings,
            ) as client:
                return await task(client)

        return trio.run(run)

    def do_fetch(
        self, *, topic: str, partition: int, offset: int, count: int, isolation: str, timeout_ms: int
    ) -> list[dict[str, Any]]:
        """Through a FetchClient."""

        async def fetch(client: FetchClient) -> list[dict[str, Any]]:
            records: list[Read] = []
            position = offset
            with trio.move_on_after(timeout_ms / 1000):
                while len(records) < count:
                    for news in await client.fetch(topic, {partition: position}):
                        position = news.next_offset
                        records += (_read(partition, each) for each in news.records)
            return [read_args(each) for each in records[:count]]

        return self._reading(fetch, isolation)

    def do_offsets(self, topic: str, partition: int, at: str | int) -> int:
        """Through a FetchClient."""
        named = {"earliest": EARLIEST, "latest": LATEST, "max_timestamp": MAX_TIMESTAMP}
        timestamp = named[at] if isinstance(at, str) else at

        async def offsets(client: FetchClient) -> int:
            return (await client.offsets(topic, [partition], timestamp))[partition]

        return self._reading(offsets)


def _read(partition: int, record: Record) -> Read:
    return Read(
        partition, record.offset, record.key, record.value, record.timestamp_ms, tuple(record.headers)
    )
