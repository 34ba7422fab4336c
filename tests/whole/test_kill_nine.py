"""kill -9 of a broker at random moments: what was acknowledged is there, in order, once."""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from support.broker.broker_process import BrokerProcess

from splashdam import KafkaProducer
from splashdam.model.values import RecordMetadata

PARTITIONS = 2
OUTSTANDING = 500
TIMEOUT_SECONDS = 60


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that runs."""
    process = BrokerProcess(tmp_path / "data", num_partitions=PARTITIONS, log_segment_bytes=20_000)
    process.start()
    yield process
    process.kill()


class NumberStream(ABC):
    """Sends 0, 1, 2, … to partition number % 2 until it is stopped, over every restart of the broker."""

    def __init__(self) -> None:
        self.acknowledged = [0] * PARTITIONS
        self.errors: list[Any] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        """Begins to send."""
        self._thread.start()

    def stop(self) -> None:
        """Waits for every acknowledgement."""
        self._stop.set()
        self._thread.join()
        self.close()
        assert self.errors == []

    @abstractmethod
    def send(self, number: int, partition: int) -> None:
        """Sends one number; `acknowledged` or `errors` hears what became of it."""

    @abstractmethod
    def poll(self) -> None:
        """A short rest, in which acknowledgements may arrive."""

    @abstractmethod
    def close(self) -> None:
        """Delivers the rest."""

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            if number - sum(self.acknowledged) < OUTSTANDING:
                for _ in range(10):
                    self.send(number, number % PARTITIONS)
                    number += 1
            self.poll()


class ConfluentStream(NumberStream):
    """With librdkafka's producer."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "linger.ms": 1,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "retry.backoff.ms": 10,
                "batch.num.messages": 20,
                "log_level": 0,
            }
        )

    def send(self, number: int, partition: int) -> None:
        self._producer.produce("t", b"%d" % number, partition=partition, on_delivery=self._delivered)

    def poll(self) -> None:
        self._producer.poll(0.002)

    def close(self) -> None:
        assert self._producer.flush(TIMEOUT_SECONDS) == 0

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            self.acknowledged[message.partition()] += 1


class SplashdamStream(NumberStream):
    """With this project's producer."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._producer = KafkaProducer(
            bootstrap_servers=address,
            batch_size=200,
            linger_ms=1,
            reconnect_backoff_ms=10,
            reconnect_backoff_max_ms=50,
            retry_backoff_ms=10,
        )

    def send(self, number: int, partition: int) -> None:
        future = self._producer.send("t", b"%d" % number, partition=partition)
        future.add_callback(self._delivered).add_errback(self.errors.append)

    def poll(self) -> None:
        time.sleep(0.002)

    def close(self) -> None:
        self._producer.close(TIMEOUT_SECONDS)

    def _delivered(self, metadata: RecordMetadata) -> None:
        self.acknowledged[metadata.partition] += 1


def read_all(address: str) -> list[list[int]]:
    """The numbers in each partition, as far as they go now."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "none",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
            "log_level": 0,
        }
    )
    places = [confluent_kafka.TopicPartition("t", partition, 0) for partition in range(PARTITIONS)]
    try:
        ends = [consumer.get_watermark_offsets(place, TIMEOUT_SECONDS)[1] for place in places]
        consumer.assign(places)
        found: list[list[int]] = [[] for _ in places]
        while any(len(numbers) < end for numbers, end in zip(found, ends, strict=True)):
            message = consumer.poll(TIMEOUT_SECONDS)
            assert message is not None, "there is less than the watermarks say"
            assert message.error() is None, message.error()
            numbers = found[message.partition()]
            assert message.offset() == len(numbers)
            numbers.append(int(message.value()))
        return found
    finally:
        consumer.close()


def check(found: list[list[int]], acknowledged: list[int]) -> None:
    for partition, numbers in enumerate(found):
        assert len(numbers) >= acknowledged[partition]
        assert numbers == list(range(partition, len(numbers) * PARTITIONS, PARTITIONS))


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", [ConfluentStream, SplashdamStream])
def test_kill_nine(broker: BrokerProcess, kind: Callable[[str], NumberStream], kills: int) -> None:
    """One idempotent producer lives through the kills; its retries lose, double and reorder nothing."""
    stream = kind(broker.address)
    moments = random.Random()
    stream.start()
    try:
        for _ in range(kills):
            before = sum(stream.acknowledged)
            while sum(stream.acknowledged) == before:
                assert stream.errors == []
                time.sleep(0.001)
            time.sleep(moments.uniform(0, 0.2))
            broker.kill()
            acknowledged = list(stream.acknowledged)
            broker.start()
            check(read_all(broker.address), acknowledged)
    finally:
        stream.stop()
    found = read_all(broker.address)
    check(found, stream.acknowledged)
    assert [len(numbers) for numbers in found] == stream.acknowledged
