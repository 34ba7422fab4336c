"""Tests of what a program does when Kafka fails. Run them: pytest examples/testing/test_with_faults.py

The fixtures come with splashdam: a broker of its own for every test, within milliseconds. It speaks Kafka's
protocol on TCP, so the code under test may use any client; here it is kafka-python.
"""

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from splashdam import EmbeddedBroker
from splashdam.testing.faults.faults import Faults


def place_orders(servers: str, topic: str, count: int) -> int:
    """The code under test: sends orders, and returns how many are safe."""
    producer = KafkaProducer(bootstrap_servers=servers, retries=5, retry_backoff_ms=10, acks="all")
    futures = [producer.send(topic, f"order {number}".encode()) for number in range(count)]
    producer.flush()
    producer.close()
    return sum(future.succeeded() for future in futures)


def orders_in(servers: str, topic: str) -> list[bytes]:
    """Return the orders that another program reads."""
    partition = TopicPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
    consumer.assign([partition])
    end, values = consumer.end_offsets([partition])[partition], []
    while consumer.position(partition) < end:
        values += [record.value for record in consumer.poll(1000).get(partition, [])]
    consumer.close()
    return values


@pytest.mark.parametrize("error", ["NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS"])
def test_passing_errors_lose_nothing(
    kafka_broker: EmbeddedBroker, kafka_topic: str, kafka_faults: Faults, error: str
) -> None:
    fault = kafka_faults.produce(topic=kafka_topic, error=error, times=2)

    assert place_orders(kafka_broker.bootstrap_servers, kafka_topic, 3) == 3

    assert fault.hits == 2
    assert orders_in(kafka_broker.bootstrap_servers, kafka_topic) == [b"order 0", b"order 1", b"order 2"]


def test_a_lost_answer_is_not_a_second_order(
    kafka_broker: EmbeddedBroker, kafka_topic: str, kafka_faults: Faults
) -> None:
    kafka_faults.produce(drop="after", times=1)  # the broker has the order, and the client does not know

    assert place_orders(kafka_broker.bootstrap_servers, kafka_topic, 1) == 1

    assert orders_in(kafka_broker.bootstrap_servers, kafka_topic) == [b"order 0"]


def test_refused_orders_are_not_called_safe(
    kafka_broker: EmbeddedBroker, kafka_topic: str, kafka_faults: Faults
) -> None:
    with kafka_broker.requests.start() as requests, kafka_faults.produce(error="TOPIC_AUTHORIZATION_FAILED"):
        assert place_orders(kafka_broker.bootstrap_servers, kafka_topic, 2) == 0

    assert {error for each in requests.of("produce") for error in each.errors} == {
        "TOPIC_AUTHORIZATION_FAILED"
    }


@pytest.mark.kafka(config={"log.message.timestamp.type": "LogAppendTime"})
def test_orders_of_another_century(kafka_broker: EmbeddedBroker, kafka_topic: str) -> None:
    kafka_broker.clock.freeze()
    kafka_broker.clock.set(946_684_799_999)  # the last millisecond of 1999
    producer = KafkaProducer(bootstrap_servers=kafka_broker.bootstrap_servers)

    assert producer.send(kafka_topic, b"fireworks").get(10).timestamp == 946_684_799_999

    producer.close()
