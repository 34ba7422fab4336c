"""DescribeLogDirs, AlterReplicaLogDirs, and what clients hear of a directory that fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from support.broker.broker_talk import Talk, batch, fetch_request, fetched, produce, records_of
from support.storage.failing_directory import FailingDirectory
from trio.testing import MockClock

from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.embedded_broker.groups.offset_records import CommittedOffset, NewOffset
from splashdam.model.broker_errors import CoordinatorNotAvailableError, KafkaStorageError
from splashdam.model.values import TopicPartition
from splashdam.net.memory import MemoryNetwork
from splashdam.storage.files.memory import MemoryFiles
from splashdam.testing.clock import VirtualClock
from splashdam.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from splashdam.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)


@pytest.fixture
def files() -> FailingDirectory:
    """The broker's disks."""
    return FailingDirectory()


@pytest.fixture
async def broker(
    files: FailingDirectory, network: MemoryNetwork, autojump_clock: MockClock
) -> AsyncIterator[Broker]:
    """A broker with two directories and a topic of four partitions."""
    clock = VirtualClock(autojump_clock)
    async with open_broker(
        "/a", host="broker", port=9092, listen=network.listen, clock=clock, files=files, log_dirs="/a, /b"
    ) as opened:
        opened.topics.create("t", 4)
        yield opened


def placed(answer: DescribeLogDirsResponse) -> dict[str, list[tuple[int, bool]]]:
    return {
        result.log_dir: [
            (found.partition_index, found.is_future_key)
            for topic in result.topics
            for found in topic.partitions
            if topic.name == "t"
        ]
        for result in answer.results
    }


async def move(talk: Talk, path: str, *numbers: int, topic: str = "t", version: int = 2) -> list[int]:
    asked = AlterReplicaLogDirTopic(name=topic, partitions=list(numbers))
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[asked])])
    (result,) = (await talk.ask(request, version)).results
    assert result.topic_name == topic
    assert [each.partition_index for each in result.partitions] == list(numbers)
    return [each.error_code for each in result.partitions]


@pytest.mark.parametrize("version", range(1, 6))
async def test_directories_are_described(talk: Talk, broker: Broker, version: int) -> None:
    """All of them, with what was asked for; the file system's size from version 4 on."""
    await produce(talk, "t", batch(b"a"), partition=1)
    answer = await talk.ask(DescribeLogDirsRequest(topics=None), version)
    assert placed(answer) == {"/a": [(0, False), (2, False)], "/b": [(1, False), (3, False)]}
    found = answer.results[1].topics[0].partitions[0]
    assert (found.partition_size, found.offset_lag) == (len(batch(b"a")), 0)
    for result in answer.results:
        assert (result.error_code, result.is_cordoned) == (0, False)
        assert (0 < result.usable_bytes <= result.total_bytes) == (version >= 4)
    some = [
        DescribableLogDirTopic(topic="t", partitions=[3, 9]),
        DescribableLogDirTopic(topic="x", partitions=[0]),
    ]
    answer = await talk.ask(DescribeLogDirsRequest(topics=some), version)
    assert placed(answer) == {"/a": [], "/b": [(3, False)]}


@pytest.mark.parametrize("version", [1, 2])
async def test_a_partition_moves(talk: Talk, broker: Broker, autojump_clock: MockClock, version: int) -> None:
    """Until it is there it is seen in both; what it holds stays readable all the time."""
    await produce(talk, "t", batch(b"a", b"b"), partition=0)
    assert await move(talk, "/b", 0, 1, version=version) == [0, 0]
    answer = await talk.ask(DescribeLogDirsRequest(topics=None), 4)
    assert placed(answer) == {"/a": [(0, False), (2, False)], "/b": [(1, False), (3, False), (0, True)]}
    assert answer.results[1].topics[-1].partitions[-1].offset_lag == 2
    await trio.sleep(1)
    answer = await talk.ask(DescribeLogDirsRequest(topics=None), 4)
    assert placed(answer) == {"/a": [(2, False)], "/b": [(0, False), (1, False), (3, False)]}
    assert (await produce(talk, "t", batch(b"c"), partition=0)).base_offset == 2
    (part,) = fetched(await talk.ask(fetch_request("t", 0), 12))
    assert [record.value for record in records_of(part.records)] == [b"a", b"b", b"c"]


async def test_moves_that_cannot_be(talk: Talk, broker: Broker) -> None:
    """57 for a path that is no directory of the broker, 3 for no such partition, 17 for a name too long."""
    assert await move(talk, "/c", 0) == [57]
    assert await move(talk, "/b", 9) == [3]
    assert await move(talk, "/b", 0, topic="x" * 220) == [17]


