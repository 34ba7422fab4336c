"""``send`` up to the accumulator: checks, serializers, partition, and the straight way into an open batch.

This is the hot path of the producers. A record that fits into the open batch of its partition takes one call
of ``submit`` and no object but its future; everything else becomes an ``Admission``.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable
from typing import Any

from splashdam.accumulator.accumulator import RecordAccumulator
from splashdam.client.admission import Admission
from splashdam.client.future import RecordFuture
from splashdam.client.guard import Guard
from splashdam.client.headers import header_pairs
from splashdam.client.partitioners import DefaultPartitioner, PartitionFunction, partition_function
from splashdam.client.routes import RECORD_FRAMING_BYTES, RouteTable, TopicRoute
from splashdam.client.serializers import serialize_function
from splashdam.client.settings import ProducerSettings
from splashdam.model.broker_errors import MessageTooLargeError
from splashdam.model.values import Buffer, HeaderPairs
from splashdam.net.clock import Clock
from splashdam.record.batch import HEADER_BYTES
from splashdam.record.kernel import murmur2, record_size_upper_bound
from splashdam.sender.metadata import Metadata

logger = logging.getLogger("splashdam.client")

_FRAMING_BYTES = HEADER_BYTES + 21 + 2 * 5 + 1
"""What a record without headers takes at most beside key and value, when it is alone in its batch."""


class RecordIntake:
    """Takes the records of one producer.

    Attributes:
        refuse: set once no more records are taken; makes the error that says why.
        detour: True keeps every record from the straight way: the application has a partitioner of its
            own, or there are late records, which others of the same thread must not overtake.
        partition: the application's partitioner; None for the default rule, which needs no call.
        on_new_batch: its hook of that name, if it has one.
    """

    def __init__(
        self,
        *,
        settings: ProducerSettings,
        accumulator: RecordAccumulator,
        metadata: Metadata,
        guard: Guard,
        wake: Callable[[], None],
        clock: Clock,
    ) -> None:
        self.accumulator = accumulator
        self.metadata = metadata
        self.guard = guard
        self.wake = wake
        self.clock = clock
        self.batch_size = settings.batch_size
        self.max_block_ms = settings.max_block_ms
        self.max_request_size = settings.max_request_size
        self.refuse: Callable[[], BaseException] | None = None
        self._serializers = (settings.key_serializer, settings.value_serializer)
        self._serialize_key = serialize_function(settings.key_serializer, "key_serializer")
        self._serialize_value = serialize_function(settings.value_serializer, "value_serializer")
        self._serializes = bool(self._serialize_key or self._serialize_value)
        self._settle_partitioner(settings.partitioner)
        self._surely_fits = settings.max_request_size - _FRAMING_BYTES
        self._sticky_limit = 2 * settings.batch_size
        self._try_append = accumulator.try_append

    def _settle_partitioner(self, partitioner: Any) -> None:
        by_default_rule = getattr(type(partitioner), "partition", None) is DefaultPartitioner.partition
        self.partition: PartitionFunction | None = None
        self.on_new_batch: Callable[..., Any] | None = None
        if not by_default_rule:
            self.partition = partition_function(partitioner)
            self.on_new_batch = getattr(partitioner, "on_new_batch", None)
        self.detour = not by_default_rule
        self._table = RouteTable(partitioner if by_default_rule else DefaultPartitioner())
        self._routes = self._table.routes

    def submit(  # noqa: PLR0912, PLR0917 (one frame per record: every call costs as much as the encoding)
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Any,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> RecordFuture | Admission:
        """Brings the record into the open batch of its partition, or answers an ``Admission`` to go on with.

        Raises what ``KafkaProducer.send`` does before it waits; the checks come in kafka-python's order.
        """
        if self.refuse is not None:
            raise self.refuse()
        if value is None and key is None:
            raise ValueError("Need at least one: key or value")
        given_key, given_value = key, value
        pairs: HeaderPairs | None = None
        if (
            type(value) is not bytes
            or (key is not None and type(key) is not bytes)
            or headers is not None
            or self._serializes
        ):
            key, value, pairs = self._encoded(topic, key, value, headers)
        size_bytes = 0 if value is None else len(value)
        if key is not None:
            size_bytes += len(key)
        if pairs is not None:
            size_bytes += _headers_limit(pairs)
        if timestamp_ms is None:
            timestamp_ms = self.clock.wall_ms()
        elif type(timestamp_ms) is not int:
            timestamp_ms = operator.index(timestamp_ms)

        route = self._routes.get(topic)
        if (
            route is not None
            and route.cluster is self.metadata.cluster
            and size_bytes <= self._surely_fits
            and not self.detour
            and (partition is None or (type(partition) is int and 0 <= partition < route.count))
        ):
            if partition is not None:
                number = partition
            else:
                number = -1 if key is None else (murmur2(key) & 0x7FFFFFFF) % route.count
            guard = self.guard
            with guard.lock:
                if not guard.depth:  # else a signal handler or a __del__ has interrupted the holder
                    guard.depth = 1
                    try:
                        if number >= 0:
                            target = route.partitions[number]
                        else:
                            if route.sticky_bytes >= self._sticky_limit:
                                route.switch()
                            target = route.sticky
                        future = self._try_append(
                            target, timestamp_ms, key, value, pairs, future_type=RecordFuture
                        )
                        if future is not None:
                            if number < 0:
                                route.sticky_bytes += size_bytes + RECORD_FRAMING_BYTES
                            return future
                    finally:
                        guard.depth = 0
        # Everything but the straight way is an Admission's: a few in each batch, not one per record.
        return Admission(self, topic, key, value, pairs, partition, timestamp_ms, (given_key, given_value))

    def route(self, topic: str) -> TopicRoute | None:
        """The topic as the present metadata shows it; None where they do not."""
        cluster = self.metadata.cluster
        route = self._routes.get(topic)
        if route is not None and route.cluster is cluster:
            return route
        return self._table.refresh(topic, cluster)

    def check_size(self, key: Buffer | None, value: Buffer | None, headers: HeaderPairs | None) -> None:
        """Refuses a record that would not fit into a request.

        Raises:
            MessageTooLargeError: it may take more than ``max_request_size``.
        """
        size_bytes = HEADER_BYTES + record_size_upper_bound(key, value, headers)
        if size_bytes > self.max_request_size:
            raise MessageTooLargeError(
                f"the record takes up to {size_bytes} bytes, max_request_size is {self.max_request_size}"
            )

    def why_exhausted(self) -> str:
        """What to tell a caller who has waited for memory in vain."""
        with self.guard:
            statistics = self.accumulator.statistics()
        return (
            f"buffer_memory of {statistics.buffer_memory} bytes was full for {self.max_block_ms:g} ms:"
            f" {statistics.incomplete_batches} batches are not acknowledged,"
            f" {statistics.waiting} callers wait;"
            f" {self.last_failure()}"
        )

    def last_failure(self) -> str:
        """Why the cluster did not answer, as far as that is known."""
        return self.metadata.last_failure or "no connection has failed, but what was asked is not answered"

    def close_serializers(self) -> None:
        """Calls ``close`` of those that have one; what they raise is logged."""
        for serializer in self._serializers:
            try:
                close = getattr(serializer, "close", None)
                if close is not None:
                    close()
            except Exception:
                logger.exception("a serializer raised in close()")

    def _encoded(
        self, topic: str, key: Any, value: Any, headers: Any
    ) -> tuple[bytes | None, bytes | None, HeaderPairs | None]:
        pairs = header_pairs(headers)
        if self._serialize_key is not None:
            key = self._serialize_key(topic, pairs, key)
        if self._serialize_value is not None:
            value = self._serialize_value(topic, pairs, value)
        return plain_bytes(key, "key"), plain_bytes(value, "value"), tuple(pairs) or None


def plain_bytes(data: Any, what: str) -> bytes | None:
    """A serialized key or value as the batch takes it; copied, since the caller may go on with its buffer.

    Raises:
        TypeError: it is neither bytes-like nor None.
    """
    if data is None or type(data) is bytes:
        return data
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(
            f"the {what} must be bytes-like or None once it is serialized, not {type(data).__name__};"
            f" set {what}_serializer"
        )
    return bytes(data)


def _headers_limit(pairs: HeaderPairs) -> int:
    """Bytes that headers take at most in a record."""
    return sum(4 * len(key) + len(value or b"") + 10 for key, value in pairs)
