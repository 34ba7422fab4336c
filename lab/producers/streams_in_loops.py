"""Streams of numbered records from event loops: asyncio with the blocking producer, and trio."""

from __future__ import annotations

import asyncio

import trio

from lab.ledger import PARTITIONS, TOPIC, value_of
from lab.producers.streams import FINISH_SECONDS, Pace, Stream, reserved_bytes
from splashdam import AsyncKafkaProducer, KafkaProducer
from splashdam.model.errors import KafkaError

_TICK_SECONDS = 0.1
_TASKS = 2


class Asyncio(Stream):
    """Two tasks that await futures of the blocking producer, each with partitions of its own."""

    name = "asyncio"
    options = {"linger_ms": 5}  # noqa: RUF012

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        producer = await asyncio.to_thread(self.open)
        await asyncio.to_thread(producer.prepare, TOPIC)
        await asyncio.gather(*(self._task(producer, task) for task in range(_TASKS)))
        await asyncio.to_thread(self.finish, producer)

    async def _task(self, producer: KafkaProducer, task: int) -> None:
        ledger, pace = self.ledgers[0], Pace(self.rate / _TASKS)
        while not self.stop.is_set():
            sent = []
            for _ in range(pace.due()):
                partition = self.dice.randrange(task, PARTITIONS, _TASKS)
                number = ledger.take(partition)
                value = value_of(self.name, partition, number)
                sent.append((partition, number, producer.send(TOPIC, value, partition=partition)))
            await asyncio.gather(*(future for _, _, future in sent), return_exceptions=True)
            for partition, number, future in sent:
                ledger.note_future(partition, number, future)
            await asyncio.sleep(_TICK_SECONDS)


class Trio(Stream):
    """Two tasks with the trio producer, each with partitions of its own."""

    name = "trio"
    options = {"compression_type": "snappy", "linger_ms": 5}  # noqa: RUF012

    def run(self) -> None:
        trio.run(self._run)

    async def _run(self) -> None:
        async with AsyncKafkaProducer(
            bootstrap_servers=self.address, client_id=self.name, **self.options
        ) as producer:
            async with trio.open_nursery() as nursery:
                for task in range(_TASKS):
                    nursery.start_soon(self._task, producer, task)
            pending = (await producer.flush(FINISH_SECONDS)).pending
            with trio.move_on_after(10):
                while reserved_bytes(producer.metrics()):  # noqa: ASYNC110 (there is no event for it)
                    await trio.sleep(_TICK_SECONDS)
            self.finished(pending, reserved_bytes(producer.metrics()))

    async def _task(self, producer: AsyncKafkaProducer, task: int) -> None:
        ledger, pace = self.ledgers[0], Pace(self.rate / _TASKS)
        while not self.stop.is_set():
            sent = []
            for _ in range(pace.due()):
                partition = self.dice.randrange(task, PARTITIONS, _TASKS)
                number = ledger.take(partition)
                value = value_of(self.name, partition, number)
                sent.append((partition, number, await producer.send(TOPIC, value, partition=partition)))
            for partition, number, future in sent:
                try:
                    await future
                except KafkaError:
                    self.counts["trio's records that failed"] += 1
                ledger.note_future(partition, number, future)
            await trio.sleep(_TICK_SECONDS)
