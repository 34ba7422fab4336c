"""The web application's answers when the producer has no room, and when a record fails."""

from __future__ import annotations

import asyncio
import importlib.util
from typing import Any

import pytest
from support.running.house_tree import ROOT

from splashdam.aio import AsyncioKafkaProducer, DeliveryFuture
from splashdam.errors import RequestTimedOutError, WouldBlock
from splashdam.model.values import TopicPartition
from splashdam.record.kernel import BatchOutcome

pytest.importorskip("fastapi")
httpx = pytest.importorskip("httpx")


def post(producer: Any) -> Any:
    """The answer of the application with this producer."""
    spec = importlib.util.spec_from_file_location(
        "fastapi_app", ROOT / "examples/with_asyncio/fastapi_app.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.app.state.producer = producer

    async def main() -> Any:
        transport = httpx.ASGITransport(module.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://orders") as client:
            return await client.post("/orders/anna", content=b"planks")

    return asyncio.run(main())


class Producer:
    """Answers each send alike."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def send_nowait(self, _topic: str, _value: bytes, key: bytes) -> DeliveryFuture:
        if isinstance(self._answer, Exception):
            raise self._answer
        future: DeliveryFuture = self._answer
        return future


def test_full_memory_is_503() -> None:
    """At once, instead of a queue without limit."""
    answer = post(Producer(WouldBlock("memory", "full")))
    assert (answer.status_code, answer.json()["detail"]) == (503, "busy: memory")
    assert answer.headers["Retry-After"] == "1"


def test_an_unreachable_cluster_is_503() -> None:
    """The topic's metadata have not arrived."""

    async def make() -> AsyncioKafkaProducer:
        producer = AsyncioKafkaProducer(bootstrap_servers="127.0.0.1:1")
        await producer.start()
        return producer

    producer = asyncio.run(make())
    assert post(producer).json()["detail"] == "busy: metadata"
    asyncio.run(producer.stop(0))


def test_a_record_that_fails_is_502() -> None:
    """It may have been stored all the same, so no 503 that asks to try again."""
    outcome = BatchOutcome(TopicPartition("orders", 0))
    outcome.fail(RequestTimedOutError("late"))
    assert post(Producer(DeliveryFuture(outcome, 0, 0))).status_code == 502
