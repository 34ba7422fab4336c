"""What an application does with one producer, and what it is told about each record.

What an application does with a transactional producer: transactions until each has its end.
"""

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
"""Virtual: by then whatever was asked of a producer has its end, and a run that waits longer hangs."""

PROMPT_S = 8.0
"""Two records, one behind the other, take less when nothing goes wrong and nothing is in front of them."""


@attrs.define(eq=False)
class SentRecord:
    """One record for which there is a future, and what the application was told of it.

    Attributes:
        value: unique in the run.
        topic: where it was sent.
        future: as ``send`` returned it.
        is_chained: a callback has sent it.
        metadata: of its delivery, None where it failed.
        error: why it failed.
        told: how many times the application was told.
    """

    value: bytes
    topic: str
    future: RecordFuture
    is_chained: bool = False
    metadata: RecordMetadata | None = None
    error: BaseException | None = None
    told: int = 0


class Workload:
    """One producer and its application.

    Args:
        plan: what it does.
        seed: of its random choices.
        topics: where it may send.
        network: how it connects.
        bootstrap_servers: of the cluster.
        clock: the run's.
        record: what happened.
        on_delivery: called when the application is told of a delivery.

    Attributes:
        plan: as above.
        sent: every record that was taken, in the order of the calls.
        transactions: those that were begun, where the producer has any.
        half_taken: values of calls of ``send_many`` that did not return; some of them may be on their way.
        calm: opens when nothing goes wrong any more.
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
        self.half_taken: set[bytes] = set()
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
        """All of it, to the end of the producer."""
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
            self._record.violated(f"{self.plan.name}: no end of its transactions")

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
        self.half_taken.update(values)
        delivery = await self._producer.send_many(topic, values, partition=partition)
        self.half_taken.difference_update(values)
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
        """After all faults a record is delivered, whatever was before, and soon."""
        await self.calm.wait()
        for topic in self._topics:
            with trio.move_on_after(PATIENCE_S) as scope:
                await self._prove_alive(topic.name)
            if scope.cancelled_caught:
                self._record.violated(f"{self.plan.name}: no end of a record in calm weather")
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

    # --- what it is told ------------------------------------------------------------------------------------

    def _delivered(self, sent: SentRecord, metadata: RecordMetadata) -> None:
        sent.told += 1
        sent.metadata = metadata
        self._note("delivered", f"{_name(sent)} {metadata.topic}-{metadata.partition} @{metadata.offset}")
        self._record.count("records delivered")
        self._on_delivery(sent, metadata)
        self._chain(sent)

    def _failed(self, sent: SentRecord, error: BaseException) -> None:
        sent.told += 1
        sent.error = error
        self._note("failed", f"{_name(sent)} {type(error).__name__}")
        self._record.count(f"records failed: {type(error).__name__}")
        self._chain(sent)

    def _chain(self, sent: SentRecord) -> None:
        """A callback that sends, as applications do: the sender is in the middle of something."""
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


def _name(sent: SentRecord) -> str:
    return sent.value.partition(b" ")[0].decode()


End = Literal["committed", "aborted", "left open"]

_PAUSE_S = 0.1


@attrs.define(eq=False)
class Transaction:
    """The records of one transaction and what became of it, as far as the application knows."""

    records: list[SentRecord]
    end: End


async def initialized(producer: AsyncKafkaProducer) -> bool:
    """Calls ``init_transactions`` until it succeeds; False where that cannot be."""
    return await _done(producer.init_transactions) is None


async def ended(producer: AsyncKafkaProducer, *, commit: bool) -> End:
    """Commits, or aborts; a commit that cannot be is turned into an abort, as the documentation has it."""
    if commit:
        error = await _done(producer.commit_transaction)
        if error is None:
            return "committed"
        if error.fatal:
            return "left open"
    error = await _done(producer.abort_transaction)
    return "aborted" if error is None else "left open"


async def _done(call: Callable[[], Awaitable[None]]) -> KafkaError | None:
    """Repeats what may be repeated; returns why it cannot be done."""
    while True:
        try:
            await call()
        except KafkaError as error:
            if not error.retriable:
                return error
            await trio.sleep(_PAUSE_S)
        else:
            return None
