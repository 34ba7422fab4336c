"""Transactions under asyncio: each call may be cancelled at any turn of the loop, and called again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import kafka
from support.clients.prepared_scenarios import end
from support.clients.transaction_scenarios import committed

from splashdam import EmbeddedBroker
from splashdam.aio import AsyncioKafkaProducer

TURNS = range(1, 6)
"""After how many turns of the loop; a task that is cancelled before its first one makes no call."""

CONFIG = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}


T = TypeVar("T")


async def cancelled(call: Callable[[], Awaitable[T]], turns: int) -> T | None:
    """Begins the call; cancels it after some turns. Returns its result if it has ended before, else None."""

    async def run() -> T:
        return await call()

    task = asyncio.create_task(run())
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    try:
        return await task
    except asyncio.CancelledError:
        return None


def test_each_call_may_be_cancelled(tmp_path: Path) -> None:
    """What was to be kept is kept once, with its offsets; what was aborted is not seen."""

    async def main(address: str, turns: int) -> None:
        read = {("orders", 0): turns}
        async with AsyncioKafkaProducer(bootstrap_servers=address, transactional_id="t") as producer:
            await cancelled(producer.init_transactions, turns)
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send("invoices", b"aborted")
            await producer.send_offsets_to_transaction({("orders", 0): 99}, "group")
            await cancelled(producer.abort_transaction, turns)
            async with producer.transaction():
                await producer.send("invoices", b"%d" % turns)
                await cancelled(lambda: producer.send_offsets_to_transaction(read, "group"), turns)
                await producer.send_offsets_to_transaction(read, "group")
            await producer.begin_transaction()
            await producer.send("invoices", b"%d, too" % turns)
            await cancelled(producer.commit_transaction, turns)
            async with producer.transaction():  # waits for that commit
                pass

    with EmbeddedBroker(tmp_path, fsync=False, config=CONFIG, topics={"orders": 1}) as broker:
        for turns in TURNS:
            asyncio.run(main(broker.bootstrap_servers, turns))
        kept = [value for turns in TURNS for value in (b"%d" % turns, b"%d, too" % turns)]
        assert committed(broker.bootstrap_servers, "invoices", 10) == kept
        consumer = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, group_id="group")
        assert consumer.committed(kafka.TopicPartition("orders", 0)) == TURNS[-1]
        consumer.close()


def test_another_process_ends_what_was_prepared(tmp_path: Path) -> None:
    """A preparation that is cancelled goes on; the block's end and ``stop`` leave it alone."""

    async def main(address: str) -> None:
        producer = AsyncioKafkaProducer(bootstrap_servers=address, transactional_id="t")
        async with producer, producer.transaction():
            await producer.send("invoices", b"prepared")
            # The sender's thread may have prepared it in that one turn: then there is no more to ask for.
            prepared = (
                await cancelled(producer.prepare_transaction, 1) or await producer.prepare_transaction()
            )
        await asyncio.to_thread(end, address, prepared, committed=True)

    with EmbeddedBroker(tmp_path, fsync=False, config=CONFIG) as broker:
        asyncio.run(main(broker.bootstrap_servers))
        assert committed(broker.bootstrap_servers, "invoices", 1) == [b"prepared"]
