"""Transactions as clients ask for them: both protocols, when records become visible, and the refusals."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.broker.broker_talk import Talk, batch, produce
from support.broker.transaction_talk import RawProducer, committed_values
from trio.testing import MockClock

from splashdam.embedded_broker.broker import Broker
from splashdam.embedded_broker.transactions.metadata import TransactionState
from splashdam.model.values import TopicPartition
from splashdam.net.memory import MemoryNetwork
from splashdam.storage.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from splashdam.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from splashdam.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

S = TransactionState
BOTH = pytest.mark.parametrize("uses_v2", [False, True], ids=["v1", "v2"])


@pytest.fixture
async def talk(broker: Broker, network: MemoryNetwork) -> AsyncIterator[Talk]:
    """A connection to a broker with three partitions of ``t``."""
    broker.topics.create("t", 3)
    async with await network.connect("broker", 9092) as stream:
        yield Talk(stream)


@pytest.fixture
async def second_talk(broker: Broker, network: MemoryNetwork) -> AsyncIterator[Talk]:
    """Another client's connection."""
    async with await network.connect("broker", 9092) as stream:
        yield Talk(stream)


def state(broker: Broker, transactional_id: str = "tx") -> TransactionState:
    metadata = broker.transactions.get(transactional_id)
    assert metadata is not None
    return metadata.state


async def begun(talk: Talk, *, uses_v2: bool, partitions: tuple[int, ...] = (0, 1)) -> RawProducer:
    """A producer with an open transaction that has written to the partitions."""
    producer = RawProducer(talk, uses_v2=uses_v2)
    assert await producer.initialize() == 0
    if not uses_v2:
        assert set(await producer.add(*partitions)) == {0}
    for partition in partitions:
        assert await producer.write(b"%d" % partition, partition=partition) == 0
    return producer


@BOTH
@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
async def test_all_or_nothing(talk: Talk, broker: Broker, uses_v2: bool, is_commit: bool) -> None:
    """Nothing is visible before the end, everything or nothing behind it, and the log is stable again."""
    producer = await begun(talk, uses_v2=uses_v2)
    assert [committed_values(broker, "t", each) for each in (0, 1)] == [[], []]
    assert await producer.end(is_commit=is_commit) == 0
    expected = [[b"0"], [b"1"]] if is_commit else [[], []]
    assert [committed_values(broker, "t", each) for each in (0, 1)] == expected
    for partition in (0, 1):
        log = broker.logs.logs[TopicPartition("t", partition)]
        assert log.last_stable_offset == log.high_watermark == 2
    assert broker.logs.logs[TopicPartition("t", 2)].log_end_offset == 0


@BOTH
async def test_one_after_the_other(talk: Talk, broker: Broker, uses_v2: bool) -> None:
    """Version 2 gives each transaction an epoch of its own and numbers from 0; version 1 goes on."""
    producer = await begun(talk, uses_v2=uses_v2, partitions=(0,))
    epochs = [producer.epoch]
    for is_commit in (True, False, True):
        assert await producer.end(is_commit=is_commit) == 0
        if not uses_v2:
            assert await producer.add(0) == [0]
        assert await producer.write(b"more") == 0
        epochs.append(producer.epoch)
    assert epochs == ([0, 1, 2, 3] if uses_v2 else [0] * 4)
    assert committed_values(broker) == [b"0", b"more"]


