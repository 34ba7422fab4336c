"""Streams of numbered records from threads: ``send``, ``send_many``, transactions, and kafka-python's."""

from __future__ import annotations

import gc
import random
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import kafka
from kafka.errors import KafkaError as KafkaPythonError

from lab.ledger import PARTITIONS, TOPIC, Fate, Ledger, fate_of, value_of
from splashdam import KafkaProducer
from splashdam.client.future import RecordFuture
from splashdam.model.errors import KafkaError, KafkaTimeoutError, TransactionFailedError

FINISH_SECONDS = 150
"""More than ``delivery_timeout_ms``: by then every record is delivered or has failed."""
_TICK_SECONDS = 0.02
_FOREIGN_TICK_SECONDS = 0.05


class Pace:
    """Tells how many records are due at a rate; after a pause of over a second it does not catch up."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._done_at = time.monotonic()

    def due(self) -> int:
        """Return the number of records due now, at least one."""
        now = time.monotonic()
        count = max(1, int(min(now - self._done_at, 1) * self.rate))
        self._done_at = now
        return count


class Stream(ABC):
    """One producer and its records.

    Args:
        address: of the broker.
        folder: for ledgers.
        rate: records per second.
        seed: of its random choices.

    Attributes:
        violations: promises that were broken here.
        counts: how often each thing was exercised.
    """

    name = ""
    options: dict[str, Any] = {}  # noqa: RUF012 (nobody changes it)

    def __init__(self, address: str, folder: Path, rate: float, seed: int) -> None:
        self.address = address
        self.rate = rate
        self.dice = random.Random(f"{self.name} {seed}")
        self.violations: list[str] = []
        self.counts: Counter[str] = Counter()
        self.stop = threading.Event()
        self.ledgers = [Ledger(folder, name) for name in self.ledger_names()]

    def ledger_names(self) -> list[str]:
        """Return the names of its ledgers."""
        return [self.name]

    def guarded(self) -> None:
        """Run the stream in its thread; report an error that ends it too early as a violation."""
        try:
            self.run()
        except BaseException as error:  # else the thread would end unnoticed
            self.violations.append(f"{self.name} ended with {error!r}")
        finally:
            for ledger in self.ledgers:
                ledger.close()

    @abstractmethod
    def run(self) -> None:
        """Open a producer, send until ``stop`` is set, wait for all results, and close it."""

    def open(self, **more: Any) -> KafkaProducer:
        """Return a producer of this stream."""
        return KafkaProducer(bootstrap_servers=self.address, client_id=self.name, **self.options, **more)

    def finish(self, producer: KafkaProducer) -> None:
        """Deliver the rest, check that the buffer memory is free again, and close."""
        pending = producer.flush(FINISH_SECONDS).pending
        deadline = time.monotonic() + 10
        while (left := reserved_bytes(producer.metrics())) and time.monotonic() < deadline:
            time.sleep(_TICK_SECONDS)
        self.finished(pending, left)
        producer.close(FINISH_SECONDS)

    def finished(self, pending: int, reserved: float) -> None:
        """Check the state after a flush."""
        if pending:
            self.violations.append(f"{self.name}: {pending} records are pending after a flush")
        if reserved:
            self.violations.append(f"{self.name}: {reserved:.0f} bytes of buffer_memory are not free")


def reserved_bytes(metrics: Any) -> float:
    """Return how much of its buffer memory a producer has reserved."""
    now = metrics["producer-metrics"]
    return float(now["buffer-total-bytes"] - now["buffer-available-bytes"])


class Threads(Stream):
    """Two threads with one producer, whose memory is soon full while the broker is down; uses callbacks."""

    name = "threads"
    options = {"compression_type": "lz4", "linger_ms": 5, "buffer_memory": 256 * 1024}  # noqa: RUF012

    def ledger_names(self) -> list[str]:
        return ["thread-1", "thread-2"]

    def run(self) -> None:
        producer = self.open()
        threads = [
            threading.Thread(target=self._send, args=(producer, ledger), name=ledger.name)
            for ledger in self.ledgers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.finish(producer)

    def _send(self, producer: KafkaProducer, ledger: Ledger) -> None:
        pace = Pace(self.rate / len(self.ledgers))
        try:
            while not self.stop.wait(_TICK_SECONDS):
                for _ in range(pace.due()):
                    send_noted(producer, ledger, self.dice.randrange(PARTITIONS))
        except KafkaError as error:
            self.violations.append(f"{ledger.name} could not send: {error}")


def send_noted(producer: KafkaProducer, ledger: Ledger, partition: int) -> None:
    """Send a record; callbacks note its result in the ledger."""
    number = ledger.take(partition)
    try:
        future = producer.send(TOPIC, value_of(ledger.name, partition, number), partition=partition)
    except KafkaTimeoutError:  # after `max_block_ms`: the producer did not take the record
        ledger.note(partition, number, Fate.NOT_WRITTEN)
        raise
    future.add_callback(lambda metadata: ledger.note(partition, number, Fate.ACKNOWLEDGED, metadata.offset))
    future.add_errback(lambda error: ledger.note(partition, number, fate_of(error)))


class Impatient(Stream):
    """Gives up records after 1.5 seconds, waits half a second for memory at most, and purges now and then."""

    name = "impatient"
    options = {  # noqa: RUF012
        "delivery_timeout_ms": 1500,
        "request_timeout_ms": 1000,
        "max_block_ms": 500,
        "linger_ms": 0,
        "buffer_memory": 64 * 1024,
        "batch_size": 2048,
        "retry_backoff_ms": 20,
    }

    def run(self) -> None:
        producer, pace = self.open(max_in_flight_requests_per_connection=5), Pace(self.rate)
        while not self.stop.wait(_TICK_SECONDS):
            for _ in range(pace.due()):
                try:
                    send_noted(producer, self.ledgers[0], self.dice.randrange(PARTITIONS))
                except KafkaTimeoutError:
                    self.counts["sends refused after max_block_ms"] += 1
                    break
            if self.dice.random() < 0.005:
                self.counts["records purged"] += producer.purge(in_flight=True)
        self.finish(producer)


class Many(Stream):
    """Calls ``send_many`` with a partition per record, with up to five deliveries at a time."""

    name = "many"
    options = {"compression_type": "zstd", "linger_ms": 10}  # noqa: RUF012

    def run(self) -> None:
        producer, pace, ledger = self.open(), Pace(self.rate), self.ledgers[0]
        under_way: deque[Callable[[], None]] = deque()
        while not self.stop.wait(0.1):
            partitions = [self.dice.randrange(PARTITIONS) for _ in range(pace.due())]
            placed = [(partition, ledger.take(partition)) for partition in partitions]
            values = [value_of(self.name, *place) for place in placed]
            delivery = producer.send_many(TOPIC, values, partition=partitions)
            under_way.append(partial(self._note, placed, delivery))
            if len(under_way) == 5:
                under_way.popleft()()
        for note in under_way:
            note()
        self.finish(producer)

    def _note(self, placed: list[tuple[int, int]], delivery: Any) -> None:
        try:
            delivery.get(FINISH_SECONDS)
        except KafkaError:
            self.counts["deliveries of many with failures"] += 1
        for (partition, number), future in zip(placed, delivery, strict=True):
            if future.done():  # a record without a result shows up when the ledgers are compared
                self.ledgers[0].note_future(partition, number, future)


class Transactions(Stream):
    """Commits and aborts transactions, and leaves some open: the next producer with the id aborts those."""

    name = "transactions"
    options = {"compression_type": "gzip", "linger_ms": 2}  # noqa: RUF012

    def run(self) -> None:
        producer, pace = self._open(), Pace(self.rate)
        while not self.stop.wait(_TICK_SECONDS):
            producer.begin_transaction()
            placed = [self._send(producer) for _ in range(pace.due())]
            end = self.dice.choices(["commit", "abort", "vanish"], [70, 24, 6])[0]
            if self.dice.random() < 0.5:  # without a flush most records of an abort are never sent
                producer.flush()
            if end == "vanish":
                producer.close(0)
                producer = self._open()
                self.counts["transactions left open"] += 1
                fate = Fate.ABORTED
            else:
                fate = self._end(producer, end)
            self._note(placed, fate)
        self.finish(producer)

    def _open(self) -> KafkaProducer:
        producer = self.open(transactional_id="endurance")
        again(producer.init_transactions)
        return producer

    def _send(self, producer: KafkaProducer) -> tuple[int, int, RecordFuture]:
        partition = self.dice.randrange(PARTITIONS)
        number = self.ledgers[0].take(partition)
        value = value_of(self.name, partition, number)
        return partition, number, producer.send(TOPIC, value, partition=partition)

    def _end(self, producer: KafkaProducer, end: str) -> Fate:
        if end == "commit":
            try:
                again(producer.commit_transaction)
            except TransactionFailedError:
                self.counts["commits that failed"] += 1
            else:
                self.counts["transactions committed"] += 1
                return Fate.ACKNOWLEDGED
        again(producer.abort_transaction)
        self.counts["transactions aborted"] += 1
        return Fate.ABORTED

    def _note(self, placed: list[tuple[int, int, RecordFuture]], fate: Fate) -> None:
        ledger = self.ledgers[0]
        for partition, number, future in placed:
            if not future.done():
                self.violations.append(f"a record's future is pending after its transaction: {future!r}")
            elif fate is Fate.ACKNOWLEDGED:
                ledger.note_future(partition, number, future)
                if future.failed():
                    self.violations.append(f"a record of a committed transaction failed: {future.exception}")
            elif future.failed() and fate_of(future.exception) is Fate.NOT_WRITTEN:
                ledger.note(partition, number, Fate.NOT_WRITTEN)
            else:
                ledger.note(partition, number, fate)


def again(call: Callable[[], None]) -> None:
    """Call again after a timeout: the first call's request continues, as the documentation says."""
    for _ in range(2):
        try:
            call()
        except KafkaTimeoutError:
            continue
        return
    call()


