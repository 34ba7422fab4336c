"""From asyncio: the futures of the blocking producer can be awaited.

Run it: python examples/quickstart_asyncio.py
"""

import asyncio

from splashdam import KafkaProducer


async def main() -> None:
    # Connecting and closing may take a moment: they are done in a thread, so that the loop is never held up.
    producer = await asyncio.to_thread(KafkaProducer, bootstrap_servers="embedded:./data")
    try:
        # A topic's first record waits for its metadata. partitions_for() does that waiting ahead of time.
        await asyncio.to_thread(producer.partitions_for, "greetings")

        # From here on send() returns at once, and gather() and wait_for() take its futures. (create_task()
        # does not: they are awaitable, but they are no coroutines.)
        futures = [producer.send("greetings", f"hello {number}".encode()) for number in range(1_000)]
        results = await asyncio.wait_for(asyncio.gather(*futures), timeout=10)
        print(
            f"1,000 records sent; the last is at offset {results[-1].offset} of {results[-1].topic_partition}"
        )
    finally:
        await asyncio.to_thread(producer.close)


asyncio.run(main())
