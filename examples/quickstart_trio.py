"""The same under trio: nothing blocks, no thread is started. Run it: python examples/quickstart_trio.py"""

import trio

from splashdam import AsyncKafkaProducer, open_broker


async def main() -> None:
    async with (
        # A broker in the same event loop; skip it and name your cluster's address instead.
        open_broker("./data") as broker,
        AsyncKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        # `await send()` waits only while there is no room or the topic is still unknown, then hands out a
        # future. send_nowait() never waits and raises WouldBlock instead.
        futures = [await producer.send("greetings", f"hello {number}".encode()) for number in range(1_000)]
        await producer.flush()

        # Futures can be awaited, too.
        last = await futures[-1]
        print(f"1,000 records sent; the last is at offset {last.offset} of {last.topic_partition}")


trio.run(main)
