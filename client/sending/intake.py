"""A record's way from ``send`` into a batch, off the fast path: checks, serializers, placing, waits.

A record that fits into the open batch of its partition takes the fast path
(``record/kernel/building/fast_path.py``). A few records of each batch come here, and all records of a
producer with serializers. In order:

* ``RecordIntake.submit`` checks and serializes the record. If topic and partition are known, memory is free,
  and the partition needs a new batch or a larger buffer, it opens the batch or grows it.
* Otherwise it returns a ``PendingSend``, which never waits itself: ``step`` either appends the record, or
  says what to wait for, or raises on timeout. Threads, trio tasks and the queue of deferred records wait for
  it in their own ways (``waiting.py``); ``max_block_ms`` limits the waits for metadata and memory together.
* Its partition is decided in ``partitioning/placing.py``.
"""

from __future__ import annotations

import logging
import operator
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias

from splashdam.accumulator.accumulator import BatchFull, Exhausted, RecordAccumulator
from splashdam.accumulator.memory import MemoryTicket
from splashdam.accumulator.open_batches import Appended
from splashdam.client.observing.timings import CallerCounters
from splashdam.client.partitioning.partitioners import (
    DefaultPartitioner,
    PartitionFunction,
    partition_function,
)
from splashdam.client.partitioning.placing import (
    LoadAwareDraw,
    RouteTable,
    TopicRoute,
    place,
    stay_is_over,
)
from splashdam.client.sending.arguments import (
    check_header_keys,
    check_timestamp_ms,
    header_pairs,
    plain_bytes,
)
from splashdam.client.sending.lookup import (
    MetadataWait,
    MissingPartitions,
    TopicLookup,
    no_such_partition,
)
from splashdam.client.serializers import serialize_function
from splashdam.client.settings.producer_settings import ProducerSettings
from splashdam.client.waiters import Wake
from splashdam.model.broker_errors import BrokerResponseError, MessageTooLargeError
from splashdam.model.errors import (
    AuthenticationError,
    BufferExhaustedError,
    IllegalStateError,
    KafkaError,
    SettingText,
)
from splashdam.model.log_text import shown
from splashdam.model.values import Buffer, HeaderPairs, TopicPartition
from splashdam.net.clock import Clock
from splashdam.net.reentrant_lock import ReentrantLock
from splashdam.record.batch import HEADER_BYTES
from splashdam.record.kernel import BatchOutcome, FastPath, record_size_upper_bound
from splashdam.record.kernel.building.lanes import (
    HEADER_FRAMING_BYTES,
    RECORD_FRAMING_BYTES,
    PartitionLane,
    payload_size,
)
from splashdam.record.kernel.outcomes.outcome import FutureT
from splashdam.sender.metadata import Metadata

if TYPE_CHECKING:
    from splashdam.client.interceptors import InterceptorChain

logger = logging.getLogger("splashdam.client")

_FRAMING_BYTES = HEADER_BYTES + 21 + 2 * 5 + 1
"""Maximum overhead of a record without headers that is alone in its batch, beside key and value."""