class Foreign(Stream):
    """kafka-python's idempotent producer under the same faults; records that it gives up may be written."""

    name = "kafka-python"

    def run(self) -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=self.address,
            client_id=self.name,
            acks="all",
            enable_idempotence=True,
            linger_ms=5,
            request_timeout_ms=5_000,
            max_block_ms=FINISH_SECONDS * 1000,
        )
        pace = Pace(self.rate)
        while not self.stop.wait(_FOREIGN_TICK_SECONDS):
            for _ in range(pace.due()):
                self._send(producer, self.dice.randrange(PARTITIONS))
        producer.flush(FINISH_SECONDS)
        producer.close(FINISH_SECONDS)
        del producer
        gc.collect()  # kafka-python leaves open sockets to the garbage collector

    def _send(self, producer: Any, partition: int) -> None:
        ledger = self.ledgers[0]
        number = ledger.take(partition)
        try:
            future = producer.send(TOPIC, value_of(self.name, partition, number), partition=partition)
        except KafkaPythonError:
            ledger.note(partition, number, Fate.PERHAPS_WRITTEN)
            return
        future.add_callback(partial(self._delivered, partition, number))
        future.add_errback(partial(self._failed, partition, number))

    def _delivered(self, partition: int, number: int, metadata: Any) -> None:
        self.ledgers[0].note(partition, number, Fate.ACKNOWLEDGED, metadata.offset)

    def _failed(self, partition: int, number: int, _error: BaseException) -> None:
        self.counts["records that kafka-python gave up"] += 1
        self.ledgers[0].note(partition, number, Fate.PERHAPS_WRITTEN)
