"""Makes a real Kafka write what ``__consumer_offsets`` holds of offsets, and says what it answers then."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, TypeAlias

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from support.clients.foreign_groups import COMMIT, Committed
from support.kafka.kafka_jars import KafkaBroker
from support.kafka.kafka_reading import make_topic

PLAIN, MOVED, MEMBERS = "readers", "movers", "members"
GROUPS = (PLAIN, MOVED, MEMBERS)
TOPICS = ("inputs", "others")
_WAIT_SECONDS = 30

Offsets: TypeAlias = dict[str, dict[str, list[Any]]]
"""Group → topic → offset and metadata of its only partition."""


def write_offsets(servers: str) -> Producer:
    """Plain commits, transactional ones that were committed, aborted and left open, and a group with members.

    Returns:
        The producer with the open transaction: the caller keeps it until the broker has stopped.
    """
    for topic in TOPICS:
        make_topic(servers, topic)
    plain = _consumer(servers, PLAIN)
    for offset, metadata in ((3, "begun"), (7, "half way")):
        place = TopicPartition("inputs", 0, offset, metadata=metadata, leader_epoch=0)
        plain.commit(offsets=[place], asynchronous=False)
    plain.close()
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "mover", "log_level": 0})
    producer.init_transactions(_WAIT_SECONDS)
    _move(producer, servers, "inputs", 11)
    producer.commit_transaction(_WAIT_SECONDS)
    _move(producer, servers, "inputs", 12)
    producer.abort_transaction(_WAIT_SECONDS)
    _join(servers)
    _move(producer, servers, "others", 13)
    return producer


def answered(servers: str) -> Offsets:
    """What the broker says each group has committed, whether or not a transaction is pending."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    found: Offsets = {}
    for group in GROUPS:
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        places = asked[group].result(_WAIT_SECONDS).topic_partitions
        found[group] = {each.topic: [each.offset, each.metadata] for each in places}
    return found


def _consumer(servers: str, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )


def _move(producer: Producer, servers: str, topic: str, offset: int) -> None:
    """Begins a transaction that says how far a group has read."""
    consumer = _consumer(servers, MOVED)
    producer.begin_transaction()
    place = TopicPartition(topic, 0, offset)
    producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), _WAIT_SECONDS)
    consumer.close()


def _join(servers: str) -> None:
    """A member of a group reads a record and commits; then it leaves."""
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    producer.produce("others", b"x")
    assert producer.flush(_WAIT_SECONDS) == 0
    consumer = _consumer(servers, MEMBERS)
    consumer.subscribe(["others"])
    assert consumer.poll(_WAIT_SECONDS) is not None
    consumer.commit(asynchronous=False)
    consumer.close()


def take_over(broker: KafkaBroker, ours: Path) -> None:
    """Starts a real broker anew with our ``__consumer_offsets-0`` in place of its own."""
    make_topic(broker.bootstrap_servers, "t")
    COMMIT["kafka-python"](broker.bootstrap_servers, "first", "t", Committed(1, ""))  # makes their topic
    broker.stop()
    theirs = broker.data / "__consumer_offsets-0"
    for file in theirs.iterdir():
        if file.name != "partition.metadata":
            file.unlink()
    for log in ours.glob("*.log"):
        shutil.copy(log, theirs)
    (broker.data / ".kafka_cleanshutdown").unlink()
    broker.start()
