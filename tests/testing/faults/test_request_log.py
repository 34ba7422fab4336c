"""The log of requests, and faults and clock of a broker in its own thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from kafka import KafkaConsumer
from kafka import TopicPartition as TheirTopicPartition

from splashdam import EmbeddedBroker, KafkaProducer
from splashdam.errors import KafkaTimeoutError
from splashdam.wire.messages.produce import ProduceRequest

Y2K_MS = 946_684_800_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path, fsync=False) as running:
        yield running


@pytest.fixture
def producer(broker: EmbeddedBroker) -> Iterator[KafkaProducer]:
    with KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, client_id="shop", retry_backoff_ms=1
    ) as running:
        yield running


def test_logged_requests(broker: EmbeddedBroker, producer: KafkaProducer) -> None:
    """A client that has an answer finds its request in the log, with the answer."""
    broker.faults.produce(error="NOT_ENOUGH_REPLICAS", times=1)
    with broker.requests.start() as requests:
        producer.send("orders", b"1").get(timeout=300)
        first, second = requests.of("produce", topic="orders", partition=0, client_id="sh*")
        assert (first.errors, second.errors) == (("NOT_ENOUGH_REPLICAS",), ())
        assert (first.api, first.client_id, first.broker, first.topics) == ("produce", "shop", 1, ("orders",))
        assert (first.outcome, first.at_ms <= second.at_ms, first.took_ms >= 0) == ("answered", True, True)
        assert isinstance(first.request, ProduceRequest)
        records = first.request.topic_data[0].partition_data[0].records
        assert len(records or b"") > 60  # its own memory: the receive buffer has been used again since
        assert requests.of("produce", topic="other") == requests.of("fetch") == []
        assert [each.api for each in requests][:2] == ["api_versions", "metadata"]
    count = len(broker.requests)
    producer.send("orders", b"2").get(timeout=300)
    assert len(broker.requests) == count
    broker.requests.clear()
    assert len(broker.requests) == 0


def test_waiting_for_requests(broker: EmbeddedBroker, producer: KafkaProducer) -> None:
    """It waits for as many as it is told, and says what came instead."""
    requests = broker.requests.start()
    producer.send("orders", b"1")
    assert len(requests.wait_for("produce", topic="orders")) == 1
    with pytest.raises(KafkaTimeoutError, match=r"0 of 2 requests fetch\(topic='x'\) within 0.01 s; logged"):
        requests.wait_for("fetch", topic="x", count=2, timeout_s=0.01)


def test_outcomes(broker: EmbeddedBroker, producer: KafkaProducer) -> None:
    """Requests that were not answered say so."""
    producer.send("orders", b"0").get(timeout=300)
    with broker.requests.start() as requests:
        broker.faults.produce(drop="before", times=1)
        broker.faults.produce(drop="after", times=1)
        producer.send("orders", b"1").get(timeout=300)
        assert [each.outcome for each in requests.of("produce")] == ["dropped", "dropped", "answered"]


def test_waiting_for_a_fault(broker: EmbeddedBroker, producer: KafkaProducer) -> None:
    """From the test's thread, while the client is at work in its own."""
    with broker.faults.produce(error="NOT_LEADER_OR_FOLLOWER") as fault:
        future = producer.send("orders", b"1")
        fault.wait(hits=3)
        assert not future.done()
        assert "produce(), " in repr(fault)
        with pytest.raises(KafkaTimeoutError):
            fault.wait(hits=10**9, timeout_s=0.01)
    assert future.get(timeout=300).offset == 0


def test_faults_outlive_restarts(tmp_path: Path) -> None:
    """They are set before the broker runs, too."""
    broker = EmbeddedBroker(tmp_path, fsync=False)
    fault = broker.faults.produce(error="REQUEST_TIMED_OUT", times=1)
    with broker, KafkaProducer(bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=1) as producer:
        assert producer.send("t", b"1").get(timeout=300).offset == 0
    assert fault.hits == 1


def test_another_client_with_fetch_errors(broker: EmbeddedBroker, producer: KafkaProducer) -> None:
    """kafka-python's consumer, in the middle of its fetch session, meets the error and recovers."""
    producer.send("t", b"1").get(timeout=300)
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
    consumer.assign([TheirTopicPartition("t", 0)])
    assert next(consumer).value == b"1"
    with broker.faults.fetch(topic="t", error="NOT_LEADER_OR_FOLLOWER", times=2) as fault:
        producer.send("t", b"2").get(timeout=300)
        assert next(consumer).value == b"2"
        assert fault.hits == 2
    consumer.close()


def test_wall_clock(tmp_path: Path) -> None:
    """Records get the time that the test has set."""
    with (
        EmbeddedBroker(tmp_path, fsync=False, log_message_timestamp_type="LogAppendTime") as broker,
        KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        broker.clock.freeze()
        broker.clock.set(datetime(2000, 1, 1, tzinfo=UTC))
        assert (broker.clock.wall_ms(), broker.clock.wall_ns()) == (Y2K_MS, Y2K_MS * 10**6)
        broker.clock.step(-1.5)
        assert broker.clock.wall_ms() == Y2K_MS - 1500
        broker.clock.set(Y2K_MS)
        broker.clock.advance(days=1, seconds=2)
        assert producer.send("t", b"1").get(timeout=300).timestamp == Y2K_MS + 86_402_000
        broker.clock.resume()
        assert Y2K_MS + 86_402_000 <= broker.clock.wall_ms() < Y2K_MS + 87_000_000
        broker.clock.reset()
        assert broker.clock.wall_ms() > Y2K_MS * 1.5


def test_time_passes(broker: EmbeddedBroker) -> None:
    """A parked fetch of a minute ends as the test lets a minute pass."""
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers, fetch_max_wait_ms=60_000, request_timeout_ms=70_000
    )
    with (
        closing(consumer),
        broker.requests.start() as requests,
        KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        producer.send("t", b"1").get(timeout=300)
        consumer.assign([TheirTopicPartition("t", 0)])
        while not requests.of("fetch"):  # a slow machine needs several polls before one is parked
            consumer.poll(timeout_ms=100)
            broker.clock.advance(minutes=2)
        assert requests.of("fetch")[0].took_ms >= 60_000


def test_time_does_not_pass_backwards(broker: EmbeddedBroker) -> None:
    """A time without a timezone is refused."""
    with pytest.raises(ValueError, match=r"step\(\) moves the wall clock back"):
        broker.clock.advance(seconds=-1)
    with pytest.raises(ValueError, match="tzinfo=UTC"):
        broker.clock.set(datetime(2000, 1, 1))  # that is the point


def test_clients_with_passwords(tmp_path: Path) -> None:
    """Faults and log are behind the session: a stranger is refused as before, a known client meets them."""
    config = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "PLAIN"}
    broker = EmbeddedBroker(tmp_path, config=config, fsync=False)
    broker.users.add("anna", "secret")
    with broker, broker.requests.start() as requests:
        with KafkaProducer(
            bootstrap_servers=broker.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_plain_username="anna",
            sasl_plain_password="secret",
            retry_backoff_ms=1,
        ) as producer:
            fault = broker.faults.produce(error="NOT_LEADER_OR_FOLLOWER", times=1)
            assert producer.send("t", b"1").get(timeout=300).offset == 0
        assert (fault.hits, len(requests.of("produce"))) == (1, 2)
        assert "secret" not in repr(list(requests))
