"""Offsets of a group as part of a transaction (KIP-447), and who coordinates what."""

from __future__ import annotations

from typing import Any

import pytest
from kafka import ConsumerGroupMetadata as TheirGroup
from kafka.structs import OffsetAndMetadata as TheirOffset
from kafka.structs import TopicPartition as TheirPartition
from support.scripted.cluster import Trouble
from trio.testing import MockClock

from splashdam.model.transactions import ConsumerGroupMetadata, OffsetAndMetadata
from splashdam.model.values import TopicPartition
from splashdam.wire.messages.end_txn import EndTxnRequest
from splashdam.wire.messages.find_coordinator import FindCoordinatorRequest
from splashdam.wire.messages.txn_offset_commit import TxnOffsetCommitRequest


@pytest.mark.parametrize(
    ("offsets", "group"),
    [
        ({TopicPartition("in", 0): OffsetAndMetadata(5, "m", 3)}, ConsumerGroupMetadata("g", 4, "me", "i")),
        ({TheirPartition("in", 0): TheirOffset(5, "m", 3)}, TheirGroup("g", 4, "me", "i")),
        ({("in", 0): (5, "m", 3)}, TheirGroup("g", 4, "me", "i")),
    ],
)
async def test_offsets_carry_the_member(
    autojump_clock: MockClock, cluster: Any, transactional: Any, offsets: Any, group: Any
) -> None:
    """KIP-447, with our values, kafka-python's and tuples."""
    async with transactional() as producer:
        await producer.init_transactions()
        async with producer.transaction():
            await producer.send_offsets_to_transaction(offsets, group)
            await producer.send_offsets_to_transaction({}, group)
    (request,) = cluster.scripted.requests(TxnOffsetCommitRequest)
    (partition,) = request.topics[0].partitions
    member = (
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
    )
    assert member == ("g", 4, "me", "i")
    assert (partition.committed_offset, partition.committed_leader_epoch) == (5, 3)
    assert partition.committed_metadata == "m"
    assert cluster.scripted.coordinator.offsets == {("g", TopicPartition("in", 0)): 5}


@pytest.mark.parametrize(
    ("offsets", "group", "words"),
    [
        ([("in", 0)], "g", "offsets must be a dict"),
        ({"in": 3}, "g", "given by TopicPartition"),
        ({"t": 3}, "g", "given by TopicPartition, not by 't'"),
        ({("in", 2**31): 3}, "g", "no partition 2147483648"),
        ({("in", 0): 2**63}, "g", "does not fit 64 bits"),
        ({("in", 0): (3, "é" * 16384)}, "g", "takes 32768 bytes, and the protocol has room for 32767"),
        ({("in", 0): (3, b"m")}, "g", "metadata of .* must be str, not bytes"),
        ({("in", -1): 3}, "g", "no partition -1"),
        ({("in", 0): "3"}, "g", "must be an OffsetAndMetadata or a number"),
        ({("in", 0): -3}, "g", "is negative"),
        ({("in", 0): 3}, "", "names no group"),
        ({("in", 0): 3}, None, "ConsumerGroupMetadata or the name"),
    ],
)
async def test_bad_offsets_change_nothing(
    autojump_clock: MockClock, cluster: Any, transactional: Any, offsets: Any, group: Any, *, words: str
) -> None:
    """Said before anything is sent."""
    async with transactional() as producer:
        await producer.init_transactions()
        async with producer.transaction():
            with pytest.raises((TypeError, ValueError), match=words):
                await producer.send_offsets_to_transaction(offsets, group)
    assert not cluster.scripted.requests(EndTxnRequest)


async def test_group_and_transaction_have_their_own_coordinators(
    autojump_clock: MockClock, cluster: Any, transactional: Any
) -> None:
    """A coordinator that moved is found again: 16, and all goes on."""
    async with transactional() as producer:
        await producer.init_transactions()
        cluster.scripted.coordinator.script[EndTxnRequest].append(Trouble(code=16))
        cluster.scripted.coordinator.script[TxnOffsetCommitRequest].append(Trouble(code=15))
        async with producer.transaction():
            await producer.send_offsets_to_transaction({("in", 0): 1}, "g")
    keys = [
        (each.key_type, each.coordinator_keys) for each in cluster.scripted.requests(FindCoordinatorRequest)
    ]
    assert keys == [(1, ["x"]), (0, ["g"]), (0, ["g"]), (1, ["x"])]
    assert cluster.scripted.coordinator.transactions["x"].ended == [True]
