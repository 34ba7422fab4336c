"""A real broker in a test, in milliseconds. Run it: python examples/testing/local_broker_for_tests.py

With pytest, `broker` below becomes a fixture: yield from inside the `with`, and let `tmp_path` be the
directory.
"""

import tempfile
import time

from kafka import KafkaConsumer, TopicPartition

from splashdam import EmbeddedBroker, KafkaProducer


def place_order(producer: KafkaProducer, number: int) -> None:
    """The code under test, which does not know that the broker is embedded."""
    producer.send("orders", f"order {number}".encode(), key=b"shop-1")


started = time.perf_counter()
with tempfile.TemporaryDirectory() as directory, EmbeddedBroker(directory) as broker:
    print(f"a broker after {(time.perf_counter() - started) * 1000:.0f} ms, at {broker.bootstrap_servers}")

    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(3):
            place_order(producer, number)

    # It speaks Kafka's protocol on TCP, so that any client can look at the result: here kafka-python.
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
    consumer.assign([TopicPartition("orders", 0)])
    found = [next(consumer).value for _ in range(3)]
    consumer.close()

assert found == [b"order 0", b"order 1", b"order 2"], found
print("the three orders are there, in order")
