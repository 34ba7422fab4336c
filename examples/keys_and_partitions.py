"""Which record goes where, and in which order. Run it: python examples/keys_and_partitions.py"""

from collections import Counter

from splashdam import DefaultSerializer, EmbeddedBroker, KafkaProducer

with (
    EmbeddedBroker("./data", num_partitions=6) as broker,
    KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers,
        key_serializer=DefaultSerializer(),  # text becomes UTF-8
        value_serializer=DefaultSerializer(),
    ) as producer,
):
    print(f"partitions of the topic: {sorted(producer.partitions_for('visits'))}")

    # Records with the same key go to the same partition, in the order sent, also when one is sent again.
    # The place is murmur2(key) modulo the number of partitions: the one that Java, kafka-python, … compute.
    for user in ("anna", "dora", "hana"):
        places = {producer.send("visits", f"page {page}", key=user).get(10).partition for page in range(5)}
        print(f"{user}'s visits are in partition {places}")

    # Without a key, records stick to one partition until a batch is full, then move on: larger batches.
    spread = [producer.send("visits", "x" * 1_000) for _ in range(5_000)]
    producer.flush()
    print("without keys:", dict(sorted(Counter(future.get().partition for future in spread).items())))

    # An explicit partition always wins.
    print("asked for 3, got", producer.send("visits", "here", partition=3).get(10).partition)
