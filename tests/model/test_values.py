"""The small values: what they look like, and that they are kafka-python's."""

from __future__ import annotations

import pickle

from kafka.producer.future import RecordMetadata as KafkaPythonRecordMetadata
from kafka.structs import TopicPartition as KafkaPythonTopicPartition

from splashdam.model.values import RecordMetadata, TopicPartition


def test_fields_and_their_order_are_kafka_pythons() -> None:
    """Code that unpacks kafka-python's values goes on working."""
    assert RecordMetadata._fields == KafkaPythonRecordMetadata._fields
    assert TopicPartition._fields == KafkaPythonTopicPartition._fields


def test_values_are_equal_to_plain_tuples() -> None:
    """A TopicPartition of ours finds the entry that kafka-python's made."""
    assert {KafkaPythonTopicPartition("t", 1): "x"}[TopicPartition("t", 1)] == "x"


def test_topic_partition_reads_as_its_folder() -> None:
    """`str()` is the name that Kafka gives the partition's folder."""
    assert str(TopicPartition("flights", 3)) == "flights-3"


def test_values_pickle() -> None:
    """Values cross process borders."""
    partition = TopicPartition("t", 0)
    metadata = RecordMetadata("t", 0, partition, 5, 1, None, -1, 3, -1)
    assert pickle.loads(pickle.dumps((partition, metadata))) == (partition, metadata)
