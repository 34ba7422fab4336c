"""A worker: it reads with aiokafka, writes in transactions, and handles each record once, even if cancelled.

It needs aiokafka. Run it: python examples/with_asyncio/worker.py
"""

import asyncio
import signal

from aiokafka import AIOKafkaConsumer

from splashdam import EmbeddedBroker
from splashdam.aio import AsyncioKafkaProducer


async def work(consumer: AIOKafkaConsumer, producer: AsyncioKafkaProducer, until: int) -> int:
    done = 0
    while done < until:
        batches = await consumer.getmany(timeout_ms=1_000, max_records=100)
        # The block commits outputs and offsets together. An error or a cancellation aborts both, and the
        # next worker reads from the offsets that were committed last.
        async with producer.transaction():
            for records in batches.values():
                for record in records:
                    await producer.send("lengths", b"%d" % len(record.value), key=record.key)
            offsets = {each: records[-1].offset + 1 for each, records in batches.items() if records}
            await producer.send_offsets_to_transaction(offsets, "workers")
        done += sum(map(len, batches.values()))
    return done


async def main(bootstrap_servers: str) -> None:
    async with AsyncioKafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        await (await producer.send_many("words", [b"five", b"planks", b"for", b"anna"] * 50))

    consumer = AIOKafkaConsumer(
        "words",
        bootstrap_servers=bootstrap_servers,
        group_id="workers",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    # One transactional_id for each worker: a second producer with the same id fences the first.
    producer = AsyncioKafkaProducer(bootstrap_servers=bootstrap_servers, transactional_id="worker-1")
    await consumer.start()
    try:
        async with producer:
            # SIGTERM cancels the work, which aborts the open transaction.
            working = asyncio.create_task(work(consumer, producer, until=200))
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, working.cancel)
            print(await working, "words measured")
    finally:
        await consumer.stop()


with EmbeddedBroker() as broker:
    asyncio.run(main(broker.bootstrap_servers))
