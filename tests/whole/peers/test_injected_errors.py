"""What one error answered to Produce does to this record and to the next: peers die of some of these.

librdkafka's mock cluster answers the errors. Each row is one of the table that we measured for other clients.
"""

from __future__ import annotations

from typing import Any

import pytest

from splashdam.client.producer import KafkaProducer
from splashdam.model.broker_errors import BrokerResponseError, error_class
from splashdam.model.errors import KafkaTimeoutError

PRODUCE = 0
RETRIED = [[6, 6, 6], [19, 19, 19], [7], [2], [45], [59]]
REFUSED = [10, 17, 18, 29, 32, 76, 87, -1]


def offset(producer: KafkaProducer, topic: str, value: bytes) -> int:
    """The offset of a record that arrives."""
    delivered = producer.send(topic, value).get(timeout=300)
    return int(delivered.offset)


def offset_at_last(producer: KafkaProducer, topic: str, value: bytes) -> int:
    """The same, for a short delivery timeout: what a busy machine did not deliver in time is sent again."""
    while True:
        try:
            return offset(producer, topic, value)
        except KafkaTimeoutError:
            continue


@pytest.mark.parametrize("codes", RETRIED, ids=str)
@pytest.mark.parametrize("warm", [True, False], ids=["after a record", "as the first"])
def test_r02_a_passing_error_costs_no_record(mock_cluster: Any, codes: list[int], warm: bool) -> None:
    """This record and all behind it arrive once, in order; a gap in the numbers is closed by a new epoch."""
    topic = mock_cluster.topic()
    before = [b"warm"] if warm else []
    with mock_cluster.producer(retry_backoff_ms=10) as producer:
        for value in before:
            assert offset(producer, topic, value) == 0
        mock_cluster.mock.push_errors(PRODUCE, *codes)
        futures = [producer.send(topic, b"%d" % number) for number in range(20)]
        assert [future.get(timeout=300).offset - len(before) for future in futures] == list(range(20))
        assert offset(producer, topic, b"next") == 20 + len(before)
    assert mock_cluster.values(topic) == [*before, *(b"%d" % number for number in range(20)), b"next"]


@pytest.mark.parametrize("code", REFUSED)
@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
def test_r01_a_refused_record_fails_alone(mock_cluster: Any, code: int, idempotent: bool) -> None:
    """With the broker's error; the next one to this and to another topic is delivered."""
    topic, other = mock_cluster.topic(), mock_cluster.topic()
    with mock_cluster.producer(enable_idempotence=idempotent) as producer:
        assert offset(producer, topic, b"warm") == 0
        mock_cluster.mock.push_errors(PRODUCE, code)
        with pytest.raises(BrokerResponseError) as caught:
            producer.send(topic, b"x").get(timeout=300)
        assert type(caught.value) is error_class(code)
        assert offset(producer, topic, b"next") == 1
        assert offset(producer, other, b"elsewhere") == 0
    assert mock_cluster.values(topic) == [b"warm", b"next"]


def test_r01_a_refused_first_record_fails_alone(mock_cluster: Any) -> None:
    """Without anything delivered before it."""
    topic = mock_cluster.topic()
    mock_cluster.mock.push_errors(PRODUCE, 87)
    with mock_cluster.producer() as producer:
        with pytest.raises(error_class(87)):
            producer.send(topic, b"x").get(timeout=300)
        assert offset(producer, topic, b"next") == 0


def test_r02_a_duplicate_counts_as_delivered(mock_cluster: Any) -> None:
    """46: the broker has it; only its offset is not known."""
    topic = mock_cluster.topic()
    with mock_cluster.producer() as producer:
        assert offset(producer, topic, b"warm") == 0
        mock_cluster.mock.push_errors(PRODUCE, 46)
        assert offset(producer, topic, b"x") == -1
        assert producer.send(topic, b"next").get(timeout=300).offset >= 1