class RecordIntake(Generic[FutureT]):
    """Takes the records of one producer.

    Args:
        settings: the producer's.
        accumulator: takes the records.
        metadata: of the cluster.
        guard: held around every use of both.
        wake: wakes the sender; waits for its drain if the application is too far ahead (``GilHandOver``).
        clock: the producer's clock.
        future_type: what ``send`` returns.

    Attributes:
        path: the fast path.
        fits_bytes: larger records (key, value, headers) need a check of their exact size.
        caller_counters: how long callers have waited.
        partition: the application's partitioner; None for the default one, which needs no call.
        on_new_batch: its hook of that name, if it has one.
        missing_partitions: partitions that ``send_nowait`` was asked for and did not find.
        transaction: changes when a transaction ends; a record that waited across it is refused.
        chain: the interceptors, None for none.
        refuse_between: makes the error of ``send`` between two transactions.
    """

    def __init__(
        self,
        *,
        settings: ProducerSettings,
        accumulator: RecordAccumulator,
        metadata: Metadata,
        guard: ReentrantLock,
        wake: Callable[[], None],
        clock: Clock,
        future_type: type[FutureT],
    ) -> None:
        self.accumulator = accumulator
        self.metadata = metadata
        self.guard = guard
        self.wake = wake
        self.clock = clock
        self.future_type = future_type
        self.max_block_ms = settings.max_block_ms
        self.max_request_size = settings.max_request_size
        self.fits_bytes = settings.max_request_size - _FRAMING_BYTES
        self.transaction = 0
        self.missing_partitions = MissingPartitions()
        self.refuse_between: Callable[[], BaseException] | None = None
        self.caller_counters = CallerCounters(settings.metrics_num_samples)
        self._refuse: Callable[[], BaseException] | None = None
        self._serializers = (settings.key_serializer, settings.value_serializer)
        self._serialize_key = serialize_function(settings.key_serializer, "key_serializer")
        self._serialize_value = serialize_function(settings.value_serializer, "value_serializer")
        self.path: FastPath[FutureT] = FastPath(
            wall_ns=clock.wall_ns,
            future_type=self.future_type,
            fits_bytes=self.fits_bytes,
            guard=guard,
            plain=not (self._serialize_key or self._serialize_value),
        )
        self.chain: InterceptorChain | None = None
        if settings.interceptors:
            from splashdam.client.interceptors import InterceptorChain

            self.chain = InterceptorChain(settings.interceptors)
        self._settle_partitioner(settings)

    def _settle_partitioner(self, settings: ProducerSettings) -> None:
        partitioner = settings.partitioner
        by_default_rule = getattr(type(partitioner), "partition", None) is DefaultPartitioner.partition
        self.partition: PartitionFunction | None = None
        self.on_new_batch: Callable[..., Any] | None = None
        if not by_default_rule:
            self.partition = partition_function(partitioner)
            self.on_new_batch = getattr(partitioner, "on_new_batch", None)
        self.detour = self.chain is not None or not by_default_rule
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
    def refuse(self) -> Callable[[], BaseException] | None:
        """Makes the error of ``send`` while no records are taken; None while they are."""
        return self._refuse

    @refuse.setter
    def refuse(self, refuse: Callable[[], BaseException] | None) -> None:
        self._refuse = refuse
        self.path.closed = refuse is not None

    @property
    def refuse_lookup(self) -> Callable[[], BaseException] | None:
        """As ``refuse``, but None between transactions: a lookup is legal there."""
        return None if self._refuse is self.refuse_between else self._refuse

    @property
    def detour(self) -> bool:
        """Whether all records bypass the fast path.

        True with an application's partitioner, and while records are deferred, which later records of the
        same thread must not overtake.
        """
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
        on_opened: Callable[[], None] | None = None,
    ) -> FutureT | PendingSend[FutureT]:
        """Append the record, or return a ``PendingSend`` to continue with.

        Raises what ``KafkaProducer.send`` raises before it waits; the checks come in kafka-python's order.

        Args:
            topic, value, key, headers, partition, timestamp_ms: as for ``send``.
            more_follow: return a ``PendingSend`` if a batch has to be opened, so that the caller can set its
                ``expected_bytes``.
            intercepted: the interceptors have seen the record.
            may_be_empty: accept a record with neither key nor value, as Kafka does.
            on_opened: called in place of ``wake`` if the record opens a batch here; not with interceptors.
        """
        refuse = self._refuse  # read once: another thread may begin a transaction
        if refuse is not None:
            raise refuse()
        if self.chain is not None and not intercepted:
            return self._intercept(self.chain, topic, value, key, headers, partition, timestamp_ms)
        if value is None and key is None and not may_be_empty:
            raise ValueError("Need at least one: key or value")
        # An application's partitioner gets key and value as they were given.
        given = (key, value)
        # A list: serializers may append headers, such as a schema id.
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
        # The kernel's ``send`` takes bytes only, so this record has not tried the fast path yet.
        if not self.path.plain:
            future = self.path.try_send(topic, value, key, headers, partition, timestamp_ms)
            if future is not None:
                return future
        # The fast path has no error for a key that it cannot encode: it returns None, and the record comes
        # here.
        if headers is not None:
            check_header_keys(headers)
        if timestamp_ms is None:
            timestamp_ms = self.clock.wall_ns() // 1_000_000
        # With linger 0 most records only lack an open batch, or room in it: a pending send would cost more
        # than the record (docs/decisions/producer-threads.md).
        if not (more_follow or self.path.detour):
            future = self._append_at_once(
                topic, key, value, headers, partition, timestamp_ms, on_opened or self.wake
            )
            if future is not None:
                return future
        return PendingSend(self, topic, key, value, headers, partition, timestamp_ms, given)

    def _intercept(self, chain: InterceptorChain, topic: str, *rest: Any) -> FutureT | PendingSend[FutureT]:
        """As ``submit``, for the record that the interceptors return."""
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
            # Each record that the interceptors saw is acknowledged once, whatever happens to it.
            chain.settled(TopicPartition(record.topic, partition), record.headers, error)
            raise

    def _append_at_once(  # noqa: PLR0917 (as submit)
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: HeaderPairs | None,
        partition: int | None,
        timestamp_ms: int,
        on_opened: Callable[[], None],
    ) -> FutureT | None:
        """Open a batch with the record, or grow the open one for it: the usual cases off the fast path.

        Return None, with nothing changed, unless topic and partition are known, the open batch is not full,
        and memory is free.
        """
        route = self.path.route(topic)
        if route is None:
            return None
        size_bytes = (0 if key is None else len(key)) + (0 if value is None else len(value))
        if headers is not None:
            size_bytes += payload_size(headers) + HEADER_FRAMING_BYTES * len(headers)
        sticky_bytes = 0
        if partition is not None and (type(partition) is not int or not 0 <= partition < len(route.lanes)):
            return None
        lane = place(route, partition, key)
        if lane is None:
            lane, sticky_bytes = route.sticky, size_bytes + RECORD_FRAMING_BYTES
            if stay_is_over(route, sticky_bytes):
                return None
        # `interrupted`: a signal handler or `__del__` inside `send` may not touch what its own thread is
        # changing, so its record is deferred (docs/decisions/producer-threads.md).
        if size_bytes > self.fits_bytes or self.guard.interrupted():
            return None
        # A guess, without the guard: `append_new` and `append_grown` look again.
        opens = lane.buffer is None
        append = self._append_new if opens else self._append_grown
        future = self.guard.run(append, lane, timestamp_ms, key, value, headers)
        if future is not None:
            # Without the guard: an update that is lost lets the partition stay a little longer, no more.
            route.sticky_bytes += sticky_bytes
            # A batch that only grows has woken the sender when it was opened.
            if opens:
                on_opened()
        return future

    def _append_new(
        self,
        lane: PartitionLane,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: HeaderPairs | None,
    ) -> FutureT | None:
        if self._refuse is not None:  # the transaction has ended since
            return None
        return self.accumulator.append_new(
            lane, self.clock.now_ms(), timestamp_ms, key, value, headers, self.future_type
        )

    def _append_grown(
        self,
        lane: PartitionLane,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: HeaderPairs | None,
    ) -> FutureT | None:
        if self._refuse is not None:
            return None
        return self.accumulator.append_grown(lane, timestamp_ms, key, value, headers, self.future_type)

    def route(self, topic: str) -> TopicRoute | None:
        """The topic in the current metadata; None if it is missing."""
        return self._routes.get(topic)

    def check_size(self, key: Buffer | None, value: Buffer | None, headers: HeaderPairs | None) -> None:
        """Raise if a record may exceed ``max_request_size``.

        Raises:
            MessageTooLargeError: it does.
        """
        size_bytes = HEADER_BYTES + record_size_upper_bound(key, value, headers)
        if size_bytes > self.max_request_size:
            raise MessageTooLargeError(
                f"the record takes up to {size_bytes} bytes, max_request_size is {self.max_request_size}"
            )

    def why_exhausted(self) -> str:
        """Return the text of a ``BufferExhaustedError``."""
        statistics = self.guard.run(self.accumulator.statistics)
        return SettingText(
            "{0} of {bytes} bytes was full for {block_ms:g} ms: {batches} batches are not acknowledged,"
            " {waiting} callers wait; {failure}",
            "buffer_memory",
            bytes=statistics.buffer_memory,
            block_ms=self.max_block_ms,
            batches=statistics.incomplete_batches,
            waiting=statistics.waiting,
            failure=self.last_failure(),
        )

    def last_failure(self) -> str:
        """Return why the cluster did not answer, for error messages; perhaps a ``SettingText``."""
        obstacle, failure = self.metadata.obstacle(), self.metadata.last_failure
        if obstacle and failure:
            return SettingText("{obstacle}; {failure}", obstacle=obstacle, failure=failure)
        if obstacle or failure:
            return obstacle or failure
        silent = self.metadata.silent()
        by_whom = f" by {silent}" if silent else ""
        return f"no connection has failed, but a request is not answered{by_whom}"

    def close_plugins(self) -> None:
        """Close serializers and interceptors that have a ``close``; their errors are logged."""
        if self.chain is not None:
            self.chain.close()
        for serializer in self._serializers:
            try:
                close = getattr(serializer, "close", None)
                if close is not None:
                    close()
            except Exception:
                logger.exception("a serializer raised in close()")


