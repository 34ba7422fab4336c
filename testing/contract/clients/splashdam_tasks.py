"""splashdam's producers for trio and for asyncio as clients of the contract."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from splashdam.client.async_producer import AsyncKafkaProducer
from splashdam.client.asyncio_producer import AsyncioKafkaProducer
from splashdam.model.values import TopicPartition
from splashdam.net.run import run_in_trio
from splashdam.testing.contract.clients.in_process import API_TIMEOUT_MS, ProduceCall, record_fields
from splashdam.testing.contract.clients.splashdam_client import SplashdamClient

T = TypeVar("T")


class _TaskClient(SplashdamClient):
    """A client whose producer is awaited; its other operations would be `SplashdamClient`'s once more."""

    def __init__(self, bootstrap_servers: str, security: Mapping[str, Any] | None = None) -> None:
        super().__init__(bootstrap_servers, security)
        self.ops = frozenset({"fetch", "produce", "send_offsets"})

    @abstractmethod
    def producing(self, task: Callable[[Any], Awaitable[T]], **options: Any) -> T:
        """Run a task with a producer in a loop of its own, and return its result."""

    def do_produce(self, **args: Any) -> list[dict[str, Any]]:
        """Send, and await the futures."""
        call = ProduceCall(**args)

        async def produce(producer: Any) -> list[dict[str, Any]]:
            if call.transactional_id is not None:
                await producer.begin_transaction()
            sent = [await self._sent(producer, call.topic, each) for each in call.records]
            outcomes = [await self._awaited(each) for each in sent]
            if call.transactional_id is not None:
                await (producer.commit_transaction() if call.commit else producer.abort_transaction())
            return outcomes

        return self.producing(
            produce,
            **call.options(),
            delivery_timeout_ms=API_TIMEOUT_MS // 2,
            max_block_ms=API_TIMEOUT_MS // 2,
            allow_auto_create_topics=call.create,
        )

    def do_send_offsets(
        self, group: str, topic: str, offset: int, transactional_id: str, commit: bool
    ) -> None:
        """Send offsets in a transaction."""

        async def send(producer: Any) -> None:
            await producer.begin_transaction()
            await producer.send_offsets_to_transaction({TopicPartition(topic, 0): offset}, group)
            await (producer.commit_transaction() if commit else producer.abort_transaction())

        self.producing(send, transactional_id=transactional_id)

    async def _sent(self, producer: Any, topic: str, record: dict[str, Any]) -> Any:
        try:
            return await producer.send(topic, **record_fields(record))
        except Exception as error:  # any exception is this record's outcome
            return error

    async def _awaited(self, sent: Any) -> dict[str, Any]:
        if isinstance(sent, Exception):
            return self._failed(sent)
        try:
            metadata = await sent
        except Exception as error:  # as above
            return self._failed(error)
        return {"partition": metadata.partition, "offset": metadata.offset}


class TrioClient(_TaskClient):
    """`AsyncKafkaProducer`."""

    name = "splashdam-trio"

    def producing(self, task: Callable[[Any], Awaitable[T]], **options: Any) -> T:
        async def run() -> T:
            async with AsyncKafkaProducer(**self.common(), **options) as producer:
                if "transactional_id" in options and options["transactional_id"] is not None:
                    await producer.init_transactions()
                return await task(producer)

        return run_in_trio(run)


class AsyncioClient(_TaskClient):
    """`AsyncioKafkaProducer`, which initializes transactions by itself."""

    name = "splashdam-asyncio"

    def producing(self, task: Callable[[Any], Awaitable[T]], **options: Any) -> T:
        async def run() -> T:
            async with AsyncioKafkaProducer(**self.common(), **options) as producer:
                return await task(producer)

        return asyncio.run(run())
