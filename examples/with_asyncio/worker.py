"""A worker: it reads as a member of a group, writes in transactions, and handles each record once.

Any number of them may share the work, come and go, be killed, cancelled or cut off. The consumer is
kafka-python's, in a thread: its `group_metadata()` lets the cluster refuse a worker whose partitions have
moved to another one (KIP-447). It needs kafka-python. Run it: python examples/with_asyncio/worker.py
"""

import asyncio
import signal
from concurrent.futures import ThreadPoolExecutor

from kafka import KafkaConsumer

from splashdam import EmbeddedBroker
from splashdam.aio import AsyncioKafkaProducer
from splashdam.errors import TransactionFailedError

ATTEMPTS = 10
"""How many transactions may fail one after the other."""


async def work(bootstrap_servers: str, worker: str, until: int) -> int:
    """Measure words until there are enough; return how many this worker has measured."""
    consumer = KafkaConsumer(
        "words",
        bootstrap_servers=bootstrap_servers,
        group_id="workers",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        max_poll_records=100,
    )
    loop = asyncio.get_running_loop()
    thread = ThreadPoolExecutor(max_workers=1)  # one call of the consumer at a time, in order
    # One transactional_id for each worker: a second producer with the same id fences the first.
    producer = AsyncioKafkaProducer(bootstrap_servers=bootstrap_servers, transactional_id=worker)
    done = failures = 0
    try:
        async with producer:
            await producer.init_transactions()  # before the first poll, which reads the committed offsets
            while done < until:
                batches = await loop.run_in_executor(thread, consumer.poll, 500)
                member = consumer.group_metadata()
                if not batches or member.generation_id < 0:  # the group has given up this worker:
                    continue  # the next poll rejoins
                try:
                    # The block commits outputs and offsets together. An error or a cancellation aborts both.
                    async with producer.transaction():
                        for records in batches.values():
                            for record in records:
                                await producer.send("lengths", b"%d" % len(record.value), key=record.key)
                        offsets = {each: records[-1].offset + 1 for each, records in batches.items()}
                        await producer.send_offsets_to_transaction(offsets, member)
                except TransactionFailedError:
                    failures += 1
                    if failures == ATTEMPTS:
                        raise
                    # The partitions may be another worker's by now: do not repeat the block, but poll again.
                    # The pause lets the consumer hear of it, by its next heartbeat.
                    for each, records in batches.items():
                        consumer.seek(each, records[0].offset)
                    await asyncio.sleep(1)
                else:
                    failures = 0
                    done += sum(map(len, batches.values()))
    finally:
        await loop.run_in_executor(thread, consumer.close)
        thread.shutdown()
    return done


async def main(bootstrap_servers: str) -> None:
    async with AsyncioKafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        await (await producer.send_many("words", [b"five", b"planks", b"for", b"anna"] * 50))

    # SIGTERM cancels the work, which aborts the open transaction.
    working = asyncio.create_task(work(bootstrap_servers, "worker-1", until=200))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, working.cancel)
    print(await working, "words measured")


if __name__ == "__main__":
    with EmbeddedBroker() as broker:
        asyncio.run(main(broker.bootstrap_servers))