@BOTH
async def test_a_newer_producer_fences(talk: Talk, second_talk: Talk, broker: Broker, uses_v2: bool) -> None:
    """Its transaction is aborted, and it is told so whatever it asks for next."""
    old = await begun(talk, uses_v2=uses_v2)
    new = RawProducer(second_talk, uses_v2=uses_v2)
    assert await new.initialize() == 0
    assert new.producer_id == old.producer_id
    assert new.epoch == old.epoch + 2
    assert committed_values(broker) == []
    assert await old.write(b"late") == 47
    assert await old.add(0) == [90]
    assert await old.add(0, version=1) == [47]
    assert await old.add_offsets("g") == 90
    assert await old.add_offsets("g", version=1) == 47
    assert await old.end() == 90
    assert await old.end(version=1) == 47
    assert await old.initialize(keeps=True, version=4) == 90
    assert await old.initialize(keeps=True, version=3) == 47
    if not uses_v2:
        assert await new.add(0) == [0]
    assert await new.write(b"new") == 0
    assert await new.end() == 0
    assert committed_values(broker) == [b"new"]


@pytest.mark.parametrize(("version", "code"), [(9, 48), (10, 48), (11, 120)])
async def test_a_partition_that_was_not_added(talk: Talk, broker: Broker, version: int, code: int) -> None:
    """Up to Produce 11 somebody has to have added it; a second one later is asked for again."""
    producer = await begun(talk, uses_v2=False, partitions=(0,))
    assert await producer.write(b"x", partition=1, version=version) == code
    assert await producer.write(b"x", partition=0, version=version) == 0
    assert await producer.end() == 0
    assert await producer.write(b"x", partition=0, version=version) == code
    assert broker.logs.logs[TopicPartition("t", 1)].log_end_offset == 0


@pytest.mark.parametrize("version", range(6))
async def test_initializing_in_every_version(talk: Talk, version: int) -> None:
    """The first producer of an id begins at epoch 0, the next at 1."""
    first, second = RawProducer(talk), RawProducer(talk)
    assert await first.initialize(version=version) == 0
    assert await second.initialize(version=version) == 0
    assert (first.epoch, second.epoch) == (0, 1)
    assert first.producer_id == second.producer_id


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
async def test_timeouts_are_limited(talk: Talk, timeout_ms: int) -> None:
    """50 above transaction.max.timeout.ms."""
    assert await RawProducer(talk).initialize(timeout_ms=timeout_ms) == 50
    assert await RawProducer(talk).initialize(timeout_ms=900_000) == 0


async def test_a_producer_that_bumps_its_own_epoch(talk: Talk) -> None:
    """KIP-360: who names its identity keeps it with the next epoch; the repeat of that call gets the same."""
    producer = RawProducer(talk)
    assert await producer.initialize() == 0
    before = (producer.producer_id, producer.epoch)
    assert await producer.initialize(keeps=True) == 0
    assert (producer.producer_id, producer.epoch) == (before[0], 1)
    producer.epoch = before[1]
    assert await producer.initialize(keeps=True) == 0
    assert producer.epoch == 1
    producer.epoch = 7
    assert await producer.initialize(keeps=True) == 90


async def test_a_fenced_producer_ends_no_transaction_of_the_newer_one(
    talk: Talk, second_talk: Talk, broker: Broker
) -> None:
    """Its InitProducerId with the old identity is refused before anything is aborted."""
    old = await begun(talk, uses_v2=True)
    new = RawProducer(second_talk)
    assert await new.initialize() == 0
    assert await new.write(b"new") == 0
    assert await old.initialize(keeps=True) == 90
    assert state(broker) is S.ONGOING
    assert await new.end() == 0
    assert committed_values(broker) == [b"new"]


async def test_a_producer_that_gives_its_transaction_up(talk: Talk, broker: Broker) -> None:
    """InitProducerId with the present identity aborts what is open, and the producer goes on."""
    producer = await begun(talk, uses_v2=True)
    assert await producer.initialize(keeps=True) == 0
    assert (producer.epoch, committed_values(broker)) == (1, [])
    assert await producer.write(b"again") == 0
    assert await producer.end() == 0
    assert committed_values(broker) == [b"again"]


