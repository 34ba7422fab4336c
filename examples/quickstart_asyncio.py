"""The producer for asyncio. Run it: python examples/quickstart_asyncio.py"""

import asyncio

from splashdam.aio import AsyncioKafkaProducer


async def main() -> None:
    async with AsyncioKafkaProducer(bootstrap_servers="embedded:./data") as producer:
        # send() waits for room, and returns the future of the delivery. asyncio's functions take it.
        futures = [await producer.send("greetings", f"hello {number}".encode()) for number in range(1_000)]
        results = await asyncio.wait_for(asyncio.gather(*futures), timeout=10)
        last = results[-1]
        print(f"1,000 records sent; the last is at offset {last.offset} of {last.topic_partition}")


asyncio.run(main())
