"""The blocking producer in ten lines. Run it: python examples/quickstart.py"""

from splashdam import KafkaProducer

# "embedded:./data" starts a broker inside this process, on ./data. For a cluster, write its address here, for
# example "localhost:9092"; nothing else changes.
with KafkaProducer(bootstrap_servers="embedded:./data") as producer:
    # send() only queues the record and returns a future at once: records travel in batches.
    futures = [producer.send("greetings", f"hello {number}".encode()) for number in range(1_000)]

    # flush() waits until everything sent so far is acknowledged or has failed.
    producer.flush()

    # A future knows where its record went; get() raises if it did not arrive.
    last = futures[-1].get(timeout=10)
    print(f"1,000 records sent; the last is at offset {last.offset} of {last.topic_partition}")