@BOTH
async def test_unknown_producers(talk: Talk, uses_v2: bool) -> None:
    """49 for an id that nobody initialized, and for another producer id; 42 for an empty one."""
    stranger = RawProducer(talk, uses_v2=uses_v2, producer_id=5, epoch=0)
    assert await stranger.add(0) == [49]
    assert await stranger.write(b"x") == 49
    assert await stranger.end() == 49
    known = RawProducer(talk)
    assert await known.initialize() == 0
    stranger.producer_id = known.producer_id + 1
    assert await stranger.end() == 49
    stranger.transactional_id = ""
    assert await stranger.end() == 42
    assert await stranger.initialize() == 42
    assert await stranger.add(0) == [42]


async def test_repeated_ends(talk: Talk) -> None:
    """An end whose answer was lost is answered again, with the same identity; another outcome is not."""
    producer = await begun(talk, uses_v2=True)
    before = producer.epoch
    assert await producer.end() == 0
    after = producer.epoch
    producer.epoch = before
    assert await producer.end() == 0
    assert producer.epoch == after
    producer.epoch = before
    assert await producer.end(is_commit=False) == 48
    classic = await begun(talk, uses_v2=False)
    assert [await classic.end(), await classic.end(), await classic.end(is_commit=False)] == [0, 0, 48]


@BOTH
async def test_nothing_was_added(talk: Talk, uses_v2: bool) -> None:
    """There is nothing to commit: 48. An abort gives a new epoch since KIP-890."""
    producer = RawProducer(talk, uses_v2=uses_v2)
    assert await producer.initialize() == 0
    assert await producer.end() == 48
    assert await producer.end(is_commit=False) == (0 if uses_v2 else 48)
    assert producer.epoch == (1 if uses_v2 else 0)


async def test_missing_partitions_are_named(talk: Talk, broker: Broker) -> None:
    """3 for those, 55 for the others, and the transaction has none of them."""
    producer = RawProducer(talk)
    assert await producer.initialize() == 0
    assert await producer.add(0, 7) == [55, 3]
    assert state(broker) is S.EMPTY


@pytest.mark.parametrize("own_topics", [{}], ids=["Kafka's number"])
async def test_offsets_join(talk: Talk, broker: Broker) -> None:
    """The group's partition of __consumer_offsets gets a marker, too, and its owner hears of it."""
    ended: list[tuple[int, int, bool]] = []
    broker.offsets.end_transaction = (  # type: ignore[method-assign]
        lambda partition, producer_id, *, committed: ended.append((partition, producer_id, committed))
    )
    broker.topics.create(CONSUMER_OFFSETS)
    producer = await begun(talk, uses_v2=False)
    assert await producer.add_offsets("my-group") == 0
    assert await producer.end() == 0
    assert ended == [(12, producer.producer_id, True)]
    assert broker.logs.logs[TopicPartition(CONSUMER_OFFSETS, 12)].log_end_offset == 1


@pytest.mark.parametrize(("version", "code"), [(4, 48), (5, 120)])
async def test_several_transactions_at_once(talk: Talk, broker: Broker, version: int, code: int) -> None:
    """As brokers ask: one to be added to, one to be looked into."""
    first, second = RawProducer(talk, "a"), RawProducer(talk, "b")
    assert await first.initialize() == await second.initialize() == 0
    answer = await talk.ask(
        AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id=each.transactional_id,
                    producer_id=each.producer_id,
                    producer_epoch=each.epoch,
                    verify_only=each is second,
                    topics=[AddPartitionsToTxnTopic(name="t", partitions=[0, 1])],
                )
                for each in (first, second)
            ]
        ),
        version,
    )
    assert answer.error_code == 0
    assert {
        result.transactional_id: [
            part.partition_error_code for topic in result.topic_results for part in topic.results_by_partition
        ]
        for result in answer.results_by_transaction
    } == {"a": [0, 0], "b": [code, code]}
    assert (state(broker, "a"), state(broker, "b")) == (S.ONGOING, S.EMPTY)


