"""CreateTopics and DeleteTopics of many: a few at a time, with one sync, and others between them."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from support.broker.broker_talk import Talk
from support.broker.loop_watch import counts_of_steps
from support.running.patches import guard, perhaps

from splashdam.embedded_broker.broker import Broker
from splashdam.embedded_broker.controller.state import Resource
from splashdam.model.broker_errors import ErrorCode
from splashdam.storage.directories import checkpoints
from splashdam.storage.directories.checkpoints import RootCheckpoints
from splashdam.storage.files.memory import Fault, MemoryFiles
from splashdam.storage.log import Log
from splashdam.storage.manager import deletions
from splashdam.storage.manager.log_manager import LogManager
from splashdam.storage.manager.topic_registry import TopicRegistry
from splashdam.wire.messages.api_versions import ApiVersionsRequest
from splashdam.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from splashdam.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from splashdam.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from splashdam.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

NAMES = [f"t{number}" for number in range(100)]


def creation(names: list[str], partitions: int = 3, *, validate_only: bool = False) -> CreateTopicsRequest:
    topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    return CreateTopicsRequest(topics=topics, timeout_ms=1000, validate_only=validate_only)


@pytest.fixture
async def changed_in_steps(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[int]]:
    """How many partitions came or went in each step of a task that changed the topics at all."""
    make, abandon = LogManager.make_log, LogManager.abandon_logs

    def made(manager: LogManager, *given: Any) -> Log:
        steps[-1] += 1
        return make(manager, *given)

    def abandoned(manager: LogManager, given: Any) -> None:
        before = len(manager.logs)
        abandon(manager, given)
        steps[-1] += before - len(manager.logs)

    monkeypatch.setattr(LogManager, "make_log", perhaps(made, because="a test may delete alone"))
    monkeypatch.setattr(LogManager, "abandon_logs", perhaps(abandoned, because="a test may create alone"))
    with counts_of_steps() as steps:
        yield steps


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many changes of the topics came with each turn of the disk."""
    changes: list[int] = []
    keep = TopicRegistry._keep

    def counted(registry: TopicRegistry, *given: Any) -> None:
        changes.append(len(given))
        keep(registry, *given)

    monkeypatch.setattr(TopicRegistry, "_keep", counted)
    return changes


async def test_each_of_many_topics_had_its_own_turn_of_the_disk(
    talk: Talk, broker: Broker, changed_in_steps: list[int], kept: list[int]
) -> None:
    """Eight topics, whatever their partitions, had one turn of the loop."""
    answer = await talk.ask(creation(NAMES), 7)
    assert [(each.name, each.error_code) for each in answer.topics] == [(name, 0) for name in NAMES]
    for each in answer.topics:
        topic = broker.topics.get(each.name)
        assert topic is not None
        assert (each.topic_id, each.num_partitions) == (topic.topic_id, 3)
    assert kept == [4] * 25
    assert sum(changed_in_steps) == 300
    assert max(changed_in_steps) == 12
    changed_in_steps[:] = [0]
    answer = await talk.ask(creation(["large", "larger", "small"], 50), 7)
    assert max(changed_in_steps) == 50


async def test_many_topics_grew_whatever_it_took(
    talk: Talk, broker: Broker, changed_in_steps: list[int]
) -> None:
    """Eight of them in a turn, with however many partitions."""
    await talk.ask(creation(NAMES[:16], 1), 7)
    changed_in_steps[:] = [0]
    growing = [CreatePartitionsTopic(name=name, count=13, assignments=None) for name in NAMES[:16]]
    answer = await talk.ask(CreatePartitionsRequest(topics=growing, timeout_ms=1000), 3)
    assert {each.error_code for each in answer.results} == {0}
    assert (sum(changed_in_steps), max(changed_in_steps)) == (16 * 12, 12)


