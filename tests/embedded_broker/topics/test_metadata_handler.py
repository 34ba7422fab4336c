"""Metadata: where the broker is, which topics there are, and what asking creates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
from support.broker.broker_talk import Talk, create_request
from support.broker.loop_watch import counts_of_steps
from support.running.patches import guard

from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.net.memory import MemoryNetwork
from splashdam.storage.manager.log_manager import LogManager
from splashdam.storage.manager.topic_registry import NewTopic
from splashdam.wire.messages.metadata import MetadataRequest, MetadataRequestTopic


def asking(*names: str | None, topic_id: bytes = bytes(16), **fields: Any) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name, topic_id=topic_id) for name in names], **fields
    )


def not_creating(*names: str) -> MetadataRequest:
    return asking(*names, allow_auto_topic_creation=False)


@pytest.mark.parametrize("version", range(14))
async def test_topic_and_broker_are_described(talk: Talk, broker: Broker, version: int) -> None:
    """Every version names broker, leader, replicas and in-sync replicas."""
    topic = broker.topics.create("t", 2)
    answer = await talk.ask(asking("t"), version)
    assert [(node.node_id, node.host, node.port) for node in answer.brokers] == [(1, "broker", 9092)]
    assert answer.controller_id == (1 if version >= 1 else -1)
    assert answer.cluster_id == (broker.cluster_id if version >= 2 else None)
    (found,) = answer.topics
    assert (found.error_code, found.name) == (0, "t")
    assert found.topic_id == (topic.topic_id if version >= 10 else bytes(16))
    assert [
        (each.partition_index, each.error_code, each.leader_id, each.replica_nodes, each.isr_nodes)
        for each in found.partitions
    ] == [(0, 0, 1, [1], [1]), (1, 0, 1, [1], [1])]


@pytest.mark.parametrize("version", range(4))
async def test_old_versions_create_implicitly(talk: Talk, version: int) -> None:
    """B9: versions 0 to 3 cannot ask for creation, so asking is enough (aiokafka 0.12 relies on it)."""
    (found,) = (await talk.ask(asking("new"), version)).topics
    assert (found.error_code, len(found.partitions)) == (0, 1)


@pytest.mark.parametrize("version", range(4, 14))
async def test_later_versions_create_on_request(talk: Talk, version: int) -> None:
    """B9: from version 4 on the request says whether a missing topic is created."""
    (found,) = (await talk.ask(not_creating("new"), version)).topics
    assert (found.error_code, found.partitions) == (3, [])
    (found,) = (await talk.ask(asking("new"), version)).topics
    assert (found.error_code, len(found.partitions)) == (0, 1)


async def test_created_topic_gets_the_brokers_partitions(tmp_path: Path) -> None:
    """num.partitions counts for topics that are created by asking."""
    network = MemoryNetwork()
    async with open_broker(tmp_path, host="b", port=1, listen=network.listen, num_partitions=3):
        talk = Talk(await network.connect("b", 1))
        (found,) = (await talk.ask(asking("new"), 9)).topics
        assert len(found.partitions) == 3


async def test_creation_can_be_switched_off(tmp_path: Path) -> None:
    """auto.create.topics.enable=false answers 3 in every version."""
    network = MemoryNetwork()
    async with open_broker(
        tmp_path, host="b", port=1, listen=network.listen, auto_create_topics_enable=False
    ) as broker:
        talk = Talk(await network.connect("b", 1))
        for version in (0, 9):
            (found,) = (await talk.ask(asking("new"), version)).topics
            assert found.error_code == 3
        assert broker.topics.all() == []


@pytest.mark.parametrize("name", ["", ".", "..", "with space", "ö", "x" * 250])
async def test_illegal_names_are_reported(talk: Talk, broker: Broker, name: str) -> None:
    """B10: an illegal name is 17, whether it should be created or not."""
    for request in (asking(name), not_creating(name)):
        (found,) = (await talk.ask(request, 9)).topics
        assert (found.error_code, found.name) == (17, name)
    assert broker.topics.all() == []


async def test_names_that_collide_are_refused(talk: Talk) -> None:
    """A topic that differs from another in '.' against '_' alone is not created."""
    await talk.ask(asking("a.b"), 9)
    (found,) = (await talk.ask(asking("a_b"), 9)).topics
    assert found.error_code == 17


async def test_many_missing_topics_cost_one_change_of_the_registry(
    talk: Talk, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Created together; what is illegal or collides is answered as if asked for alone, and a name once."""
    created: list[list[str]] = []
    create_topics = LogManager.create_topics

    def counted(manager: LogManager, wanted: Sequence[NewTopic], *, now_ms: int) -> list[bytes]:
        created.append([new.name for new in wanted])
        return create_topics(manager, wanted, now_ms=now_ms)

    monkeypatch.setattr(LogManager, "create_topics", counted)
    broker.topics.create("there")
    names = ["there", "a.b", "", "a_b", "new", "ö", "new", "newer"]
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    answers = (await talk.ask(request, 9)).topics
    assert [(found.name, found.error_code) for found in answers] == [
        ("there", 0), ("a.b", 0), ("", 17), ("a_b", 17), ("new", 0), ("ö", 17), ("newer", 0),
    ]  # fmt: skip
    assert created[:2] == [["there"], ["a.b", "new", "newer"]]


