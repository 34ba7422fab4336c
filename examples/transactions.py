"""Read, transform, write, exactly once. Run it: python examples/transactions.py

Orders are read from one topic, invoices go to another one. An invoice and the offset of its order are
committed together: a program that dies in between neither loses an order nor writes an invoice twice.
"""

import tempfile

from kafka import KafkaConsumer, TopicPartition

from splashdam import EmbeddedBroker, KafkaProducer


def committed_reader(servers: str, topic: str) -> KafkaConsumer:
    """Return a consumer of committed records, which continues at the committed offset of its group."""
    consumer = KafkaConsumer(
        bootstrap_servers=servers,
        group_id="billing",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    consumer.assign([TopicPartition(topic, 0)])
    return consumer


def bill(consumer: KafkaConsumer, producer: KafkaProducer, count: int) -> None:
    """Turn a number of orders into invoices, each in a transaction of its own."""
    for _ in range(count):
        order = next(consumer)
        with producer.transaction():  # commits at its end; aborts if an exception leaves it
            producer.send("invoices", b"invoice for " + order.value)
            read_so_far = {TopicPartition("orders", order.partition): order.offset + 1}
            producer.send_offsets_to_transaction(read_so_far, consumer.group_metadata())
            if order.value == b"order 2" and not failures:
                failures.append("the printer is on fire")
                raise RuntimeError(failures[0])


failures: list[str] = []
with tempfile.TemporaryDirectory() as directory, EmbeddedBroker(directory) as broker:
    servers = broker.bootstrap_servers
    with KafkaProducer(bootstrap_servers=servers) as producer:
        producer.send_many("orders", [b"order %d" % number for number in range(5)])

    # One producer at a time can use this id: the last one to call init_transactions() fences the others.
    with KafkaProducer(bootstrap_servers=servers, transactional_id="billing-1") as producer:
        producer.init_transactions()
        consumer = committed_reader(servers, "orders")
        try:
            bill(consumer, producer, 5)
        except RuntimeError as error:
            print(f"stopped: {error}")
        consumer.close()

        consumer = committed_reader(servers, "orders")  # a new run continues at the last commit
        bill(consumer, producer, 3)
        consumer.close()

    reader = committed_reader(servers, "invoices")
    invoices = [next(reader).value.decode() for _ in range(5)]
    reader.close()

assert invoices == [f"invoice for order {number}" for number in range(5)], invoices
print("five orders, five invoices, in spite of the fire")
