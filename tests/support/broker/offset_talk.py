"""Requests about committed offsets, in every version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from splashdam.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from splashdam.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from splashdam.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from support.broker.broker_talk import Talk
from support.broker.transaction_talk import RawProducer

FIRST_SEVERAL_GROUPS = 8


async def commit(
    talk: Talk,
    group_id: str,
    offsets: Mapping[int, int],
    version: int = 8,
    *,
    topic: str = "t",
    **fields: Any,
) -> list[int]:
    """Commits offsets of a topic's partitions; the codes. ``metadata`` goes beside each of them."""
    metadata = fields.pop("metadata", "")
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=partition,
            committed_offset=offset,
            committed_leader_epoch=4 if version >= 6 else -1,
            committed_metadata=metadata,
        )
        for partition, offset in offsets.items()
    ]
    topics = [OffsetCommitRequestTopic(name=topic, partitions=partitions)]
    answer = await talk.ask(OffsetCommitRequest(group_id=group_id, topics=topics, **fields), version)
    return _codes(answer, offsets)


async def fetch(
    talk: Talk,
    group_id: str,
    partitions: list[int] | None,
    version: int = 8,
    *,
    topic: str = "t",
    require_stable: bool = False,
) -> list[tuple[Any, ...]]:
    """Asks for partitions of a topic, or for all: partition, offset, leader epoch, metadata, code of each."""
    request = OffsetFetchRequest(require_stable=require_stable)
    if version >= FIRST_SEVERAL_GROUPS:
        wanted = [OffsetFetchRequestTopics(name=topic, partition_indexes=partitions or [])]
        request.groups = [
            OffsetFetchRequestGroup(group_id=group_id, topics=None if partitions is None else wanted)
        ]
        (found,) = (await talk.ask(request, version)).groups
        assert (found.group_id, found.error_code) == (group_id, 0)
        topics: list[Any] = list(found.topics)
    else:
        request.group_id = group_id
        asked = [OffsetFetchRequestTopic(name=topic, partition_indexes=partitions or [])]
        request.topics = None if partitions is None else asked
        answer = await talk.ask(request, version)
        assert answer.error_code == 0
        topics = list(answer.topics)
    assert {each.name for each in topics} <= {topic}
    return sorted(
        (
            each.partition_index,
            each.committed_offset,
            each.committed_leader_epoch,
            each.metadata,
            each.error_code,
        )
        for found in topics
        for each in found.partitions
    )


async def commit_in_transaction(
    producer: RawProducer,
    group_id: str,
    offsets: Mapping[int, int],
    version: int | None = None,
    *,
    topic: str = "t",
    **fields: Any,
) -> list[int]:
    """TxnOffsetCommit of a topic's partitions; the codes."""
    version = (5 if producer.uses_v2 else 3) if version is None else version
    partitions = [
        TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        for partition, offset in offsets.items()
    ]
    request = TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id=group_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)],
    )
    for name, value in fields.items():
        setattr(request, name, value)
    answer = await producer.talk.ask(request, version)
    return _codes(answer, offsets)


def _codes(answer: Any, offsets: Mapping[int, int]) -> list[int]:
    """In the order of the request; Kafka answers unknown partitions first."""
    (topic,) = answer.topics
    codes = {each.partition_index: each.error_code for each in topic.partitions}
    assert len(topic.partitions) == len(offsets)
    return [codes[partition] for partition in offsets]
