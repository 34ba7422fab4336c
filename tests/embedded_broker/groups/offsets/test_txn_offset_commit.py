"""TxnOffsetCommit: offsets that hold when their transaction does, through restarts and time-outs."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from support.broker.broker_talk import Talk
from support.broker.offset_talk import commit, commit_in_transaction, fetch
from support.broker.transaction_talk import RawProducer, committed_values
from trio.testing import MockClock

from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.embedded_broker.topics.internal_topics import InternalTopic
from splashdam.net.memory import MemoryNetwork
from splashdam.storage.files.memory import Fault, MemoryFiles, PowerCutError
from splashdam.storage.topic_names import CONSUMER_OFFSETS
from splashdam.testing.clock import VirtualClock
from splashdam.wire.messages.delete_groups import DeleteGroupsRequest
from splashdam.wire.messages.delete_topics import DeleteTopicsRequest
from splashdam.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

NOTHING = [(0, -1, -1, "", 0)]
UNSTABLE = [(0, -1, -1, "", 88)]


def at(offset: int) -> list[tuple[int, int, int, str, int]]:
    return [(0, offset, -1, "", 0)]


@pytest.fixture
async def broker(broker: Broker) -> Broker:
    """The broker, with a topic of three partitions."""
    broker.topics.create("t", 3)
    return broker


@pytest.fixture
async def producer(talk: Talk, broker: Broker) -> RawProducer:
    """A producer of today, with its id."""
    started = RawProducer(talk)
    assert await started.initialize() == 0
    return started


@pytest.fixture
async def older(talk: Talk, producer: RawProducer) -> RawProducer:
    """A producer of before KIP-890, in a transaction that has the group."""
    started = RawProducer(talk, transactional_id="older", uses_v2=False)
    assert await started.initialize() == 0
    assert await started.add_offsets("g") == 0
    return started


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("version", range(6))
async def test_pending_until_the_marker(
    talk: Talk, producer: RawProducer, older: RawProducer, version: int, is_commit: bool
) -> None:
    """Visible after the commit, gone after the abort; before, 88 for those who want what is stable."""
    writer = producer if version == 5 else older
    assert await commit_in_transaction(writer, "g", {0: 7}, version) == [0]
    assert await fetch(talk, "g", [0]) == NOTHING
    assert await fetch(talk, "g", [0, 1], require_stable=True) == [*UNSTABLE, (1, -1, -1, "", 0)]
    assert await writer.end(is_commit=is_commit) == 0
    for require_stable in (True, False):
        assert await fetch(talk, "g", [0], require_stable=require_stable) == (at(7) if is_commit else NOTHING)


async def test_earlier_offsets_stay_until_the_commit(talk: Talk, producer: RawProducer) -> None:
    """An aborted transaction leaves it; of all offsets the pending ones alone are not stable."""
    assert await commit(talk, "g", {0: 1, 1: 1}, 5) == [0, 0]
    await commit_in_transaction(producer, "g", {0: 9})
    await commit_in_transaction(producer, "g", {0: 8})
    assert await fetch(talk, "g", [0]) == at(1)
    assert await fetch(talk, "g", None, require_stable=True) == [*UNSTABLE, (1, 1, -1, "", 0)]
    assert await producer.end(is_commit=False) == 0
    assert await fetch(talk, "g", [0]) == at(1)
    await commit_in_transaction(producer, "g", {0: 9})
    await commit_in_transaction(producer, "g", {0: 8})
    assert await producer.end() == 0
    assert await fetch(talk, "g", [0]) == at(8)


async def test_a_later_plain_commit_wins(talk: Talk, producer: RawProducer, broker: Broker) -> None:
    """Over one whose marker comes after it: compaction would keep the later record, too."""
    await commit_in_transaction(producer, "g", {0: 5})
    await commit(talk, "g", {0: 6}, 5)
    assert await producer.end() == 0
    assert await fetch(talk, "g", [0]) == at(6)
    broker.groups.load_all()
    assert await fetch(talk, "g", [0]) == at(6)


@pytest.mark.parametrize("deleted", ["topic", "group"])
@pytest.mark.parametrize("was_committed", [True, False])
async def test_a_commit_brings_no_deleted_offset_back(
    talk: Talk, broker: Broker, producer: RawProducer, deleted: str, was_committed: bool
) -> None:
    """As in Kafka a tombstone holds for what is pending, too; a new topic began in its middle."""
    if was_committed:
        await commit(talk, "g", {0: 3})
    await commit_in_transaction(producer, "g", {0: 5})
    if deleted == "topic":
        await talk.ask(DeleteTopicsRequest(topic_names=["t"]), 5)
        broker.topics.create("t", 3)
    else:
        answer = await talk.ask(DeleteGroupsRequest(groups_names=["g"]), 2)
        assert [each.error_code for each in answer.results] == [0]
    assert await fetch(talk, "g", [0], require_stable=True) == NOTHING
    assert await producer.end() == 0
    assert await fetch(talk, "g", [0], require_stable=True) == NOTHING
    broker.groups.load_all()
    assert await fetch(talk, "g", [0], require_stable=True) == NOTHING
    assert broker.groups.find("g") is None


async def test_two_transactions_of_one_group(talk: Talk, producer: RawProducer) -> None:
    """Each is stable by itself, the partition when both are."""
    other = RawProducer(talk, transactional_id="other")
    await other.initialize()
    await commit_in_transaction(producer, "g", {0: 5})
    await commit_in_transaction(other, "g", {0: 6})
    assert await producer.end() == 0
    assert await fetch(talk, "g", [0]) == at(5)
    assert await fetch(talk, "g", [0], require_stable=True) == UNSTABLE
    assert await other.end(is_commit=False) == 0
    assert await fetch(talk, "g", [0], require_stable=True) == at(5)


@pytest.mark.parametrize(("version", "code"), [(0, 48), (3, 48), (4, 120)])
async def test_a_group_that_is_not_in_the_transaction(
    talk: Talk, producer: RawProducer, version: int, code: int
) -> None:
    """AddOffsetsToTxn is missing: 120, or what older producers know; version 5 adds it itself."""
    assert await commit_in_transaction(producer, "g", {0: 1}, version) == [code]
    assert await fetch(talk, "g", [0], require_stable=True) == NOTHING


@pytest.mark.parametrize("version", [3, 5])
async def test_fenced_producers(talk: Talk, older: RawProducer, version: int) -> None:
    """47 for the one before, 49 for an id or a producer that nobody knows."""
    newer = RawProducer(talk, transactional_id="older")
    assert await newer.initialize() in (0, 51)
    assert await newer.initialize() == 0
    assert await commit_in_transaction(older, "g", {0: 1}, version) == [47]
    assert await commit_in_transaction(older, "g", {0: 1}, version, transactional_id="?") == [49]
    assert await commit_in_transaction(older, "g", {0: 1}, version, producer_id=-1) == [49]
    assert await fetch(talk, "g", [0], require_stable=True) == NOTHING


async def test_partitions_and_members_that_are_none(talk: Talk, producer: RawProducer) -> None:
    """3 for a partition, beside others that are kept; 22 and 25 for members, as for OffsetCommit."""
    members = {"generation_id_or_member_epoch": 4, "member_id": "m"}
    assert await commit_in_transaction(producer, "g", {0: 1}, **members) == [22]
    assert await commit_in_transaction(producer, "g", {0: 1, 9: 1}) == [0, 3]
    assert await commit_in_transaction(producer, "g", {9: 1}) == [3]
    assert await commit_in_transaction(producer, "g", {0: 2}, **members) == [25]
    assert await commit_in_transaction(producer, "g", {0: 2}, member_id="m") == [0]
    assert await producer.end() == 0
    assert await fetch(talk, "g", [0]) == at(2)


async def test_topics_by_id(talk: Talk, producer: RawProducer, broker: Broker) -> None:
    """Version 6: 100 for an id that nobody has, 69 for a member of a group that is not there (KIP-1319)."""
    topic = broker.topics.get("t")
    assert topic is not None

    async def codes(topic_id: bytes, **member: Any) -> list[int]:
        partition = TxnOffsetCommitRequestPartition(committed_offset=3, committed_metadata=None)
        request = TxnOffsetCommitRequest(
            transactional_id=producer.transactional_id,
            group_id="g",
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            topics=[TxnOffsetCommitRequestTopic(topic_id=topic_id, partitions=[partition])],
            **member,
        )
        (answer,) = (await talk.ask(request, 6)).topics
        assert answer.topic_id == topic_id
        return [each.error_code for each in answer.partitions]

    assert await codes(topic.topic_id, generation_id_or_member_epoch=4, member_id="m") == [69]
    assert await codes(bytes(range(16))) == [100]
    assert await codes(topic.topic_id) == [0]
    assert await producer.end() == 0
    assert await fetch(talk, "g", [0]) == at(3)


async def test_records_and_offsets_end_together(talk: Talk, producer: RawProducer, broker: Broker) -> None:
    """Consume, transform, produce: one transaction over a topic and the group's offsets."""
    for number, is_commit in enumerate((True, False, True)):
        assert await producer.write(b"%d" % number) == 0
        assert await commit_in_transaction(producer, "g", {0: number + 1}) == [0]
        assert await producer.end(is_commit=is_commit) == 0
    assert committed_values(broker) == [b"0", b"2"]
    assert await fetch(talk, "g", [0], require_stable=True) == at(3)