async def test_a_directory_fails(
    talk: Talk,
    network: MemoryNetwork,
    broker: Broker,
    files: FailingDirectory,
    autojump_clock: MockClock,
) -> None:
    """56 for its partitions, at once for parked requests; the broker goes on with the others."""
    waiting = Talk(await network.connect("broker", 9092))
    await waiting.send(fetch_request("t", 0, partitions=[3], min_bytes=1, max_wait_ms=60_000), 12)
    await trio.testing.wait_all_tasks_blocked()
    files.broken = "/b"
    before = trio.current_time()
    assert (await produce(talk, "t", batch(b"a"), partition=1)).error_code == 56
    assert fetched(await waiting.answer())[0].error_code == 56
    assert trio.current_time() == before
    for partition, code in ((0, 0), (1, 56), (2, 0), (3, 56)):
        assert (await produce(talk, "t", batch(b"a"), partition=partition)).error_code == code
    for version, code in ((5, 6), (6, 56)):
        (part,) = fetched(await talk.ask(fetch_request("t", 0, partitions=[1]), version))
        assert part.error_code == code
    answer = await talk.ask(DescribeLogDirsRequest(topics=None), 4)
    assert [(each.log_dir, each.error_code, len(each.topics)) for each in answer.results] == [
        ("/a", 0, 1),
        ("/b", 56, 0),
    ]
    assert await move(talk, "/a", 0, 1) == [56, 56]
    await trio.sleep(300)
    assert (await produce(talk, "t", batch(b"a"), partition=2)).error_code == 0


async def test_the_home_fails(
    files: FailingDirectory, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """Then the broker ends, and says why."""

    async def run() -> None:
        async with open_broker(
            "/a", host="b", port=1, listen=network.listen, files=files, log_dirs="/a,/b"
        ) as broker:
            broker.topics.create("t", 2)
            talk = Talk(await network.connect("b", 1))
            files.broken = "/a"
            assert (await produce(talk, "t", batch(b"a"))).error_code == 56
            await trio.sleep(60)

    with pytest.raises(KafkaStorageError, match="/a"):
        await run()


async def test_what_is_coordinated_in_a_failed_directory_is_not_forgotten(autojump_clock: MockClock) -> None:
    """A broker that began without it took its groups for new ones: consumers began anew, without an error."""
    files, clock = MemoryFiles(), VirtualClock(autojump_clock)
    names, place = [f"name-{number}" for number in range(12)], TopicPartition("t", 0)
    options: dict[str, Any] = {"log_dirs": "/a,/b", "offsets_topic_num_partitions": 4}
    options["transaction_state_log_num_partitions"] = 4
    async with open_broker("/a", port=None, clock=clock, files=files, **options) as broker:
        broker.topics.create("t")
        for name in names:
            broker.offsets.commit(name, {place: NewOffset.of(place, CommittedOffset(5))})
            broker.transactions.initialize(name, 1000)
    identity = files.read_bytes("/b/meta.properties")
    assert identity is not None
    files.write_atomic("/b/meta.properties", identity.replace(b"node.id=", b"node.id=9"))
    lost = Counter[str]()
    async with open_broker("/a", port=None, clock=clock, files=files, **options) as broker:
        for name in names:
            try:
                assert broker.groups.find(name) is not None
            except CoordinatorNotAvailableError:
                lost["groups"] += 1
            try:
                broker.transactions.check_id(name)
                assert broker.transactions.get(name) is not None
            except CoordinatorNotAvailableError:
                lost["transactional ids"] += 1
    assert 0 < lost["groups"] < len(names)
    assert 0 < lost["transactional ids"] < len(names)


async def test_transactions_of_a_coordinator_in_a_failed_directory_were_aborted(
    autojump_clock: MockClock,
) -> None:
    """A broker that began without it took them for hanging ones; perhaps their producers had committed."""
    files, clock = MemoryFiles(), VirtualClock(autojump_clock)
    names = [f"name-{number}" for number in range(12)]
    options: dict[str, Any] = {"log_dirs": "/a,/b", "transaction_state_log_num_partitions": 4}
    async with open_broker("/a", port=None, clock=clock, files=files, **options) as broker:
        broker.topics.create("t", 2)
        (place,) = (tp for tp in broker.logs.logs if tp.topic == "t" and broker.logs.root_of(tp) == "/a")
        for name in names:
            producer_id, epoch = broker.transactions.initialize(name, 60_000)
            broker.transactions.add_partitions(name, producer_id, epoch, [place])
            records = batch(
                b"v", producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True
            )
            broker.logs.logs[place].append_as_leader(records, now_ms=clock.wall_ms())
    identity = files.read_bytes("/b/meta.properties")
    assert identity is not None
    files.write_atomic("/b/meta.properties", identity.replace(b"node.id=", b"node.id=9"))
    async with open_broker("/a", port=None, clock=clock, files=files, **options) as broker:
        assert 0 < len(broker.transactions.states) < len(names)
        first_offsets = [each.transaction_first_offset for each in broker.logs.logs[place].producers]
        assert sorted(first_offsets) == list(range(len(names)))