def test_r04_order_survives_errors_and_moves_with_five_in_flight(mock_cluster: Any) -> None:
    """Many small batches, errors of every passing kind between them: once each, in order."""
    topic = mock_cluster.topic()
    with mock_cluster.producer(
        batch_size=200, linger_ms=0, retry_backoff_ms=5, retry_backoff_max_ms=20
    ) as producer:
        futures = []
        for number in range(600):
            if number % 50 == 25:
                mock_cluster.mock.push_errors(PRODUCE, *[(6, 19, 7, 2, 3, 5)[number // 50 % 6]] * 2)
            futures.append(producer.send(topic, b"%04d" % number))
        assert [future.get(timeout=300).offset for future in futures] == list(range(600))
    assert mock_cluster.values(topic) == [b"%04d" % number for number in range(600)]


def test_r06_the_delivery_timeout_ends_retries(mock_cluster: Any) -> None:
    """Also of an idempotent producer; the error names the last failure, and the next record goes."""
    topic = mock_cluster.topic()
    options = {"delivery_timeout_ms": 1_000, "request_timeout_ms": 900, "retry_backoff_ms": 50}
    with mock_cluster.producer() as patient, mock_cluster.producer(linger_ms=0, **options) as producer:
        assert offset(patient, topic, b"first") == 0
        warm = offset_at_last(producer, topic, b"warm")
        assert warm >= 1
        mock_cluster.mock.push_errors(PRODUCE, *[19] * 1_000)
        with pytest.raises(KafkaTimeoutError, match=r"delivery_timeout_ms=1000.*last failure: \[19"):
            producer.send(topic, b"x").get(timeout=300)
        mock_cluster.mock.clear_errors(PRODUCE)
        assert offset_at_last(producer, topic, b"next") > warm


def test_r08_flush_follows_a_split(mock_cluster: Any) -> None:
    """10 for four records: flush ends with all of them delivered and no error."""
    topic = mock_cluster.topic()
    with mock_cluster.producer(linger_ms=60_000) as producer:
        producer.prepare(topic)
        mock_cluster.mock.push_errors(PRODUCE, 10, 10)
        futures = [producer.send(topic, b"%d" % number) for number in range(4)]
        report = producer.flush(300)
        assert (report.pending, [future.value.offset for future in futures]) == (0, [0, 1, 2, 3])
    assert mock_cluster.values(topic) == [b"0", b"1", b"2", b"3"]


def test_r09_flush_ends_when_batches_expire(mock_cluster: Any) -> None:
    """It waits for failure as well as for success."""
    topic = mock_cluster.topic()
    options = {"delivery_timeout_ms": 800, "request_timeout_ms": 700}
    with mock_cluster.producer(linger_ms=0, **options) as producer:
        producer.prepare(topic)
        mock_cluster.mock.push_errors(PRODUCE, *[19] * 1_000)
        future = producer.send(topic, b"x")
        assert producer.flush(300).pending == 0
        assert isinstance(future.exception, KafkaTimeoutError)
        mock_cluster.mock.clear_errors(PRODUCE)


def test_r23_a_mock_that_kafka_python_cannot_talk_to(mock_cluster: Any) -> None:
    """ApiVersions answered with 35 and a body of version 0: the cluster is found."""
    topic = mock_cluster.topic()
    with mock_cluster.producer() as producer:
        assert offset(producer, topic, b"x") == 0
        assert producer.bootstrap_connected()


def test_r21_a_name_that_is_impossible_is_named() -> None:
    """The time-out says which topic, how long it waited, and why, and no resolver is asked."""
    host = "\u00fc" * 80  # longer than a label can be once it is encoded
    with KafkaProducer(bootstrap_servers=f"{host}:9092", max_block_ms=1_000) as producer:
        words = rf"'t' did not appear.* within 1000 ms: .*{host}:9092: the host name is invalid"
        with pytest.raises(KafkaTimeoutError, match=words):
            producer.send("t", b"v")
