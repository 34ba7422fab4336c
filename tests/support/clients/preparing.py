"""Topics whose metadata a producer with a short ``max_block_ms`` has, however busy the machine is."""

from __future__ import annotations

from splashdam.client.asyncio_producer import AsyncioKafkaProducer
from splashdam.client.producer import KafkaProducer
from splashdam.model.errors import KafkaTimeoutError


def prepare(producer: KafkaProducer, topic: str) -> None:
    """Looks the topic up, as often as it takes."""
    while True:
        try:
            return producer.prepare(topic)
        except KafkaTimeoutError:
            continue


async def prepare_in_asyncio(producer: AsyncioKafkaProducer, topic: str) -> None:
    """Likewise."""
    while True:
        try:
            return await producer.prepare(topic)
        except KafkaTimeoutError:
            continue
