"""Questions to a cluster are asked again while the answer is one that may change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import attrs
import pytest
import trio
from trio.testing import MockClock

from splashdam import EmbeddedBroker
from splashdam.embedded_broker.broker import open_broker
from splashdam.model.broker_errors import BrokerResponseError, UnknownTopicOrPartitionError
from splashdam.model.cluster import ClusterMetadata
from splashdam.model.errors import KafkaConnectionError, KafkaTimeoutError, ProtocolError
from splashdam.model.transactions import OffsetAndMetadata
from splashdam.model.values import TopicPartition
from splashdam.net.addresses import parse_bootstrap_servers
from splashdam.net.admin.groups import (
    commit_offsets,
    committed_offsets,
    delete_offsets,
    describe_group,
    list_groups,
    read_assignment,
)
from splashdam.net.admin.topics import create_topic, delete_records, describe_topic, list_offsets, list_topics
from splashdam.net.clock import SystemClock
from splashdam.net.cluster.cluster_client import ClusterClient, ClusterClientSettings, open_cluster_client
from splashdam.net.cluster.fetch_client import LATEST
from splashdam.net.cluster.metadata_reading import read_cluster
from splashdam.net.connect import TcpConnect
from splashdam.net.memory import MemoryNetwork
from splashdam.storage.files.memory import MemoryFiles
from splashdam.testing.clock import VirtualClock
from splashdam.testing.faults.faults import Faults
from splashdam.wire.messages.metadata import MetadataResponse

WHERE = TopicPartition("t", 0)
FAST = ClusterClientSettings(timeout_ms=60_000, retry_backoff_ms=1)
IMPATIENT = ClusterClientSettings(timeout_ms=500, retry_backoff_ms=1)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """One with two partitions for offsets."""
    with EmbeddedBroker(tmp_path, fsync=False, config={"offsets.topic.num.partitions": "2"}) as running:
        yield running


def asking(
    broker: EmbeddedBroker, settings: ClusterClientSettings = FAST
) -> AbstractAsyncContextManager[ClusterClient]:
    """A client of this broker."""
    return open_cluster_client(
        parse_bootstrap_servers(broker.bootstrap_servers),
        connect=TcpConnect(),
        clock=SystemClock(),
        settings=settings,
    )


async def test_errors_that_pass_are_waited_for(broker: EmbeddedBroker) -> None:
    """A coordinator that loads, a leader that moves, a controller that is another one by now."""
    broker.faults.create_topics(error="NOT_CONTROLLER", times=2)
    broker.faults.offset_commit(error="COORDINATOR_LOAD_IN_PROGRESS", times=2)
    broker.faults.list_offsets(error="NOT_LEADER_OR_FOLLOWER", times=2)
    broker.faults.find_coordinator(error="COORDINATOR_NOT_AVAILABLE", times=2)
    async with asking(broker) as client:
        await create_topic(client, "t", partitions=1)
        await commit_offsets(client, "g", {WHERE: OffsetAndMetadata(3, "note")})
        assert await committed_offsets(client, "g") == {WHERE: OffsetAndMetadata(3, "note")}
        assert await list_offsets(client, [WHERE], LATEST) == {WHERE: 0}
    assert broker.faults.unhit == []


async def test_who_leads_is_asked_again(broker: EmbeddedBroker) -> None:
    """A former leader is not asked again and again: metadata name the new one."""
    async with asking(broker) as client:
        await create_topic(client, "t", partitions=1)
        broker.faults.list_offsets(error="NOT_LEADER_OR_FOLLOWER", times=2)
        requests = broker.requests.start()
        assert await list_offsets(client, [WHERE], LATEST) == {WHERE: 0}
    assert (len(requests.of("metadata")), len(requests.of("list_offsets"))) == (3, 3)


async def test_no_controller_passes(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """While no controller is elected the brokers answer -1, and are asked again."""
    answers = iter((-1, -1))

    def read(answer: MetadataResponse) -> ClusterMetadata:
        found = read_cluster(answer)
        return attrs.evolve(found, controller_id=next(answers, found.controller_id))

    monkeypatch.setattr("splashdam.net.cluster.cluster_client.read_cluster", read)
    async with asking(broker) as client:
        await create_topic(client, "t", partitions=1)
        assert await list_topics(client) == ["t"]


async def test_nobody_listening_was_waited_for() -> None:
    """At the first contact nobody has ever listened there, for all we know: no pause, no second attempt."""
    network, attempts = MemoryNetwork(), list[int]()

    async def connect(host: str, port: int) -> trio.abc.Stream:
        attempts.append(port)
        return await network.connect(host, port)

    client = open_cluster_client([("a", 1), ("b", 2)], connect=connect, clock=SystemClock())
    async with client as asked:
        with pytest.raises(KafkaConnectionError, match=r"no broker can be reached at a:1, b:2: .*refused"):
            await list_topics(asked)
    assert attempts == [1, 2]


async def test_a_broker_that_was_there_is_waited_for(autojump_clock: MockClock) -> None:
    """It may be starting again."""
    network, clock = MemoryNetwork(), VirtualClock(autojump_clock)
    client = open_cluster_client([("b", 1)], connect=network.connect, clock=clock, settings=IMPATIENT)
    async with client as asked:
        async with open_broker(
            "/data", host="b", port=1, listen=network.listen, clock=clock, files=MemoryFiles()
        ):
            assert await list_topics(asked) == []
        began = trio.current_time()
        with pytest.raises(
            KafkaTimeoutError, match=r"the cluster: no success in 500 ms; last: no broker can"
        ):
            await list_topics(asked)
        assert trio.current_time() - began == pytest.approx(0.5, abs=0.01)


async def test_a_connection_that_has_worked_was_questioned_when_it_ended(broker: EmbeddedBroker) -> None:
    """Two requests, two answers, then the broker hung up: there are two connections, no third one asks."""
    made: list[trio.abc.Stream] = []
    tcp = TcpConnect()

    async def connect(host: str, port: int) -> trio.abc.Stream:
        made.append(await tcp(host, port))
        return made[-1]

    addresses = parse_bootstrap_servers(broker.bootstrap_servers)
    async with open_cluster_client(addresses, connect=connect, clock=SystemClock(), settings=FAST) as client:
        assert await list_topics(client) == []
        assert isinstance(made[0], trio.SocketStream)
        await made[0].send_eof()  # the broker hangs up in turn
        connection = next(iter(client._connections._open.values()))
        assert connection.requests_sent == 2
        while not connection.is_closed:
            await trio.lowlevel.checkpoint()
        assert await list_topics(client) == []
    assert len(made) == 2


async def test_time_runs_out(autojump_clock: MockClock) -> None:
    """Then the last error is in the message."""
    network, clock = MemoryNetwork(), VirtualClock(autojump_clock)
    async with open_broker(
        "/data", host="b", port=1, listen=network.listen, clock=clock, files=MemoryFiles()
    ) as running:
        Faults(running.interception).list_groups(error="COORDINATOR_NOT_AVAILABLE")
        client = open_cluster_client([("b", 1)], connect=network.connect, clock=clock, settings=IMPATIENT)
        async with client as asked:
            with pytest.raises(KafkaTimeoutError, match=r"in 500 ms; last: .*CoordinatorNotAvailable"):
                await list_groups(asked)


async def test_what_does_not_exist_is_said_at_once(broker: EmbeddedBroker) -> None:
    """Without waiting for somebody to create it."""
    async with asking(broker) as client:
        with pytest.raises(UnknownTopicOrPartitionError):
            await describe_topic(client, "missing")
        with pytest.raises(UnknownTopicOrPartitionError):
            await delete_records(client, TopicPartition("missing", 0), 1)
        with pytest.raises(UnknownTopicOrPartitionError):
            await list_offsets(client, [TopicPartition("missing", 0)], LATEST)
        assert await describe_group(client, "missing") is None
        with pytest.raises(BrokerResponseError, match="69 GroupIdNotFound"):
            await delete_offsets(client, "missing", [WHERE])


def test_a_members_assignment() -> None:
    """As Kafka's consumers write it; user data behind it are left alone."""
    data = bytes.fromhex("0001 00000002 0001 61 00000002 00000000 00000003 0001 62 00000000 00000001 ff")
    assert read_assignment(data) == (TopicPartition("a", 0), TopicPartition("a", 3))
    assert read_assignment(b"") == ()


