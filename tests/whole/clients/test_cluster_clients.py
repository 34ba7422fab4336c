"""Clients that we did not write, on a cluster whose brokers end while they work."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from splashdam import EmbeddedCluster
from splashdam.embedded_broker.topics.internal_topics import partition_for

QUIET = {"log_level": 0}


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_confluent_kafka_goes_on_when_coordinators_end(tmp_path: Path, protocol: str) -> None:
    """Transactions and a group's offsets survive the brokers that coordinated them."""
    settings = {"offsets_topic_num_partitions": 3, "transaction_state_log_num_partitions": 3}
    with EmbeddedCluster(tmp_path, fsync=False, num_partitions=3, **settings) as cluster:
        servers = {"bootstrap.servers": cluster.bootstrap_servers, **QUIET}
        producer = Producer({**servers, "transactional.id": "x"})
        producer.init_transactions(30)
        consumer = Consumer(
            {
                **servers,
                "group.id": "g",
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe(["t"])
        for round_number, topic in enumerate(("__consumer_offsets", "__transaction_state")):
            producer.begin_transaction()
            for number in range(6):
                producer.produce("t", b"%d-%d" % (round_number, number), partition=number % 3)
            producer.commit_transaction(30)
            assert sorted(read(consumer, 6)) == [b"%d-%d" % (round_number, number) for number in range(6)]
            consumer.commit(asynchronous=False)
            cluster.kill(cluster.leader_of(topic, partition_for("g" if topic[2] == "c" else "x", 3)))
            for node in cluster.nodes:
                if not cluster.is_up(node):
                    cluster.start(node)
            cluster.wait_in_sync()
        consumer.close()


def read(consumer: Consumer, count: int) -> list[bytes | None]:
    """So many values, however long the group takes."""
    found: list[bytes | None] = []
    deadline = time.monotonic() + 300
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            found.append(message.value())
    return found
