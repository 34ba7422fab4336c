"""splashdam: a Kafka producer SDK for Python with a broker in the box.

Names are imported on first use: ``import splashdam`` loads neither trio nor the broker, which together take a
hundred times as long. Errors are in ``splashdam.errors``.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING


def _check_platform(platform: str) -> None:
    # In a function: type checkers take the rest of the module as unreachable after a bare `if` on Windows.
    if platform == "win32":
        raise ImportError(
            "splashdam does not run on Windows yet: it runs on Linux and macOS, and on Windows within WSL"
        )


_check_platform(sys.platform)

if TYPE_CHECKING:
    from splashdam import errors as errors
    from splashdam.client.async_producer import AsyncKafkaProducer as AsyncKafkaProducer
    from splashdam.client.future import RecordFuture as RecordFuture
    from splashdam.client.interceptors import ProducerInterceptor as ProducerInterceptor
    from splashdam.client.interceptors import ProducerRecord as ProducerRecord
    from splashdam.client.partitioning.partitioners import DefaultPartitioner as DefaultPartitioner
    from splashdam.client.partitioning.partitioners import Partitioner as Partitioner
    from splashdam.client.partitioning.partitioners import RoundRobinPartitioner as RoundRobinPartitioner
    from splashdam.client.partitioning.partitioners import StickyPartitioner as StickyPartitioner
    from splashdam.client.producer import KafkaProducer as KafkaProducer
    from splashdam.client.reports import BulkDelivery as BulkDelivery
    from splashdam.client.reports import BulkReport as BulkReport
    from splashdam.client.reports import DeliveryReport as DeliveryReport
    from splashdam.client.reports import FailedRecords as FailedRecords
    from splashdam.client.serializers import DefaultSerializer as DefaultSerializer
    from splashdam.client.serializers import JsonSerializer as JsonSerializer
    from splashdam.client.serializers import Serializer as Serializer
    from splashdam.embedded_broker.broker import open_broker as open_broker
    from splashdam.embedded_broker.cluster import open_cluster as open_cluster
    from splashdam.embedded_broker.embedded import EmbeddedBroker as EmbeddedBroker
    from splashdam.embedded_broker.embedded_cluster import EmbeddedCluster as EmbeddedCluster
    from splashdam.model.transactions import ConsumerGroupMetadata as ConsumerGroupMetadata
    from splashdam.model.transactions import OffsetAndMetadata as OffsetAndMetadata
    from splashdam.model.transactions import PreparedTransaction as PreparedTransaction
    from splashdam.model.values import BatchMetadata as BatchMetadata
    from splashdam.model.values import RecordMetadata as RecordMetadata
    from splashdam.model.values import TopicPartition as TopicPartition

    __impl__: str
    """Which twin of the hot kernels is in use: "c" or "python"."""

__version__ = "0.1.0"

_HOMES = {
    "AsyncKafkaProducer": "client.async_producer",
    "BatchMetadata": "model.values",
    "BulkDelivery": "client.reports",
    "BulkReport": "client.reports",
    "ConsumerGroupMetadata": "model.transactions",
    "DefaultPartitioner": "client.partitioning.partitioners",
    "DefaultSerializer": "client.serializers",
    "DeliveryReport": "client.reports",
    "EmbeddedBroker": "embedded_broker.embedded",
    "EmbeddedCluster": "embedded_broker.embedded_cluster",
    "FailedRecords": "client.reports",
    "JsonSerializer": "client.serializers",
    "KafkaProducer": "client.producer",
    "OffsetAndMetadata": "model.transactions",
    "Partitioner": "client.partitioning.partitioners",
    "PreparedTransaction": "model.transactions",
    "ProducerInterceptor": "client.interceptors",
    "ProducerRecord": "client.interceptors",
    "RecordFuture": "client.future",
    "RecordMetadata": "model.values",
    "RoundRobinPartitioner": "client.partitioning.partitioners",
    "Serializer": "client.serializers",
    "StickyPartitioner": "client.partitioning.partitioners",
    "TopicPartition": "model.values",
    "open_broker": "embedded_broker.broker",
    "open_cluster": "embedded_broker.cluster",
}

__all__ = sorted(["__impl__", "__version__", "errors", *_HOMES])  # noqa: PLE0605 (from the table)


def __getattr__(name: str) -> object:
    if name == "__impl__":
        return import_module("splashdam.record.kernel").IMPL
    if name == "errors":
        return import_module("splashdam.errors")
    if name not in _HOMES:
        raise AttributeError(f"module 'splashdam' has no attribute {name!r}")
    value = getattr(import_module(f"splashdam.{_HOMES[name]}"), name)
    globals()[name] = value  # so the next look-up does not call __getattr__
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
