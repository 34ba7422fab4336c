"""The producer for asyncio programs: ``from splashdam.aio import AsyncioKafkaProducer``."""

from __future__ import annotations

from splashdam.client.asyncio_futures import DeliveryFuture
from splashdam.client.asyncio_producer import AsyncioKafkaProducer

__all__ = ["AsyncioKafkaProducer", "DeliveryFuture"]
