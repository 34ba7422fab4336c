"""``send`` up to the accumulator: checks, serializers, partition, and the way into an open batch.

A record that fits as it is into the open batch of its partition has gone the straight path
(``record/kernel/building/straight.py``) before anything here sees it. What comes here is a few records in
each batch, and all records of a producer with serializers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from splashdam.accumulator.accumulator import RecordAccumulator
from splashdam.client.future import RecordFuture
from splashdam.client.observing.timings import CallerTally
from splashdam.client.partitioning.load_aware import LoadAwareDraw
from splashdam.client.partitioning.partitioners import (
    DefaultPartitioner,
    PartitionFunction,
    hashed_partition,
    partition_function,
)
from splashdam.client.sending.admission import Admission
from splashdam.client.sending.arguments import check_timestamp_ms, header_pairs, plain_bytes
from splashdam.client.sending.lookup import Doubts
from splashdam.client.sending.routes import BATCHES_PER_STAY, RouteTable, TopicRoute
from splashdam.client.serializers import serialize_function
from splashdam.client.settings.producer_settings import ProducerSettings
from splashdam.model.broker_errors import MessageTooLargeError
from splashdam.model.values import Buffer, HeaderPairs, TopicPartition
from splashdam.net.clock import Clock
from splashdam.net.guard import Guard
from splashdam.record.batch import HEADER_BYTES
from splashdam.record.kernel import StraightPath, record_size_upper_bound
from splashdam.record.kernel.building.lanes import (
    HEADER_FRAMING_BYTES,
    RECORD_FRAMING_BYTES,
    PartitionLane,
    payload_size,
)
from splashdam.sender.metadata import Metadata

if TYPE_CHECKING:
    from splashdam.client.interceptors import InterceptorChain

logger = logging.getLogger("splashdam.client")

_FRAMING_BYTES = HEADER_BYTES + 21 + 2 * 5 + 1
"""What a record without headers takes at most beside key and value, when it is alone in its batch."""


class RecordIntake:
    """Takes the records of one producer.

    Args:
        settings: the producer's.
        accumulator: where records go.
        metadata: the cluster.
        guard: around every use of both.
        wake: the sender has something to do; waits for its turn where the application is too far ahead.
        clock: the one clock.

    Attributes:
        path: where records go that fit as they are.
        fits_bytes: records of more bytes (key, value, headers) need a look at their exact size.
        tally: counts what callers wait for.
        partition: the application's partitioner; None for the default rule, which needs no call.
        on_new_batch: its hook of that name, if it has one.
        doubts: topics whose number of partitions ``send_nowait`` has doubted.
        transaction: changes when a transaction ends; a record that waited longer is not taken.
        between: the ``refuse`` of a transactional producer without a transaction.
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
        self.max_block_ms = settings.max_block_ms
        self.max_request_size = settings.max_request_size
        self.fits_bytes = settings.max_request_size - _FRAMING_BYTES
        self.transaction = 0
        self.doubts = Doubts()
        self.between: Callable[[], BaseException] | None = None
        self.tally = CallerTally(settings.metrics_num_samples)
        self._refuse: Callable[[], BaseException] | None = None
        self._serializers = (settings.key_serializer, settings.value_serializer)
        self._serialize_key = serialize_function(settings.key_serializer, "key_serializer")
        self._serialize_value = serialize_function(settings.value_serializer, "value_serializer")
        self.path: StraightPath[RecordFuture] = StraightPath(
            wall_ns=clock.wall_ns,
            future_type=RecordFuture,
            fits_bytes=self.fits_bytes,
            guard=guard,
            plain=not (self._serialize_key or self._serialize_value),
        )
        self._chain: InterceptorChain | None = None
        self._admit: Callable[..., Admission] = Admission
        if settings.interceptors:
            self._settle_interceptors(settings.interceptors)
        self._settle_partitioner(settings)

    def _settle_interceptors(self, interceptors: Sequence[Any]) -> None:
        from splashdam.client.interceptors import InterceptorChain
        from splashdam.client.sending.intercepted import InterceptedAdmission

        self._chain = InterceptorChain(interceptors)
        self._admit = partial(InterceptedAdmission, self._chain)

    def _settle_partitioner(self, settings: ProducerSettings) -> None:
        partitioner = settings.partitioner
        by_default_rule = getattr(type(partitioner), "partition", None) is DefaultPartitioner.partition
        self.partition: PartitionFunction | None = None
        self.on_new_batch: Callable[..., Any] | None = None
        if not by_default_rule:
            self.partition = partition_function(partitioner)
            self.on_new_batch = getattr(partitioner, "on_new_batch", None)
        self.detour = self._chain is not None or not by_default_rule
        self._routes = RouteTable(
            path=self.path,
            metadata=self.metadata,
            guard=self.guard,
            draw=LoadAwareDraw(
                partitioner if by_default_rule else DefaultPartitioner(),
                self.accumulator,
                adaptive=settings.partitioner_adaptive_partitioning_enable,
            ),
            lane=self.accumulator.lane,
            forget_lanes=self.accumulator.forget_lanes,
            full_bytes=self.accumulator.limit_bytes,
        )

    @property
    def intercepted(self) -> bool:
        """Whether records pass interceptors."""
        return self._chain is not None

    @property
    def refuse(self) -> Callable[[], BaseException] | None:
        """Set once no more records are taken; makes the error that says why."""
        return self._refuse

    @refuse.setter
    def refuse(self, refuse: Callable[[], BaseException] | None) -> None:
        self._refuse = refuse
        self.path.closed = refuse is not None

    @property
    def ended(self) -> Callable[[], BaseException] | None:
        """As ``refuse``, but for who only looks at topics: between transactions that may go on."""
        return None if self._refuse is self.between else self._refuse

    @property
    def detour(self) -> bool:
        """True keeps every record from the straight path: the application has a partitioner of its own, or
        there are late records, which others of the same thread must not overtake."""
        return self.path.detour

    @detour.setter
    def detour(self, detour: bool) -> None:
        self.path.detour = detour

    def submit(  # noqa: PLR0912, PLR0917 (the record as it is, and one frame for all its checks)
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Any,
        partition: int | None,
        timestamp_ms: int | None,
        *,
        more_follow: bool = False,
        intercepted: bool = False,
        may_be_empty: bool = False,
    ) -> RecordFuture | Admission:
        """Brings the record into a batch of its partition, or answers an ``Admission`` to go on with.

        Raises what ``KafkaProducer.send`` does before it waits; the checks come in kafka-python's order. Who
        knows that ``more_follow`` gets an ``Admission`` where a batch has to be opened, and says how much. A
        record that ``may_be_empty`` needs neither key nor value, as in Kafka.
        """
        refuse = self._refuse  # read once: another thread may begin a transaction
        if refuse is not None:
            raise refuse()
        if self._chain is not None and not intercepted:
            return self._intercept(self._chain, topic, value, key, headers, partition, timestamp_ms)
        if value is None and key is None and not may_be_empty:
            raise ValueError("Need at least one: key or value")
        given = (key, value)
        pairs = [] if headers is None else header_pairs(headers)
        if self._serialize_key is not None:
            key = self._serialize_key(topic, pairs, key)
        if self._serialize_value is not None:
            value = self._serialize_value(topic, pairs, value)
        if key is not None and type(key) is not bytes:
            key = plain_bytes(key, "key")
        if value is not None and type(value) is not bytes:
            value = plain_bytes(value, "value")
        headers = tuple(pairs) or None
        if timestamp_ms is not None:
            timestamp_ms = check_timestamp_ms(timestamp_ms)
        if not self.path.plain:
            future = self.path.try_send(topic, value, key, headers, partition, timestamp_ms)
            if future is not None:
                return future
        if timestamp_ms is None:
            timestamp_ms = self.clock.wall_ns() // 1_000_000
        if not (more_follow or self.path.detour):
            future = self._open_batch(topic, key, value, headers, partition, timestamp_ms)
            if future is not None:
                return future
        return self._admit(self, topic, key, value, headers, partition, timestamp_ms, given)

    def _intercept(self, chain: InterceptorChain, topic: str, *rest: Any) -> RecordFuture | Admission:
        """As ``submit``, for the record that the interceptors have made of this one."""
        from splashdam.client.interceptors import ProducerRecord

        record = chain.on_send(ProducerRecord(topic, *rest))
        try:
            return self.submit(
                record.topic,
                record.value,
                record.key,
                record.headers,
                record.partition,
                record.timestamp_ms,
                intercepted=True,
            )
        except Exception as error:
            partition = -1 if record.partition is None else record.partition
            chain.settled(TopicPartition(record.topic, partition), record.headers, error)
            raise

    def _open_batch(  # noqa: PLR0917 (as submit)
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: HeaderPairs | None,
        partition: int | None,
        timestamp_ms: int,
    ) -> RecordFuture | None:
        """What most records meet that cannot go straight: topic and partition are known, the partition has no
        open batch, and there is memory. None, and nothing has changed, where it is not so.
        """
        route = self.path.route(topic)
        if route is None:
            return None
        size_bytes = (0 if key is None else len(key)) + (0 if value is None else len(value))
        if headers is not None:
            size_bytes += payload_size(headers) + HEADER_FRAMING_BYTES * len(headers)
        sticky_bytes = 0
        if partition is not None:
            if type(partition) is not int or not 0 <= partition < len(route.lanes):
                return None
            lane = route.lanes[partition]
        elif key is not None:
            lane = route.lanes[hashed_partition(key, len(route.lanes))]
        else:
            lane, sticky_bytes = route.sticky, size_bytes + RECORD_FRAMING_BYTES
            if (route.sticky_bytes + sticky_bytes) * BATCHES_PER_STAY >= route.sticky_limit_bytes:
                return None
        if lane.buffer is not None or size_bytes > self.fits_bytes or self.guard.interrupted():
            return None
        future = self.guard.run(self._append_new, lane, timestamp_ms, key, value, headers)
        if future is not None:
            route.sticky_bytes += sticky_bytes
            self.wake()
        return future

    def _append_new(
        self,
        lane: PartitionLane,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: HeaderPairs | None,
    ) -> RecordFuture | None:
        if self._refuse is not None:  # the transaction has ended meanwhile
            return None
        return self.accumulator.append_new(
            lane, self.clock.now_ms(), timestamp_ms, key, value, headers, RecordFuture
        )

    def route(self, topic: str) -> TopicRoute | None:
        """The topic as the present metadata shows it; None where they do not."""
        return self._routes.get(topic)

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
        statistics = self.guard.run(self.accumulator.statistics)
        return (
            f"buffer_memory of {statistics.buffer_memory} bytes was full for {self.max_block_ms:g} ms:"
            f" {statistics.incomplete_batches} batches are not acknowledged,"
            f" {statistics.waiting} callers wait;"
            f" {self.last_failure()}"
        )

    def last_failure(self) -> str:
        """Why the cluster did not answer, as far as that is known."""
        reasons = [reason for reason in (self.metadata.obstacle(), self.metadata.last_failure) if reason]
        if reasons:
            return "; ".join(reasons)
        silent = self.metadata.silent()
        by_whom = f" by {silent}" if silent else ""
        return f"no connection has failed, but what was asked is not answered{by_whom}"

    def close_plugins(self) -> None:
        """Calls ``close`` of serializers and interceptors that have one; what they raise is logged."""
        if self._chain is not None:
            self._chain.close()
        for serializer in self._serializers:
            try:
                close = getattr(serializer, "close", None)
                if close is not None:
                    close()
            except Exception:
                logger.exception("a serializer raised in close()")
