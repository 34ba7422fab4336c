"""A record's way into the accumulator where it is not straight: unknown topic, full memory, a new batch.

``Admission`` decides and never waits: ``step`` either brings the record in, or answers what has to happen
first, or raises because its time is up. Threads, trio tasks and the queue of late records wait for that each
in their own way; ``max_block_ms`` holds for metadata and memory together.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from splashdam.accumulator.accumulator import BatchFull, Exhausted
from splashdam.accumulator.memory import MemoryTicket
from splashdam.accumulator.open_batches import Appended
from splashdam.client.future import RecordFuture
from splashdam.client.partitioning.partitioners import hashed_partition
from splashdam.client.sending.lookup import MetadataWait, TopicLookup, no_such_partition
from splashdam.client.waiters import Wake
from splashdam.model.broker_errors import BrokerResponseError
from splashdam.model.errors import (
    AuthenticationError,
    BufferExhaustedError,
    IllegalStateError,
)
from splashdam.model.values import HeaderPairs, TopicPartition
from splashdam.net.guard import Guard
from splashdam.record.kernel import BatchOutcome
from splashdam.record.kernel.building.lanes import RECORD_FRAMING_BYTES, payload_size

if TYPE_CHECKING:
    from splashdam.client.sending.intake import RecordIntake
    from splashdam.client.sending.routes import TopicRoute


class Admission:
    """One record that ``send`` was given.

    Attributes:
        topic, key, value, headers, timestamp_ms: the record; key and value as bytes.
        partition: where the application wants it, None: anywhere.
        target: the partition it goes to, once that is decided.
        waits_for: what has to happen before the next ``step``.
        deadline_ms: when waiting ends, by the monotonic clock.
        expected_bytes: what will follow it to the same partition, as far as it is known.
        patient: False: the caller does not wait, but may come back.
    """

    __slots__ = (
        "_accepted",
        "_given",
        "_intake",
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
        intake: RecordIntake,
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

    def step(self) -> RecordFuture | None:
        """One attempt; None: wait for ``waits_for`` and try again.

        Raises:
            KafkaTimeoutError: it would have to wait, but ``deadline_ms`` has passed. Nothing is queued.
            KafkaError, ValueError, TypeError: it cannot be sent at all. Nothing is queued.
        """
        if self.target is not None:  # decided before: it waited for memory
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
        """The caller has its future: closing the producer does not turn the record away any more."""
        self._accepted = True

    def cancel(self) -> None:
        """Gives up: a place in the line for memory, or the memory itself, goes to the next one."""
        self._leave_the_line()

    def _leave_the_line(self) -> None:
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            self._intake.guard.run(self._intake.accumulator.cancel, ticket)

    def size_bytes(self) -> int:
        """What it holds in memory while it waits."""
        return len(self.key or b"") + len(self.value or b"") + payload_size(self.headers or ())

    def _append(self, route: TopicRoute | None) -> RecordFuture | None:
        intake = self._intake
        now_ms = intake.clock.now_ms()
        result = self._attempt(route, now_ms)
        if result.wake:
            intake.wake()
        if isinstance(result, Appended):
            return result.future
        if now_ms >= self.deadline_ms:
            self._leave_the_line()
            intake.tally.add("exhausted", 1)
            raise BufferExhaustedError(intake.why_exhausted())
        self.waits_for = MemoryWait(intake.guard, result.ticket)
        return None

    def _attempt(self, route: TopicRoute | None, now_ms: float) -> Appended[RecordFuture] | Exhausted:
        intake = self._intake
        if route is None:  # decided already: this record waits for memory
            return self._insist(now_ms)
        if self.partition is not None:
            self.target = route.lanes[self.partition].topic_partition
            return self._insist(now_ms)
        if intake.partition is not None:
            return self._attempt_custom(route, now_ms)
        if self.key is not None:
            self.target = route.lanes[hashed_partition(self.key, route.count)].topic_partition
            return self._insist(now_ms)
        return intake.guard.run(self._attempt_sticky, route, now_ms)

    def _attempt_sticky(self, route: TopicRoute, now_ms: float) -> Appended[RecordFuture] | Exhausted:
        """KIP-794: leaves a partition whose batches are all full once ``batch_size`` went there.

        This record counts too. Java does not count it, so a batch that is full but for a few bytes is
        followed by a second one on the same partition.
        """
        size_bytes = self.size_bytes() + RECORD_FRAMING_BYTES
        if route.sticky_bytes >= route.sticky_limit_bytes:
            route.switch()
        self.target = route.sticky.topic_partition
        if route.full_with(size_bytes):
            result = self._try(now_ms, abort_on_new_batch=True)
            if isinstance(result, Appended):
                route.sticky_bytes += size_bytes
                return result
            route.switch()
            self.target = route.sticky.topic_partition
        route.sticky_bytes += size_bytes
        return self._insist(now_ms)

    def _attempt_custom(self, route: TopicRoute, now_ms: float) -> Appended[RecordFuture] | Exhausted:
        intake = self._intake
        self._ask_partitioner(route)
        if self.key is not None or intake.on_new_batch is None:
            return self._insist(now_ms)
        result = intake.guard.run(self._try, now_ms, abort_on_new_batch=True)
        if not isinstance(result, BatchFull):
            return result
        assert self.target is not None
        intake.on_new_batch(
            self.topic, route.view, self.target.partition
        )  # outside the guard: it is not ours
        self._ask_partitioner(route)
        return self._insist(now_ms)

    def _ask_partitioner(self, route: TopicRoute) -> None:
        choose = self._intake.partition
        assert choose is not None
        key, value = self._given
        chosen = choose(self.topic, key, self.key, value, self.value, route.view)
        if chosen is None or not 0 <= operator.index(chosen) < route.count:
            raise no_such_partition(
                self.topic, chosen, route.count, f"the partitioner chose partition {chosen!r}: "
            )
        self.target = route.lanes[chosen].topic_partition

    def _insist(self, now_ms: float) -> Appended[RecordFuture] | Exhausted:
        result = self._intake.guard.run(self._try, now_ms)
        assert not isinstance(result, BatchFull)  # that is answered only where it was asked for
        return result

    def _try(
        self, now_ms: float, *, abort_on_new_batch: bool = False
    ) -> Appended[RecordFuture] | BatchFull | Exhausted:
        assert self.target is not None
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
            future_type=RecordFuture,
            ticket=self._ticket,
            abort_on_new_batch=abort_on_new_batch,
            expected_bytes=self.expected_bytes,
        )
        self._ticket = result.ticket  # before all else: a signal handler may raise, and then it is given back
        return result

    def _failed(self, error: BaseException) -> RecordFuture:
        """A future that has failed already: kafka-python's answer where the cluster refuses a topic."""
        future = self.promise()
        future.outcome.fail(error)
        return future

    def topic_partition(self) -> TopicPartition:
        """Where it goes, as far as that is known; partition -1 where it is not."""
        if self.target is not None:
            return self.target
        return TopicPartition(self.topic, -1 if self.partition is None else self.partition)

    def promise(self) -> RecordFuture:
        """A future with an outcome of its own, for a record that is in no batch."""
        return RecordFuture(
            BatchOutcome(self.topic_partition()),
            0,
            self.timestamp_ms,
            -1 if self.key is None else len(self.key),
            -1 if self.value is None else len(self.value),
            payload_size(self.headers) if self.headers else -1,
        )


class MemoryWait:
    """Waits for the turn of a ticket in the line for memory."""

    __slots__ = ("_guard", "_ticket")

    what: ClassVar[str] = "memory"

    def __init__(self, guard: Guard, ticket: MemoryTicket) -> None:
        self._guard = guard
        self._ticket = ticket

    def subscribe(self, wake: Wake) -> object | None:
        return self._guard.run(self._subscribe, wake)

    def _subscribe(self, wake: Wake) -> object | None:
        if self._ticket.ready:
            return None
        self._ticket.on_ready = wake
        return self._ticket

    def unsubscribe(self, handle: Any) -> None:
        self._ticket.on_ready = None


Wait: TypeAlias = MetadataWait | MemoryWait
"""What an admission may have to wait for; ``what`` names it."""
