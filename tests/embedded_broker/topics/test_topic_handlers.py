"""CreateTopics and DeleteTopics."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.broker.broker_talk import Talk, batch, create_request, produce

from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.net.memory import MemoryNetwork
from splashdam.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from splashdam.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicState,
)


async def create(talk: Talk, request: CreateTopicsRequest, version: int = 7) -> CreatableTopicResult:
    (result,) = (await talk.ask(request, version)).topics
    return result


async def delete(talk: Talk, name: str | None, topic_id: bytes = bytes(16)) -> DeletableTopicResult:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name, topic_id=topic_id)])
    (result,) = (await talk.ask(request, 6)).responses
    return result


@pytest.mark.parametrize("version", range(2, 8))
async def test_topic_is_created(talk: Talk, broker: Broker, version: int) -> None:
    """Every version creates; from 5 on the answer says what was created (B11: configs are never null)."""
    result = await create(
        talk,
        create_request("t", partitions=3, replication_factor=1, configs={"retention.ms": "1000"}),
        version,
    )
    assert (result.name, result.error_code) == ("t", 0)
    topic = broker.topics.get("t")
    assert topic is not None
    assert topic.partitions == (0, 1, 2)
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        assert result.configs is not None
        configs = {config.name: (config.value, config.config_source) for config in result.configs}
        assert configs["retention.ms"] == ("1000", 1)
        assert configs["segment.bytes"] == (str(1 << 30), 5)
        assert configs["preallocate"] == ("false", 5)
    if version >= 7:
        assert result.topic_id == topic.topic_id


async def test_defaults_are_the_brokers(tmp_path: Path) -> None:
    """-1 partitions takes num.partitions; a setting of the broker is marked as such."""
    network = MemoryNetwork()
    async with open_broker(
        tmp_path, host="b", port=1, listen=network.listen, num_partitions=4, log_segment_bytes=5000
    ):
        result = await create(Talk(await network.connect("b", 1)), create_request("t"))
    assert (result.error_code, result.num_partitions) == (0, 4)
    assert {config.name: config.config_source for config in result.configs or ()}["segment.bytes"] == 4


async def test_validate_only_changes_nothing(talk: Talk, broker: Broker) -> None:
    """B12: it answers as if it had, with an id that nobody has, and refuses what it would refuse."""
    result = await create(talk, create_request("t", partitions=2, validate_only=True))
    assert (result.error_code, result.num_partitions) == (0, 2)
    assert broker.topics.by_id(result.topic_id) is None
    assert broker.topics.all() == []
    broker.topics.create("t")
    assert (await create(talk, create_request("t", validate_only=True))).error_code == 36


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (create_request("a/b"), 17),
        (create_request("t", partitions=0), 37),
        (create_request("t", partitions=-2), 37),
        (create_request("t", partitions=1, replication_factor=2), 38),
        (create_request("t", partitions=1, replication_factor=0), 38),
        (create_request("t", configs={"no.such.config": "1"}), 40),
        (create_request("t", configs={"segment.bytes": "many"}), 40),
        (create_request("t", configs={"segment.bytes": "1"}), 40),
        (create_request("t", configs={"cleanup.policy": "burn"}), 40),
        (create_request("t", configs={"segment.bytes": None}), 40),
    ],
)
async def test_refusals(talk: Talk, broker: Broker, request_: CreateTopicsRequest, code: int) -> None:
    """Each kind of mistake has Kafka's code and a text, and creates nothing."""
    result = await create(talk, request_)
    assert result.error_code == code
    assert result.error_message
    assert broker.topics.all() == []


async def test_nearest_config_is_named(talk: Talk) -> None:
    """A typing error is answered with the right name."""
    result = await create(talk, create_request("t", configs={"retention.mss": "1"}))
    assert "'retention.ms'" in (result.error_message or "")


async def test_existing_topic(talk: Talk, broker: Broker) -> None:
    """36, and the topic stays as it is."""
    topic = broker.topics.create("t")
    assert (await create(talk, create_request("t", partitions=5))).error_code == 36
    assert broker.topics.get("t") == topic


