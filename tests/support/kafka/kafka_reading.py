"""What a real Kafka, or our broker, serves, read with librdkafka; and topics made on a real one."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from splashdam.record.reader import Record

_WAIT_SECONDS = 30
_NOT_LED_YET = frozenset(
    {
        confluent_kafka.KafkaError.NOT_LEADER_FOR_PARTITION,
        confluent_kafka.KafkaError.LEADER_NOT_AVAILABLE,
        confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)


def make_topic(servers: str, topic: str, configs: Mapping[str, str] | None = None) -> None:
    """Makes a topic of one partition."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    made = admin.create_topics([NewTopic(topic, 1, 1, config=dict(configs or {}))])
    made[topic].result(_WAIT_SECONDS)


def served(servers: str, topic: str, *, committed: bool = False, start: int = 0) -> list[Record]:
    """All records of a topic's only partition as a consumer gets them."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": uuid.uuid4().hex,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "check.crcs": True,
            "log_level": 0,
        }
    )
    try:
        low = _first_offset(consumer, topic)
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, max(low, start))])
        return _until_the_end(consumer)
    finally:
        consumer.close()


def _first_offset(consumer: confluent_kafka.Consumer, topic: str) -> int:
    """Ask again while a broker that has just started does not lead yet: librdkafka does not retry this."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            low, _ = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), _WAIT_SECONDS)
            return int(low)
        except confluent_kafka.KafkaException as error:
            if not error.args[0].retriable() and error.args[0].code() not in _NOT_LED_YET:
                raise
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _until_the_end(consumer: confluent_kafka.Consumer) -> list[Record]:
    records = []
    while True:
        message = consumer.poll(_WAIT_SECONDS)
        assert message is not None, "nothing came"
        error = message.error()
        if error is None:
            records.append(_record(message))
        elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
            return records
        else:
            raise confluent_kafka.KafkaException(error)


def _record(message: confluent_kafka.Message) -> Record:
    headers = tuple(message.headers() or ())
    return Record(message.offset(), message.timestamp()[1], message.key(), message.value(), headers)