async def test_missing_topics_are_created_over_many_turns(
    talk: Talk, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """300 of them kept the loop for one turn, and a request may name 50,000."""
    create_topics = LogManager.create_topics

    def counted(manager: LogManager, wanted: Sequence[NewTopic], *, now_ms: int) -> list[bytes]:
        created_in_steps[-1] += len(wanted)
        return create_topics(manager, wanted, now_ms=now_ms)

    monkeypatch.setattr(LogManager, "create_topics", counted)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=f"t{number}") for number in range(300)])
    with counts_of_steps() as created_in_steps:
        answers = (await talk.ask(request, 9)).topics
    assert [(found.name, found.error_code) for found in answers] == [(f"t{n}", 0) for n in range(300)]
    assert sum(created_in_steps) == 300
    assert max(created_in_steps) <= 32


async def test_illegal_names_alone_do_not_touch_the_registry(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are: a client could otherwise have the registry written at every request."""
    monkeypatch.setattr(LogManager, "create_topics", guard("the registry is written"))
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in ("ö", "a b", "..")])
    assert {found.error_code for found in (await talk.ask(request, 9)).topics} == {17}


async def test_all_topics(talk: Talk) -> None:
    """B10: version 0 asks for all topics with an empty list, later versions with null; empty is no topic."""
    for name in ("b", "a"):
        await talk.ask(create_request(name), 5)
    assert [topic.name for topic in (await talk.ask(asking(), 0)).topics] == ["a", "b"]
    assert (await talk.ask(asking(), 1)).topics == []
    assert [topic.name for topic in (await talk.ask(MetadataRequest(topics=None), 1)).topics] == ["a", "b"]


async def test_by_id(talk: Talk, broker: Broker) -> None:
    """A topic can be asked for by id; an unknown id is 100."""
    topic = broker.topics.create("t")
    (found,) = (await talk.ask(asking(None, topic_id=topic.topic_id), 12)).topics
    assert (found.error_code, found.name, found.topic_id) == (0, "t", topic.topic_id)
    (found,) = (await talk.ask(asking(None, topic_id=b"?" * 16), 12)).topics
    assert (found.error_code, found.name, found.topic_id) == (100, None, b"?" * 16)


async def test_null_name_below_version_12(talk: Talk) -> None:
    """Versions 10 and 11 have a field for ids that Kafka refuses to go by."""
    (found,) = (await talk.ask(asking(None, topic_id=b"?" * 16), 10)).topics
    assert (found.error_code, found.name) == (42, "")


async def test_authorized_operations_when_asked(talk: Talk, broker: Broker) -> None:
    """As Kafka without an authorizer: every operation that exists, one bit each, and only if asked."""
    broker.topics.create("t")
    answer = await talk.ask(asking("t"), 8)
    assert answer.cluster_authorized_operations == answer.topics[0].topic_authorized_operations == -(2**31)
    answer = await talk.ask(
        asking("t", include_cluster_authorized_operations=True, include_topic_authorized_operations=True), 8
    )
    assert answer.cluster_authorized_operations == 8096
    assert answer.topics[0].topic_authorized_operations == 3576


async def test_internal_topics_are_marked(talk: Talk) -> None:
    """Clients hide internal topics from patterns."""
    answer = await talk.ask(asking("__consumer_offsets", "t"), 9)
    assert [topic.is_internal for topic in answer.topics] == [True, False]


async def test_tcp_clients_get_the_address_they_reached(tmp_path: Path) -> None:
    """B8: with a wildcard address each client learns the address it came by, and the real port."""
    async with open_broker(tmp_path, host="0.0.0.0") as broker:
        host, port = broker.addresses[0]
        assert host == "0.0.0.0"
        assert port != 0
        assert broker.bootstrap_servers == f"127.0.0.1:{port}"
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            (node,) = (await Talk(stream).ask(asking(), 9)).brokers
            assert (node.host, node.port) == ("127.0.0.1", port)