async def test_one_failure_does_not_keep_the_others(talk: Talk) -> None:
    """Each topic has its own result; a name that stands twice in a request is refused once."""
    request = create_request("good")
    for other in ("bad name", "twice", "twice"):
        request.topics += create_request(other).topics
    results = (await talk.ask(request, 7)).topics
    assert {result.name: result.error_code for result in results} == {"good": 0, "bad name": 17, "twice": 42}


def assigned(*brokers: list[int], start: int = 0, partitions: int = -1) -> CreateTopicsRequest:
    return create_request(
        "t",
        partitions=partitions,
        assignments=[
            CreatableReplicaAssignment(partition_index=start + index, broker_ids=ids)
            for index, ids in enumerate(brokers)
        ],
    )


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (assigned([1], [1]), 0),
        (assigned([1], [1], partitions=2), 42),
        (assigned([1], start=1), 39),
        (assigned([2]), 39),
        (assigned([1, 1]), 39),
        (assigned([]), 39),
    ],
)
async def test_assignments(talk: Talk, request_: CreateTopicsRequest, code: int) -> None:
    """Partitions can be assigned to this broker, from 0 without a gap, and to no other."""
    result = await create(talk, request_)
    assert result.error_code == code
    if not code:
        assert result.num_partitions == 2


@pytest.mark.parametrize("version", range(1, 6))
async def test_delete_by_name(talk: Talk, broker: Broker, version: int) -> None:
    """Versions 1 to 5 name topics; a missing one is 3."""
    broker.topics.create("t")
    answer = await talk.ask(DeleteTopicsRequest(topic_names=["t", "missing"]), version)
    assert [(result.name, result.error_code) for result in answer.responses] == [("t", 0), ("missing", 3)]
    assert broker.topics.all() == []


async def test_delete_by_id(talk: Talk, broker: Broker) -> None:
    """B13: version 6 takes ids; an unknown one is 100, name and id together 42."""
    topic = broker.topics.create("t")
    assert (await delete(talk, None, b"?" * 16)).error_code == 100
    assert (await delete(talk, "t", topic.topic_id)).error_code == 42
    result = await delete(talk, None, topic.topic_id)
    assert (result.error_code, result.name, result.topic_id) == (0, "t", topic.topic_id)
    result = await delete(talk, "t")
    assert (result.error_code, result.name) == (3, "t")


async def test_topic_made_again_is_another(talk: Talk, broker: Broker) -> None:
    """B13: it has a new id, no records, and the old id is unknown."""
    topic = broker.topics.create("t")
    await produce(talk, "t", batch(b"x"))
    await delete(talk, "t")
    again = broker.topics.create("t")
    assert again.topic_id != topic.topic_id
    assert broker.topics.by_id(topic.topic_id) is None
    assert (await produce(talk, "t", batch(b"y"))).base_offset == 0


async def test_deletion_can_be_switched_off(tmp_path: Path) -> None:
    """delete.topic.enable=false answers 73, or 42 to versions that do not know it."""
    network = MemoryNetwork()
    async with open_broker(
        tmp_path, host="b", port=1, listen=network.listen, delete_topic_enable=False
    ) as broker:
        broker.topics.create("t")
        talk = Talk(await network.connect("b", 1))
        assert (await delete(talk, "t")).error_code == 73
        answer = await talk.ask(DeleteTopicsRequest(topic_names=["t"]), 2)
        assert answer.responses[0].error_code == 42
        assert broker.topics.get("t") is not None


@pytest.mark.parametrize(
    "counts", [pytest.param([2**31 - 1], id="one topic"), pytest.param([9_000, 1_001], id="several")]
)
async def test_absurd_partition_counts_are_refused_before_any_is_made(
    talk: Talk, broker: Broker, counts: list[int]
) -> None:
    """One request may make 10,000 partitions, as with Kafka; above that every topic gets 44."""
    request = CreateTopicsRequest(topics=[])
    for number, count in enumerate(counts):
        request.topics += create_request(f"t{number}", partitions=count).topics
    assert {result.error_code for result in (await talk.ask(request, 7)).topics} == {44}
    assert broker.topics.all() == []
