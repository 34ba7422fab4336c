"""The broker's own topics: how they are made, written, read again, and who may not write."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.broker.broker_talk import Talk, batch
from trio.testing import MockClock

from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.embedded_broker.execution.answers import Parked
from splashdam.embedded_broker.topics.internal_topics import (
    InternalTopic,
    answer_when_safe,
    java_string_hash,
    partition_for,
)
from splashdam.model.broker_errors import CoordinatorNotAvailableError, ErrorCode, InvalidProducerEpochError
from splashdam.model.values import TopicPartition
from splashdam.storage.files.memory import Fault, MemoryFiles
from splashdam.storage.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from splashdam.testing.clock import VirtualClock
from splashdam.wire.messages.end_txn import EndTxnResponse
from splashdam.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from splashdam.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

ABORTED = EndTxnResponse(error_code=int(ErrorCode.COORDINATOR_NOT_AVAILABLE))


@pytest.mark.parametrize(
    ("key", "partition"), [("g1", 42), ("my-group", 12), ("gtx", 49), ("orders", 31), ("", 0)]
)
def test_partitions_are_kafkas(key: str, partition: int) -> None:
    """As a real Kafka placed these keys."""
    assert partition_for(key, 50) == partition


@pytest.mark.parametrize(("text", "value"), [("polygenelubricants", -(2**31)), ("\U0001f600", 1772899)])
def test_hash_is_javas(text: str, value: int) -> None:
    """Characters beyond 16 bits count as two; the smallest number has no absolute value and is 0."""
    assert java_string_hash(text) == value
    assert 0 <= partition_for(text, 7) < 7


@given(st.text(max_size=10), st.integers(0, 300))
def test_long_texts_are_hashed_as_short_ones(text: str, times: int) -> None:
    """The hash is taken of some hundred characters at once."""
    value = 0
    units = (text * times).encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2], "big")) % (1 << 32)
    assert java_string_hash(text * times) % (1 << 32) == value


@given(st.text(), st.integers(1, 1000))
def test_every_key_has_a_partition(key: str, count: int) -> None:
    """Lone surrogates included."""
    assert 0 <= partition_for(key, count) < count


@pytest.mark.parametrize("own_topics", [{}], ids=["Kafka's number"])
async def test_made_on_first_use(broker: Broker) -> None:
    """With Kafka's number of partitions and options; both are marked as internal."""
    assert broker.topics.all() == []
    InternalTopic(CONSUMER_OFFSETS, broker).append(3, [(b"k", b"v")])
    topic = broker.topics.get(CONSUMER_OFFSETS)
    assert topic is not None
    assert len(topic.partitions) == 50
    assert dict(topic.configs) == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }


