"""A stream that kafka-python sends: others' producers stand the same troubles."""

from __future__ import annotations

import gc
from functools import partial
from typing import Any

import kafka
from kafka.errors import KafkaError

from lab.endurance.records import PARTITIONS, TOPIC, Fate, value_of
from lab.endurance.streams import FINISH_SECONDS, Pace, Stream

_TICK_SECONDS = 0.05


class Foreign(Stream):
    """kafka-python's idempotent producer; what it gives up may have been written."""

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
        while not self.stop.wait(_TICK_SECONDS):
            for _ in range(pace.due()):
                self._send(producer, self.dice.randrange(PARTITIONS))
        producer.flush(FINISH_SECONDS)
        producer.close(FINISH_SECONDS)
        del producer
        gc.collect()  # it leaves sockets of its own to the collector

    def _send(self, producer: Any, partition: int) -> None:
        ledger = self.ledgers[0]
        number = ledger.take(partition)
        try:
            future = producer.send(TOPIC, value_of(self.name, partition, number), partition=partition)
        except KafkaError:
            ledger.tell(partition, number, Fate.PERHAPS)
            return
        future.add_callback(partial(self._delivered, partition, number))
        future.add_errback(partial(self._failed, partition, number))

    def _delivered(self, partition: int, number: int, told: Any) -> None:
        self.ledgers[0].tell(partition, number, Fate.ACKNOWLEDGED, told.offset)

    def _failed(self, partition: int, number: int, _error: BaseException) -> None:
        self.counts["records that kafka-python gave up"] += 1
        self.ledgers[0].tell(partition, number, Fate.PERHAPS)