async def test_a_transaction_that_takes_too_long(
    talk: Talk, broker: Broker, autojump_clock: MockClock
) -> None:
    """The coordinator aborts it, and what it had pending goes."""
    slow = RawProducer(talk)
    assert await slow.initialize(timeout_ms=5_000) == 0
    await commit_in_transaction(slow, "g", {0: 7})
    assert await fetch(talk, "g", [0], require_stable=True) == UNSTABLE
    await trio.sleep(20)
    assert await fetch(talk, "g", [0], require_stable=True) == NOTHING


async def test_a_disk_that_refuses(talk: Talk, producer: RawProducer, files: MemoryFiles) -> None:
    """16, and nothing is pending that the log does not have."""
    assert await commit_in_transaction(producer, "g", {0: 1}) == [0]
    files.inject(Fault(28))
    assert await commit_in_transaction(producer, "g", {0: 2}) == [16]
    assert await producer.end() == 0
    assert await fetch(talk, "g", [0]) == at(1)


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("how", ["stop", "kill", "power cut"])
async def test_pending_ones_survive(
    files: MemoryFiles, autojump_clock: MockClock, how: str, is_commit: bool
) -> None:
    """B29: the transaction goes on after any end of the broker, and its own end is what counts.

    With ``flush.messages`` nothing acknowledged is lost in a power cut.
    """
    network, clock = MemoryNetwork(), VirtualClock(autojump_clock)
    options = {"log_flush_interval_messages": 1, "offsets_topic_num_partitions": 2}
    writer: RawProducer | None = None
    for number in range(2):
        try:
            async with (
                open_broker(
                    "/data", host="b", port=1, listen=network.listen, clock=clock, files=files, **options
                ) as broker,
                await network.connect("b", 1) as stream,
            ):
                talk = Talk(stream)
                if writer is None:
                    broker.topics.create("t")
                    writer = RawProducer(talk)
                    assert await writer.initialize() == 0
                    assert await commit(talk, "g", {0: 1}, 5) == [0]
                    assert await commit_in_transaction(writer, "g", {0: 7}) == [0]
                assert await fetch(talk, "g", [0]) == at(1)
                assert await fetch(talk, "g", [0], require_stable=True) == UNSTABLE
                if number == 1:
                    writer.talk = talk
                    assert await writer.end(is_commit=is_commit) == 0
                    await trio.testing.wait_all_tasks_blocked()
                    assert await fetch(talk, "g", [0], require_stable=True) == at(7 if is_commit else 1)
                elif how != "stop":
                    files.inject(Fault(None))
        except PowerCutError:
            (files.kill if how == "kill" else files.crash)()
            files.heal()


async def test_the_offsets_of_aborted_transactions_are_not_read_again(
    talk: Talk, producer: RawProducer, broker: Broker
) -> None:
    """A load follows the markers; the log has all three."""
    for offset, is_commit in ((1, False), (2, True), (3, False)):
        await commit_in_transaction(producer, "g", {0: offset})
        await producer.end(is_commit=is_commit)
    broker.groups.load_all()
    assert await fetch(talk, "g", [0], require_stable=True) == at(2)
    topic = InternalTopic(CONSUMER_OFFSETS, broker)
    assert len(list(topic.read_all(topic.partition_for("g")))) == 6
