"""A simulated application: it sends with one producer, perhaps in transactions, and notes the results."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import Literal

import attrs
import trio

from lab.simulator.network import SimulatedNetwork
from lab.simulator.report import RunRecord
from lab.simulator.scenario import ProducerPlan
from splashdam.client.async_producer import AsyncKafkaProducer
from splashdam.client.future import RecordFuture
from splashdam.model.errors import KafkaError
from splashdam.model.values import RecordMetadata
from splashdam.net.clock import Clock
from splashdam.net.memory import MemoryStream
from splashdam.storage.manager.topic_registry import NewTopic

PATIENCE_S = 900.0
"""Virtual time within which every call of a producer must end; a run that waits longer hangs."""

PROMPT_S = 8.0
"""Limit of virtual time for two records in sequence, without faults and without older records before them."""


@attrs.define(eq=False)
class SentRecord:
    """One record with its future, and the result that the application got.

    Attributes:
        value: unique in the run.
        topic: of the record.
        future: as ``send`` returned it.
        is_chained: whether a callback has sent it.
        metadata: of its delivery, None if it failed.
        error: its error, None if it was delivered.
        callbacks: number of callbacks, which must be one.
    """

    value: bytes
    topic: str
    future: RecordFuture
    is_chained: bool = False
    metadata: RecordMetadata | None = None
    error: BaseException | None = None
    callbacks: int = 0

    @property
    def name(self) -> str:
        """The first word of the value, for messages."""
        return self.value.partition(b" ")[0].decode()


class Workload:
    """One producer and its application.

    Args:
        plan: of the producer.
        seed: of its random choices.
        topics: that it may send to.
        network: for its connections.
        bootstrap_servers: of the cluster.
        clock: of the run.
        record: for the trace, counts and violations.
        on_delivery: called at each delivery.

    Attributes:
        plan: as given.
        sent: the records that the producer has taken, in the order of the calls.
        transactions: in their order; empty without transactions.
        perhaps_sent: values of ``send_many`` calls that did not return; some of them may be sent.
        calm: set when all faults are over.
    """

    def __init__(
        self,
        plan: ProducerPlan,
        *,
        seed: int,
        topics: list[NewTopic],
        network: SimulatedNetwork,
        bootstrap_servers: str,
        clock: Clock,
        record: RunRecord,
        on_delivery: Callable[[SentRecord, RecordMetadata], None],
    ) -> None:
        self.plan = plan
        self.sent: list[SentRecord] = []
        self.transactions: list[Transaction] = []
        self.perhaps_sent: set[bytes] = set()
        self.calm = trio.Event()
        self._random = Random(f"workload {plan.name} {seed}")
        self._topics = topics
        self._network = network
        self._record = record
        self._on_delivery = on_delivery
        self._streams: list[MemoryStream] = []
        self._count = 0
        self._chains = plan.chains
        self._producer = AsyncKafkaProducer(
            connect=self._connect,
            clock=clock,
            bootstrap_servers=bootstrap_servers,
            client_id=plan.name,
            **plan.options,
        )

    async def run(self) -> None:
        """Run the application until the producer is closed."""
        with trio.CancelScope() as scope:
            try:
                async with self._producer:
                    await (self._use_transactions() if self.plan.is_transactional else self._use())
                    if self.plan.close == "cancel":
                        scope.cancel()
                        await trio.lowlevel.checkpoint()
            finally:
                self._note("closed")
        self._check_nothing_left()

    async def _use(self) -> None:
        for _ in range(self.plan.bursts):
            await self._burst()
            if self._random.random() < self.plan.flushes:
                await self._flush()
            if self.plan.pause_ms:
                await trio.sleep(self._random.uniform(0, self.plan.pause_ms) / 1000)
        timeout = {"close 0": 0.0, "close soon": self._random.uniform(0.01, 2.0)}.get(self.plan.close)
        if self.plan.close == "close":
            await self._probe()
        if timeout is not None:
            await self._producer.close(timeout)

    async def _use_transactions(self) -> None:
        with trio.move_on_after(PATIENCE_S) as scope:
            await self._transact_to_the_end()
        if scope.cancelled_caught:
            self._record.violated(f"{self.plan.name}: its transactions did not end within {PATIENCE_S} s")

    async def _transact_to_the_end(self) -> None:
        if not await initialized(self._producer):
            self._record.count("transactional producers that could not begin")
            return
        for _ in range(self.plan.bursts):
            if await self._transact(commit=self._random.random() < 0.7) == "left open":
                return
            await trio.sleep(self._random.uniform(0, self.plan.pause_ms) / 1000)
        await self.calm.wait()
        while True:
            end = await self._transact(commit=True)
            if end != "aborted":
                self._note("last transaction", end)
                return
            await trio.sleep(1.0)

    async def _transact(self, *, commit: bool) -> str:
        first = len(self.sent)
        await self._producer.begin_transaction()
        await self._burst()
        end = await ended(self._producer, commit=commit)
        self.transactions.append(Transaction(self.sent[first:], end))
        self._note("transaction", end)
        return end

    async def _burst(self) -> None:
        topic = self._random.choice(self._topics)
        count = self._random.randint(1, self.plan.largest_burst)
        partition = self._random.randrange(topic.partitions) if self.plan.steers else None
        many = self._random.random() < self.plan.many
        patience_s = PATIENCE_S
        if self._random.random() < self.plan.cancels:
            patience_s = self._random.uniform(0, 0.05)
        with trio.move_on_after(patience_s) as scope:
            try:
                if many:
                    await self._send_many(topic.name, count, partition)
                else:
                    for _ in range(count):
                        await self._send(topic.name, partition)
            except KafkaError as error:
                self._note("not taken", type(error).__name__)
                self._record.count(f"records not taken: {type(error).__name__}")
        if scope.cancelled_caught:
            self._record.count("sends cancelled")
            if patience_s == PATIENCE_S:
                self._record.violated(f"{self.plan.name}: a send took {PATIENCE_S} s")

    async def _send(self, topic: str, partition: int | None, value: bytes | None = None) -> SentRecord:
        value = value or self._value()
        key = self._key()
        future = await self._producer.send(topic, value, key=key, partition=partition)
        return self._took(value, topic, future)

    async def _send_many(self, topic: str, count: int, partition: int | None) -> None:
        values = [self._value() for _ in range(count)]
        self.perhaps_sent.update(values)
        delivery = await self._producer.send_many(topic, values, partition=partition)
        self.perhaps_sent.difference_update(values)
        for number, value in enumerate(values):
            self._took(value, topic, delivery[number])
        self._record.count("send_many calls")

    def _took(
        self, value: bytes, topic: str, future: RecordFuture, *, is_chained: bool = False
    ) -> SentRecord:
        sent = SentRecord(value, topic, future, is_chained)
        self.sent.append(sent)
        future.add_callback(partial(self._delivered, sent)).add_errback(partial(self._failed, sent))
        return sent

    def _value(self, filling: int | None = None) -> bytes:
        self._count += 1
        if filling is None:
            filling = self._random.randint(0, self.plan.largest_value)
        return b"%s-%d " % (self.plan.name.encode(), self._count) + b"." * filling

    def _key(self) -> bytes | None:
        return b"k%d" % self._random.randrange(6) if self._random.random() < self.plan.keyed else None

    async def _flush(self) -> None:
        timeout = self._random.choice((None, None, 0.0, 0.3))
        before = list(self.sent)
        with trio.move_on_after(PATIENCE_S) as scope:
            await self._producer.flush(timeout)
        self._record.count("flushes")
        if scope.cancelled_caught:
            self._record.violated(f"{self.plan.name}: a flush took {PATIENCE_S} s")
        if timeout is None and any(not sent.future.done() for sent in before):
            self._record.violated(f"{self.plan.name}: a flush returned before all futures were done")

    async def _probe(self) -> None:
        """Check that after all faults a record is delivered, and soon."""
        await self.calm.wait()
        for topic in self._topics:
            with trio.move_on_after(PATIENCE_S) as scope:
                await self._prove_alive(topic.name)
            if scope.cancelled_caught:
                self._record.violated(f"{self.plan.name}: a record in calm weather has no result")
                continue
            started = trio.current_time()
            await self._prove_alive(topic.name)
            took_s = trio.current_time() - started
            if took_s > PROMPT_S:
                self._record.violated(f"{self.plan.name}: a record took {took_s} s in calm weather")

    async def _prove_alive(self, topic: str) -> None:
        self._chains = 1.0
        while True:
            try:
                sent = await self._send(topic, None, self._value(filling=0))
                await sent.future
                await self.sent[-1].future  # what the callback has sent
            except KafkaError as error:
                if not error.retriable:
                    self._record.violated(f"{self.plan.name}: a record in calm weather failed: {error!r}")
                    return
                self._record.count("records that failed in calm weather behind older ones")
                await trio.sleep(0.1)
            else:
                return

    # --- results --------------------------------------------------------------------------------------------

    def _delivered(self, sent: SentRecord, metadata: RecordMetadata) -> None:
        sent.callbacks += 1
        sent.metadata = metadata
        self._note("delivered", f"{sent.name} {metadata.topic}-{metadata.partition} @{metadata.offset}")
        self._record.count("records delivered")
        self._on_delivery(sent, metadata)
        self._chain(sent)

    def _failed(self, sent: SentRecord, error: BaseException) -> None:
        sent.callbacks += 1
        sent.error = error
        self._note("failed", f"{sent.name} {type(error).__name__}")
        self._record.count(f"records failed: {type(error).__name__}")
        self._chain(sent)

    def _chain(self, sent: SentRecord) -> None:
        """Send from a callback, as applications do, while the sender is in the middle of its work."""
        if sent.is_chained or self._random.random() >= self._chains:
            return
        value = self._value(filling=0)
        try:
            future = self._producer.send_nowait(sent.topic, value)
        except (KafkaError, trio.WouldBlock) as error:
            self._record.count(f"records not taken in a callback: {type(error).__name__}")
        else:
            self._took(value, sent.topic, future, is_chained=True)
            self._record.count("records sent by callbacks")

    # --- at the end -----------------------------------------------------------------------------------------

    def _check_nothing_left(self) -> None:
        name, core = self.plan.name, self._producer._core
        if core.accumulator.free_bytes != self.plan.options["buffer_memory"]:
            self._record.violated(f"{name}: {core.accumulator.free_bytes} bytes are free after close")
        if core.accumulator.has_incomplete:
            self._record.violated(f"{name}: batches are left after close")
        if any(not stream.is_closed for stream in self._streams):
            self._record.violated(f"{name}: connections are open after close")
        statistics = core.sender.statistics()
        for what in ("retries", "splits", "expired", "epoch_bumps"):
            self._record.count(what.replace("_", " "), getattr(statistics, what))
        self._note("statistics", repr(statistics))

    async def _connect(self, host: str, port: int) -> MemoryStream:
        stream = await self._network.connect(host, port)
        self._streams.append(stream)
        return stream

    def _note(self, what: str, details: str = "") -> None:
        self._record.note(what, f"{self.plan.name} {details}")


End = Literal["committed", "aborted", "left open"]

_PAUSE_S = 0.1


@attrs.define(eq=False)
class Transaction:
    """The records of one transaction, and its end as far as the application knows."""

    records: list[SentRecord]
    end: End


async def initialized(producer: AsyncKafkaProducer) -> bool:
    """Call ``init_transactions`` until it succeeds; return False after a permanent error."""
    return await _done(producer.init_transactions) is None


async def ended(producer: AsyncKafkaProducer, *, commit: bool) -> End:
    """Commit or abort; after a failed commit abort, as the documentation says."""
    if commit:
        error = await _done(producer.commit_transaction)
        if error is None:
            return "committed"
        if error.fatal:
            return "left open"
    error = await _done(producer.abort_transaction)
    return "aborted" if error is None else "left open"


async def _done(call: Callable[[], Awaitable[None]]) -> KafkaError | None:
    """Call until it succeeds or the error is not retriable; return that error, else None."""
    while True:
        try:
            await call()
        except KafkaError as error:
            if not error.retriable:
                return error
            await trio.sleep(_PAUSE_S)
        else:
            return None
