"""One topic of many partitions is made, extended and deleted in steps, and is whole for whoever looks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from support.broker.broker_talk import Talk
from support.broker.loop_watch import counts_of_steps

from splashdam.embedded_broker.broker import Broker
from splashdam.model.broker_errors import ErrorCode
from splashdam.net.memory import MemoryNetwork
from splashdam.storage.files.memory import Fault, MemoryFiles
from splashdam.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from splashdam.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from splashdam.wire.messages.delete_topics import DeleteTopicsRequest
from splashdam.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

COUNT = 300
CREATION = CreateTopicsRequest(
    topics=[CreatableTopic(name="large", num_partitions=COUNT, replication_factor=1)], timeout_ms=1000
)
DELETION = DeleteTopicsRequest(topic_names=["large"], timeout_ms=1000)


def extension(count: int) -> CreatePartitionsRequest:
    topic = CreatePartitionsTopic(name="large", count=count, assignments=None)
    return CreatePartitionsRequest(topics=[topic], timeout_ms=1000)


def partitions(broker: Broker) -> int:
    topic = broker.topics.get("large")
    return 0 if topic is None else len(topic.partitions)


@pytest.fixture
async def other(broker: Broker, network: MemoryNetwork) -> AsyncIterator[Talk]:
    """Another connection."""
    async with await network.connect("broker", 9092) as stream:
        yield Talk(stream)


@pytest.fixture
def steps(files: MemoryFiles, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Directories made and removed in each step of a task that did any."""

    def counted(name: str) -> None:
        method = getattr(files, name)

        def act(path: str) -> Any:
            counts[-1] += "large" in path  # not where those above it are looked at
            return method(path)

        monkeypatch.setattr(files, name, act)

    counted("make_directory")
    counted("remove_tree")
    with counts_of_steps() as counts:
        yield counts


async def test_no_step_makes_or_removes_many(talk: Talk, broker: Broker, steps: list[int]) -> None:
    """5,000 partitions kept the loop 0.7 s when they were made, and 0.4 s when they went."""
    answer = await talk.ask(CREATION, 7)
    assert answer.topics[0].error_code == 0
    topic = broker.topics.get("large")
    assert topic is not None
    assert (topic.topic_id, partitions(broker)) == (answer.topics[0].topic_id, COUNT)
    assert sum(steps) == COUNT
    grown = await talk.ask(extension(2 * COUNT), 3)
    assert grown.results[0].error_code == 0
    assert partitions(broker) == 2 * COUNT
    assert sum(steps) == 2 * COUNT
    gone = await talk.ask(DELETION, 5)
    assert gone.responses[0].error_code == 0
    assert sum(steps) == 4 * COUNT
    assert max(steps) <= 36
    assert not broker.logs.removals.has_unfinished_work


async def test_others_do_not_see_it_before_it_is_whole(talk: Talk, other: Talk, broker: Broker) -> None:
    """It cannot be found, and is not made by whoever looks for it; who creates it, too, waits."""
    await talk.send(CREATION, 7)
    while not broker.topics.is_busy("large"):
        await trio.lowlevel.checkpoint()
    found = await other.ask(MetadataRequest(topics=[MetadataRequestTopic(name="large")]), 9)
    gone = await other.ask(DELETION, 5)
    assert broker.topics.is_busy("large")
    assert found.topics[0].partitions == []
    assert found.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert gone.responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    made = await other.ask(CREATION, 7)
    assert made.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert partitions(broker) == COUNT
    assert (await talk.answer()).topics[0].error_code == 0
    assert partitions(broker) == COUNT


async def test_one_extension_after_the_other(talk: Talk, other: Talk, broker: Broker) -> None:
    """The second one finds what the first one has made; in between all see what was there before."""
    broker.topics.create("large", 2)
    await talk.send(extension(COUNT), 3)
    await other.send(extension(COUNT), 3)
    seen = set()
    while broker.topics.is_busy("large") or partitions(broker) == 2:
        seen.add(partitions(broker))
        await trio.lowlevel.checkpoint()
    codes = {(await each.answer()).results[0].error_code for each in (talk, other)}
    assert codes == {0, ErrorCode.INVALID_PARTITIONS}
    assert seen == {2}
    assert partitions(broker) == COUNT


async def test_a_topic_is_deleted_while_it_grows(
    talk: Talk, other: Talk, broker: Broker, files: MemoryFiles, autojump_clock: Any
) -> None:
    """Its prepared partitions are removed."""
    broker.topics.create("large", 2)
    await talk.send(extension(COUNT), 3)
    while not broker.topics.is_busy("large"):
        await trio.lowlevel.checkpoint()
    assert (await other.ask(DELETION, 5)).responses[0].error_code == 0
    assert (await talk.answer()).results[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await trio.sleep(5)
    assert not [name for name, _ in files.list_directory("/data") if name.startswith("large")]
    assert not broker.logs.removals.has_unfinished_work


async def test_a_client_that_leaves_meanwhile(talk: Talk, broker: Broker) -> None:
    """Its topic is made to the end, as by Kafka."""
    await talk.send(CREATION, 7)
    while not broker.topics.is_busy("large"):
        await trio.lowlevel.checkpoint()
    await talk.stream.aclose()
    while broker.topics.is_busy("large"):
        await trio.lowlevel.checkpoint()
    assert partitions(broker) == COUNT


async def test_the_disk_refuses_some_of_it(
    talk: Talk, broker: Broker, files: MemoryFiles, autojump_clock: Any
) -> None:
    """The topic is not made, nothing of it stays, and the next try succeeds."""
    files.inject(Fault(28, after=1500, times=1))
    answer = await talk.ask(CREATION, 7)
    assert answer.topics[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    await trio.sleep(5)
    assert not [name for name, _ in files.list_directory("/data") if name.startswith("large")]
    assert (await talk.ask(CREATION, 7)).topics[0].error_code == 0
    assert partitions(broker) == COUNT