async def test_many_topics_went_one_by_one(
    talk: Talk,
    broker: Broker,
    changed_in_steps: list[int],
    kept: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """300 of them: 13 s, for the most part in looking at all there is, once for each."""
    await talk.ask(creation([*NAMES, "other"]), 7)
    broker.logs.checkpoints.write_recovery_points(broker.logs.logs)
    monkeypatch.setattr(deletions, "find_partitions", guard("the whole directory is looked at"))
    monkeypatch.setattr(checkpoints, "parse_entry", guard("a checkpoint is read"))
    forgotten: list[int] = []
    forget = RootCheckpoints.forget
    monkeypatch.setattr(
        RootCheckpoints, "forget", lambda self, topics: (forgotten.append(len(topics)), forget(self, topics))
    )
    changed_in_steps[:] = [0]
    kept.clear()
    answer = await talk.ask(DeleteTopicsRequest(topic_names=NAMES, timeout_ms=1000), 5)
    assert [(each.name, each.error_code) for each in answer.responses] == [(name, 0) for name in NAMES]
    assert [topic.name for topic in broker.topics.all()] == ["other"]
    assert sum(changed_in_steps) == 300
    assert max(changed_in_steps) == 12
    assert len(kept) <= 25 + len(forgotten)
    assert sum(forgotten) == len(NAMES)
    assert len(forgotten) <= 2  # a housekeeping may come between
    assert not broker.logs.registry.has_unfinished_work


async def test_one_that_is_refused_keeps_none_of_its_group_back(talk: Talk, broker: Broker) -> None:
    """Two that collide with each other are found only when all are to be made."""
    answer = await talk.ask(creation(["a", "b.c", "b_c", "d", "", "a.e"], 1), 7)
    codes = {each.name: each.error_code for each in answer.topics}
    invalid = ErrorCode.INVALID_TOPIC_EXCEPTION
    assert codes == {"a": 0, "b.c": 0, "b_c": invalid, "d": 0, "": invalid, "a.e": 0}
    assert [each.name for each in broker.topics.all()] == ["a", "a.e", "b.c", "d"]
    ids = {each.name: each.topic_id for each in answer.topics if not each.error_code}
    assert ids == {each.name: each.topic_id for each in broker.topics.all()}
    answer = await talk.ask(creation(["x.y", "x_y"], 1, validate_only=True), 7)
    assert [each.error_code for each in answer.topics] == [0, 0]
    assert len(broker.topics.all()) == 4


async def test_the_disk_refuses_one_of_a_group(talk: Talk, broker: Broker, files: MemoryFiles) -> None:
    """The others are made by themselves; all are told as it is."""
    for operation in range(0, 120, 7):
        given = [f"{operation}-{name}" for name in ("a", "b", "c")]
        files.inject(Fault(errno.ENOSPC, after=operation, times=1))
        answer = await talk.ask(creation(given), 7)
        files.heal()
        for each in answer.topics:
            topic = broker.topics.get(each.name)
            assert each.error_code == (0 if topic is not None else ErrorCode.KAFKA_STORAGE_ERROR)
            assert topic is None or topic.topic_id == each.topic_id


async def test_a_topic_is_named_by_its_name_and_by_its_id(talk: Talk, broker: Broker) -> None:
    """It goes once: the second one does not find it any more."""
    a, b = broker.topics.create("a"), broker.topics.create("b")
    topics = [
        DeleteTopicState(name="a"),
        DeleteTopicState(name=None, topic_id=a.topic_id),
        DeleteTopicState(name=None, topic_id=b.topic_id),
        DeleteTopicState(name="b"),
    ]
    answer = await talk.ask(DeleteTopicsRequest(topics=topics, timeout_ms=1000), 6)
    assert [each.error_code for each in answer.responses] == [
        0,
        ErrorCode.UNKNOWN_TOPIC_ID,
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert broker.topics.all() == []


async def test_the_disk_refuses_a_group_of_deletions(talk: Talk, broker: Broker, files: MemoryFiles) -> None:
    """Those that are refused are there, for the controller, too; the others are not."""
    for operation in range(0, 30, 2):
        given = [f"{operation}-{name}" for name in ("a", "b")]
        await talk.ask(creation(given), 7)
        files.inject(Fault(errno.EIO, after=operation, times=1))
        answer = await talk.ask(DeleteTopicsRequest(topic_names=given, timeout_ms=1000), 5)
        files.heal()
        for each in answer.responses:
            assert each.name is not None
            assert (each.error_code != 0) == (broker.topics.get(each.name) is not None)
        assert set(broker.controller.state.topics) == {topic.name for topic in broker.topics.all()}


async def test_a_client_that_leaves_while_its_topics_are_deleted(
    talk: Talk, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names of those that are gone are free all the same."""
    await talk.ask(creation(NAMES), 7)
    freed: list[int] = []
    free = LogManager.free_names
    monkeypatch.setattr(LogManager, "free_names", lambda self: (freed.append(len(self.topics)), free(self)))
    await talk.send(DeleteTopicsRequest(topic_names=NAMES, timeout_ms=1000), 5)
    await talk.stream.aclose()
    with trio.fail_after(300):
        while not freed:
            await trio.lowlevel.checkpoint()
    assert not broker.logs.registry.has_unfinished_work


async def test_missing_topics_are_created_by_their_partitions(
    talk: Talk, broker: Broker, changed_in_steps: list[int]
) -> None:
    """Sixteen of them were made at once, however many partitions a topic has."""
    await talk.ask(ApiVersionsRequest(), 0)
    broker.controller.put_resources({Resource("broker", ""): {"num.partitions": "5"}})
    partitions = broker.settings.num_partitions
    assert partitions == 5
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in NAMES])
    answer = await talk.ask(request, 9)
    assert {each.error_code for each in answer.topics} == {0}
    assert sum(changed_in_steps) == len(NAMES) * partitions
    assert max(changed_in_steps) <= 24
