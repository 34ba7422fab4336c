"""Three brokers that replicate; one is killed, nothing is lost. Run it: python examples/three_brokers.py"""

import tempfile

from kafka import KafkaConsumer, TopicPartition

from splashdam import EmbeddedCluster, KafkaProducer

with tempfile.TemporaryDirectory() as directory, EmbeddedCluster(directory, brokers=3) as cluster:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
        producer.send("orders", b"before").get(timeout=30)

        leader = cluster.leader_of("orders", 0)
        cluster.kill(leader)
        producer.send("orders", b"after").get(timeout=30)
        print(f"broker {leader} is dead, broker {cluster.leader_of('orders', 0)} leads")

        cluster.start(leader)  # it fetches what it has missed
        cluster.wait_in_sync()
        cluster.move_leader("orders", 0, leader)
        print(f"in sync again: {len(cluster.isr_of('orders', 0))} of 3")

    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest")
    consumer.assign([TopicPartition("orders", 0)])
    found = [next(consumer).value for _ in range(2)]
    consumer.close()

assert found == [b"before", b"after"], found
print("both orders are there, in order")