class PendingSend(Generic[FutureT]):
    """A record that waits, or may have to wait, for metadata or memory.

    Attributes:
        topic, key, value, headers, timestamp_ms: the record; key and value as bytes.
        partition: the partition that the application gave; None for any.
        target: the partition it goes to, once that is decided. A wait for memory does not change it, so that
            records of one key keep their order.
        waits_for: what has to happen before the next ``step``.
        deadline_ms: end of the wait, by the monotonic clock.
        expected_bytes: size of records known to follow to the same partition.
        patient: False if the caller does not wait, but may call again.
    """

    __slots__ = (
        "_accepted",
        "_given",
        "_intake",
        "_interceptors_told",
        "_lookup",
        "_ticket",
        "_transaction",
        "deadline_ms",
        "expected_bytes",
        "headers",
        "key",
        "partition",
        "patient",
        "target",
        "timestamp_ms",
        "topic",
        "value",
        "waits_for",
    )

    def __init__(  # noqa: PLR0917 (made in the hot path, where keywords cost)
        self,
        intake: RecordIntake[FutureT],
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: HeaderPairs | None,
        partition: int | None,
        timestamp_ms: int,
        given: tuple[Any, Any],
    ) -> None:
        self._intake = intake
        self._accepted = False
        self._given = given
        self._lookup: TopicLookup | None = None
        self._ticket: MemoryTicket | None = None
        self._interceptors_told = False
        self._transaction = intake.transaction
        self.topic = topic
        self.key = key
        self.value = value
        self.headers = headers
        self.partition = partition
        self.timestamp_ms = timestamp_ms
        self.target: TopicPartition | None = None
        self.waits_for: Wait | None = None
        self.expected_bytes = 0
        self.patient = True
        self.deadline_ms = intake.clock.now_ms() + intake.max_block_ms

    def step(self) -> FutureT | None:
        """Try to append; None: wait for ``waits_for`` and try again.

        If this fails, the interceptors' ``on_acknowledgement`` runs before the error is raised.

        Raises:
            KafkaTimeoutError: it would have to wait, but ``deadline_ms`` has passed. Nothing is queued.
            KafkaError, ValueError, TypeError: it cannot be sent. Nothing is queued.
        """
        chain = self._intake.chain
        if chain is None:
            return self._step()
        try:
            future = self._step()
        except Exception as error:
            # Ctrl-C and cancellations pass by: `cancel`, which follows, tells them.
            self._tell(error)
            raise
        if future is not None:
            self._interceptors_told = True
            future.add_both(chain.settled, future.outcome.topic_partition, self.headers)
        return future

    def _step(self) -> FutureT | None:
        if self.target is not None:  # decided before the wait for memory
            return self._append(None)
        refuse = self._intake.refuse
        if refuse is not None and not self._accepted:
            raise refuse()
        lookup = self._lookup
        if lookup is None:
            lookup = self._lookup = TopicLookup(
                self._intake, self.topic, self.partition, self.deadline_ms, patient=self.patient
            )
        lookup.accepted = self._accepted
        try:
            route = lookup.step()
        except (BrokerResponseError, AuthenticationError) as error:
            return self._failed(error)
        if route is None:
            self.waits_for = lookup.waits_for
            return None
        self._intake.check_size(self.key, self.value, self.headers)
        return self._append(route)

    def accept(self) -> None:
        """Mark the record as accepted: closing the producer does not refuse it any more."""
        self._accepted = True

    def cancel(self) -> None:
        """Give up, and release the place in the line for memory or the memory itself."""
        self._leave_the_line()
        if self._intake.chain is not None:
            self._tell(sys.exception() or KafkaError("the record was given up before it was in a batch"))

    def _tell(self, error: BaseException) -> None:
        chain = self._intake.chain
        if chain is not None and not self._interceptors_told:
            self._interceptors_told = True
            chain.settled(self.topic_partition(), self.headers, error)

    def _leave_the_line(self) -> None:
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            self._intake.guard.run(self._intake.accumulator.cancel, ticket)

    def size_bytes(self) -> int:
        """Size of key, value and headers."""
        return len(self.key or b"") + len(self.value or b"") + payload_size(self.headers or ())

    def _append(self, route: TopicRoute | None) -> FutureT | None:
        intake = self._intake
        now_ms = intake.clock.now_ms()
        result = self._attempt(route, now_ms)
        # Also if memory is full: the sender must send, since only that frees memory.
        if result.wake:
            intake.wake()
        if isinstance(result, Appended):
            return result.future
        if now_ms >= self.deadline_ms:
            self._leave_the_line()
            intake.caller_counters.add("exhausted", 1)
            raise BufferExhaustedError(intake.why_exhausted())
        self.waits_for = MemoryWait(intake.guard, result.ticket)
        return None

    def _attempt(self, route: TopicRoute | None, now_ms: float) -> Appended[FutureT] | Exhausted:
        intake = self._intake
        if route is None:  # the target is decided: the record waits for memory
            return self._insist(now_ms)
        ask = None if intake.partition is None else partial(self._ask_partitioner, intake.partition, route)
        lane = place(route, self.partition, self.key, ask)
        if lane is None:
            return intake.guard.run(self._attempt_sticky, route, now_ms)
        self.target = lane.topic_partition
        may_move = ask is not None and self.partition is None and self.key is None
        if may_move and intake.on_new_batch is not None:
            return self._attempt_or_move(route, ask, now_ms)
        return self._insist(now_ms)

    def _attempt_sticky(self, route: TopicRoute, now_ms: float) -> Appended[FutureT] | Exhausted:
        """KIP-794: switch the sticky partition once ``batch_size`` went there and its batches are full."""
        # This record counts, too. Java does not count it, so a batch that is full but for a few bytes
        # is followed by a second one on the same partition.
        size_bytes = self.size_bytes() + RECORD_FRAMING_BYTES
        if route.sticky_bytes >= route.sticky_limit_bytes:
            route.switch()
        self.target = route.sticky.topic_partition
        if stay_is_over(route, size_bytes):
            # What fits into an open batch still goes there: only a new batch goes to another partition.
            result = self._try(now_ms, abort_on_new_batch=True)
            if isinstance(result, Appended):
                route.sticky_bytes += size_bytes
                return result
            route.switch()
            self.target = route.sticky.topic_partition
        route.sticky_bytes += size_bytes
        return self._insist(now_ms)

    def _attempt_or_move(
        self, route: TopicRoute, ask: Callable[[], int] | None, now_ms: float
    ) -> Appended[FutureT] | Exhausted:
        """Append to an open batch. If all batches are full, let the partitioner choose again (KIP-480)."""
        intake = self._intake
        result = intake.guard.run(self._try, now_ms, abort_on_new_batch=True)
        if not isinstance(result, BatchFull):
            return result
        assert self.target is not None
        assert intake.on_new_batch is not None
        # Without the guard: this is the application's code.
        intake.on_new_batch(self.topic, route.view, self.target.partition)
        lane = place(route, None, None, ask)
        assert lane is not None
        self.target = lane.topic_partition
        return self._insist(now_ms)

    def _ask_partitioner(self, choose: PartitionFunction, route: TopicRoute) -> int:
        key, value = self._given
        chosen = choose(self.topic, key, self.key, value, self.value, route.view)
        if chosen is None or not 0 <= operator.index(chosen) < route.count:
            raise no_such_partition(
                self.topic, chosen, route.count, f"the partitioner chose partition {shown(chosen)}: "
            )
        return chosen

    def _insist(self, now_ms: float) -> Appended[FutureT] | Exhausted:
        result = self._intake.guard.run(self._try, now_ms)
        assert not isinstance(result, BatchFull)  # only returned for abort_on_new_batch
        return result

    def _try(
        self, now_ms: float, *, abort_on_new_batch: bool = False
    ) -> Appended[FutureT] | BatchFull | Exhausted:
        assert self.target is not None
        # Under the guard, where the end of a transaction changes the number: a record must not slip into
        # the next one. Java queues it and checks afterwards.
        if self._transaction != self._intake.transaction:
            self.cancel()
            raise IllegalStateError("the transaction has ended while this record waited; it is not queued")
        result = self._intake.accumulator.append(
            self.target,
            now_ms,
            self.timestamp_ms,
            self.key,
            self.value,
            self.headers,
            future_type=self._intake.future_type,
            ticket=self._ticket,
            abort_on_new_batch=abort_on_new_batch,
            expected_bytes=self.expected_bytes,
        )
        # Kept first of all: a signal handler may raise on the next line, and `cancel` then releases it.
        self._ticket = result.ticket
        return result

    def _failed(self, error: BaseException) -> FutureT:
        """Return a failed future, as kafka-python does when the cluster refuses a topic."""
        future = self.promise()
        future.outcome.fail(error)
        return future

    def topic_partition(self) -> TopicPartition:
        """The record's partition; number -1 if it is not decided."""
        if self.target is not None:
            return self.target
        return TopicPartition(self.topic, -1 if self.partition is None else self.partition)

    def promise(self) -> FutureT:
        """Return a future for a record that is in no batch, with an outcome of its own."""
        return self._intake.future_type(
            BatchOutcome(self.topic_partition()),
            0,
            self.timestamp_ms,
            -1 if self.key is None else len(self.key),
            -1 if self.value is None else len(self.value),
            payload_size(self.headers) if self.headers else -1,
        )


class MemoryWait:
    """Waits for a ticket in the line for memory."""

    __slots__ = ("_guard", "_ticket")

    what: ClassVar[str] = "memory"

    def __init__(self, guard: ReentrantLock, ticket: MemoryTicket) -> None:
        self._guard = guard
        self._ticket = ticket

    def subscribe(self, wake: Wake) -> object | None:
        return self._guard.run(self._subscribe, wake)

    def _subscribe(self, wake: Wake) -> object | None:
        # Under the guard, in which memory is granted: no grant comes between this look and the callback.
        if self._ticket.ready:
            return None
        self._ticket.on_ready = wake
        return self._ticket

    def unsubscribe(self, handle: Any) -> None:
        self._ticket.on_ready = None


Wait: TypeAlias = MetadataWait | MemoryWait
"""What a pending send may wait for; ``what`` names it."""