@pytest.mark.parametrize("own_topics", [{}], ids=["Kafka's number"])
@pytest.mark.parametrize("name", [CONSUMER_OFFSETS, TRANSACTION_STATE])
async def test_a_client_that_asks_for_it_makes_the_same(broker: Broker, talk: Talk, name: str) -> None:
    """Metadata creates what is missing, but not as an ordinary topic."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
    (answer,) = (await talk.ask(request, 9)).topics
    assert (answer.error_code, answer.is_internal, len(answer.partitions)) == (0, True, 50)
    assert InternalTopic(name, broker).log(49).settings.is_compacted


@pytest.mark.parametrize("name", [CONSUMER_OFFSETS, TRANSACTION_STATE])
async def test_clients_may_not_write(broker: Broker, talk: Talk, name: str) -> None:
    """17, as Kafka answers; also when the same request comes again."""
    broker.topics.create(name)
    data = PartitionProduceData(index=0, records=batch(b"v"))
    request = ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=name, partition_data=[data])]
    )
    for _ in range(3):
        (topic,) = (await talk.ask(request, 9)).responses
        assert [each.error_code for each in topic.partition_responses] == [17]
    assert broker.logs.logs[TopicPartition(name, 0)].log_end_offset == 0


async def test_appended_records_are_read(broker: Broker) -> None:
    """Batch by batch, with producer and markers where there are some; a missing topic holds nothing."""
    topic = InternalTopic(CONSUMER_OFFSETS, broker)
    assert list(topic.read_all(1)) == []
    topic.append(1, [(b"a", b"1"), (b"b", None)])
    topic.append(1, [(b"c", b"3")], producer_id=7, producer_epoch=2)
    read = [
        (stored.header.producer_id, stored.header.is_transactional, record.offset, record.key, record.value)
        for stored in topic.read_all(1)
        for record in stored.records
    ]
    assert read == [(-1, False, 0, b"a", b"1"), (-1, False, 1, b"b", None), (7, True, 2, b"c", b"3")]
    log = topic.log(1)
    assert log.producers.has_open_transaction(7, 2)
    assert not log.producers.has_open_transaction(7, 1)
    assert log.last_stable_offset == 2


async def test_an_older_epoch_writes_no_more(broker: Broker) -> None:
    """A coordinator's batch has no sequence, but its producer's epoch counts."""
    topic = InternalTopic(CONSUMER_OFFSETS, broker)
    for _ in range(2):
        topic.append(0, [(b"k", b"v")], producer_id=7, producer_epoch=2)
    with pytest.raises(InvalidProducerEpochError):
        topic.append(0, [(b"k", b"v")], producer_id=7, producer_epoch=1)
    assert topic.log(0).log_end_offset == 2


async def test_replayed_after_a_restart(files: MemoryFiles, autojump_clock: MockClock) -> None:
    """A batch without sequence numbers comes back like any other, and so does its open transaction."""
    clock = VirtualClock(autojump_clock)
    async with open_broker("/data", port=None, clock=clock, files=files) as broker:
        InternalTopic(CONSUMER_OFFSETS, broker).append(0, [(b"k", b"v")], producer_id=7, producer_epoch=2)
    async with open_broker("/data", port=None, clock=clock, files=files) as broker:
        topic = InternalTopic(CONSUMER_OFFSETS, broker)
        assert [record.key for stored in topic.read_all(0) for record in stored.records] == [b"k"]
        assert topic.log(0).producers.has_open_transaction(7, 2)


async def test_partitions_are_those_the_topic_has(broker: Broker) -> None:
    """Somebody may have made it with another number; a partition beyond is refused in a retriable way."""
    broker.topics.create(CONSUMER_OFFSETS, 3)
    topic = InternalTopic(CONSUMER_OFFSETS, broker)
    assert topic.partition_for("g1") == partition_for("g1", 3)
    with pytest.raises(CoordinatorNotAvailableError):
        topic.log(3)


async def test_a_disk_that_refuses_the_topic(broker: Broker, files: MemoryFiles) -> None:
    """Coordinator not available: the client tries again."""
    files.inject(Fault(error_number=28))
    topic = InternalTopic(CONSUMER_OFFSETS, broker)
    with pytest.raises(CoordinatorNotAvailableError):
        topic.append(0, [(b"k", b"v")])
    topic.append(0, [(b"k", b"v")])


async def test_answers_wait_for_the_disk_where_the_options_say_so(
    files: MemoryFiles, autojump_clock: MockClock
) -> None:
    """flush.messages=1: acknowledged means on stable storage; by default in the log."""
    clock, done = VirtualClock(autojump_clock), EndTxnResponse()
    async with open_broker("/data", port=None, clock=clock, files=files) as broker:
        topic = InternalTopic(CONSUMER_OFFSETS, broker)
        topic.append(0, [(b"k", b"v")])
        assert answer_when_safe(topic.log(0), done, lambda _: ABORTED) is done
    options = {"log_flush_interval_messages": 1}
    async with open_broker("/data", port=None, clock=clock, files=files, **options) as broker:
        topic = InternalTopic(CONSUMER_OFFSETS, broker)
        topic.append(0, [(b"k", b"v")])
        parked = answer_when_safe(topic.log(0), done, lambda _: ABORTED)
        assert isinstance(parked, Parked)
        assert await parked.wait() is done
        assert topic.log(0).recovery_point == topic.log(0).log_end_offset