@pytest.mark.parametrize(
    "data", [b"\0", b"\0\1\0\0\0\1\0\5ab", bytes.fromhex("0001 00000001 0001 61 7fffffff")]
)
def test_a_members_assignment_that_is_none(data: bytes) -> None:
    """Lengths beyond its end are told, and take no memory."""
    with pytest.raises(ProtocolError, match="cannot be decoded"):
        read_assignment(data)


async def test_a_silent_address_was_waited_for_while_another_one_would_answer(
    autojump_clock: MockClock,
) -> None:
    """It accepts and never answers, which once used the whole time up.

    Later requests do not begin with it.
    """
    network, attempts = MemoryNetwork(), list[str]()
    await network.listen("hole", 1)
    async with open_broker(
        "/data", host="good", port=1, listen=network.listen, files=MemoryFiles()
    ) as running:

        async def connect(host: str, port: int) -> trio.abc.Stream:
            attempts.append(host)
            return await network.connect(host, port)

        client = open_cluster_client(
            [("hole", 1), ("good", 1)], connect=connect, clock=VirtualClock(autojump_clock)
        )
        async with client as asked:
            running.topics.create("t", 1)
            for _ in range(3):
                assert await list_topics(asked) == ["t"]
            assert trio.current_time() == pytest.approx(1, abs=0.1)
    assert attempts == ["hole", "good"]


async def test_addresses_that_are_all_silent_get_more_time(autojump_clock: MockClock) -> None:
    """Twice as much in each round, and each one that is silent is named."""
    network = MemoryNetwork()
    await network.listen("hole", 1)
    await network.listen("pit", 1)
    settings = ClusterClientSettings(timeout_ms=10_000, request_timeout_ms=10_000)
    client = open_cluster_client(
        [("hole", 1), ("pit", 1)],
        connect=network.connect,
        clock=VirtualClock(autojump_clock),
        settings=settings,
    )
    async with client as asked:
        with pytest.raises(
            KafkaTimeoutError, match="hole:1 did not answer ApiVersions within 2000 ms; pit:1"
        ):
            await list_topics(asked)
    assert trio.current_time() == pytest.approx(10, abs=0.1)