async def test_a_batch_outside_of_the_transaction(talk: Talk) -> None:
    """48 for a producer with an open transaction, and 53 where nobody is named for a transactional one."""
    producer = await begun(talk, uses_v2=True, partitions=(0,))
    fields = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch, "base_sequence": 1}
    assert (await produce(talk, "t", batch(b"x", **fields))).error_code == 48
    for _ in range(2):  # the second time its form is known
        answer = await produce(talk, "t", batch(b"x", transactional=True, **fields))
        assert answer.error_code == 53


async def test_without_verification(talk: Talk, broker: Broker) -> None:
    """transaction.partition.verification.enable=false takes what the producer says."""
    object.__setattr__(broker.settings.transactions, "transaction_partition_verification_enable", False)
    producer = RawProducer(talk, uses_v2=False)
    assert await producer.initialize() == 0
    assert await producer.write(b"x") == 0


async def test_markers_of_another_coordinator(talk: Talk, broker: Broker) -> None:
    """WriteTxnMarkers ends transactions partition by partition; 3 where there is no such partition."""
    producer = await begun(talk, uses_v2=False, partitions=(0,))
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        transaction_result=True,
        topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0, 9])],
        coordinator_epoch=0,
    )
    for version in (1, 2):
        (result,) = (await talk.ask(WriteTxnMarkersRequest(markers=[marker]), version)).markers
        (topic,) = result.topics
        assert [(each.partition_index, each.error_code) for each in topic.partitions] == [(0, 0), (9, 3)]
    assert committed_values(broker) == [b"0"]


async def test_a_partition_named_a_thousand_times_got_as_many_markers(talk: Talk, broker: Broker) -> None:
    """One request wrote megabytes and took the loop's time for seconds; Kafka writes one marker as well."""
    before = broker.logs.logs[TopicPartition("t", 0)].log_end_offset
    topic = WritableTxnMarkerTopic(name="t", partition_indexes=[0, 9] * 500)
    marker = WritableTxnMarker(
        producer_id=7, producer_epoch=0, transaction_result=True, topics=[topic, topic]
    )
    (result,) = (await talk.ask(WriteTxnMarkersRequest(markers=[marker]), 1)).markers
    told = [(each.partition_index, each.error_code) for each in result.topics[0].partitions]
    assert told == [(0, 0), (9, 3)]
    assert broker.logs.logs[TopicPartition("t", 0)].log_end_offset == before + 1


async def test_a_topic_that_was_deleted_meanwhile(talk: Talk, broker: Broker) -> None:
    """Its partitions need no marker; the others get theirs."""
    broker.topics.create("u", 1)
    producer = await begun(talk, uses_v2=True, partitions=(0,))
    assert await producer.write(b"x", topic="u") == 0
    topic = broker.topics.get("u")
    assert topic is not None
    broker.topics.delete(topic)
    assert await producer.end() == 0
    assert state(broker) is S.COMPLETE_COMMIT
    assert committed_values(broker) == [b"0"]


async def test_an_id_outlived_the_topic_that_held_it(talk: Talk, broker: Broker) -> None:
    """A stranger has made it with fewer partitions than it has by default; ids were looked for in those."""
    broker.topics.create(TRANSACTION_STATE, 1)
    for number in range(20):
        await RawProducer(talk, f"id-{number}").initialize()
    assert len(broker.transactions.states) == 20
    topic = broker.topics.get(TRANSACTION_STATE)
    assert topic is not None
    broker.topics.delete(topic)
    assert not broker.transactions.states


async def test_fetches_are_woken_by_the_end(talk: Talk, broker: Broker, autojump_clock: MockClock) -> None:
    """Fetches that wait for bytes are woken by the marker's."""
    heard: list[TopicPartition] = []
    broker.parking.ended_transaction = lambda where, _: heard.append(where)  # type: ignore[method-assign]
    producer = await begun(talk, uses_v2=True)
    assert await producer.end() == 0
    assert heard == [TopicPartition("t", 0), TopicPartition("t", 1)]
