"""Racks: how clients learn them, where new replicas go, which replica a client reads (KIP-36, KIP-392)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import confluent_kafka
import kafka
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from support.broker.broker_talk import Talk, fetch_request, records_of
from support.broker.cluster_kit import T0, Cluster, open_cluster
from support.broker.memory_cluster_kit import Kit, talk_to
from trio.testing import MockClock

from splashdam import KafkaProducer
from splashdam.embedded_broker.cluster import ClusterOptions
from splashdam.embedded_broker.configs.broker_settings import RACK_AWARE_SELECTOR, BrokerSettings
from splashdam.embedded_broker.controller.replica_placement import placed
from splashdam.embedded_broker.controller.state import BrokerState, ClusterState
from splashdam.embedded_broker.embedded_cluster import EmbeddedCluster
from splashdam.model.broker_errors import ErrorCode
from splashdam.model.errors import KafkaConfigurationError
from splashdam.net.clock import SystemClock
from splashdam.net.listen import tcp_listen
from splashdam.storage.files.memory import MemoryFiles
from splashdam.storage.manager.topic_registry import NewTopic
from splashdam.wire.messages.describe_cluster import DescribeClusterRequest
from splashdam.wire.messages.fetch import FetchRequest, PartitionData, ReplicaState
from splashdam.wire.messages.metadata import MetadataRequest

RACKS = {1: "a", 2: "b", 3: "c"}

# --- where new replicas go ----------------------------------------------------------------------------------


def brokers(racks: list[str | None], down: Collection[int] = ()) -> ClusterState:
    """Brokers 1, 2, … in these racks."""
    return ClusterState(
        {
            node: BrokerState(node, 1, rack=rack, is_fenced=node in down)
            for node, rack in enumerate(racks, start=1)
        }
    )


@st.composite
def placements(draw: st.DrawFn) -> tuple[ClusterState, int, list[list[int]]]:
    """Brokers, some of them down; a replication factor, and the replicas of some partitions."""
    racks = draw(st.lists(st.sampled_from([None, "a", "b", "c", "d"]), min_size=1, max_size=8))
    nodes = range(1, len(racks) + 1)
    state = brokers(racks, draw(st.sets(st.sampled_from(nodes), max_size=len(racks) - 1)))
    factor = draw(st.integers(1, len(racks)))
    random = Random(draw(st.integers(0, 1000)))
    first = placed(draw(st.integers(1, 20)), factor, state, random)
    more = placed(draw(st.integers(0, 20)), factor, state, random, behind=first)
    return state, factor, [*first, *more]


@given(placements())
def test_replicas_of_a_partition_are_on_as_many_racks_as_there_are(
    placement: tuple[ClusterState, int, list[list[int]]],
) -> None:
    """No broker twice, a leader that is up, and a broker that is down only if its rack has no other."""
    state, factor, partitions = placement
    racks = {each.rack for each in state.brokers.values()}
    for replicas in partitions:
        assert len(set(replicas)) == len(replicas) == factor
        assert not state.brokers[replicas[0]].is_fenced
        assert len({state.rack_of(node) for node in replicas}) == min(factor, len(racks))
        for node in (node for node in replicas if state.brokers[node].is_fenced):
            same = {each.node_id for each in state.brokers.values() if each.rack == state.rack_of(node)}
            assert all(other in replicas or state.brokers[other].is_fenced for other in same)


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 50), st.data())
def test_racks_lead_equally_often(
    racks: int, brokers_each: int, partitions: int, data: st.DataObject
) -> None:
    """Where they are of one size, give or take one partition; and so do brokers where nobody has a rack."""
    names = [f"r{number % racks}" for number in range(racks * brokers_each)]
    factor = data.draw(st.integers(1, len(names)))
    random = Random(data.draw(st.integers(0, 1000)))
    state = brokers([*names])
    leaders = [replicas[0] for replicas in placed(partitions, factor, state, random)]
    assert_even(Counter(names[node - 1] for node in leaders), sorted(set(names)))
    leaders = [replicas[0] for replicas in placed(partitions, factor, brokers([None] * len(names)), random)]
    assert_even(Counter(leaders), list(range(1, len(names) + 1)))


def assert_even(found: Counter[Any], expected: list[Any]) -> None:
    counts = [found[each] for each in expected]
    assert sum(counts) == found.total()
    assert max(counts) - min(counts) <= 1


@given(st.integers(1, 4), st.integers(1, 3), st.integers(0, 1000))
def test_new_partitions_go_on_where_the_last_one_ended(racks: int, brokers_each: int, seed: int) -> None:
    """One at a time they are spread as together: the next rack leads."""
    state = brokers([f"r{number % racks}" for number in range(racks * brokers_each)])
    random, partitions = Random(seed), list[list[int]]()
    for _ in range(12):
        partitions += placed(1, racks, state, random, behind=partitions)
    leading = [state.rack_of(replicas[0]) for replicas in partitions]
    for one, other in pairwise(leading):
        assert (int(str(one)[1:]) + 1) % racks == int(str(other)[1:])


# --- what clients are told ----------------------------------------------------------------------------------


async def test_answers_name_the_racks(kit: Kit) -> None:
    """Metadata from version 1 on, DescribeCluster, also of one that is down; null where there is none."""
    async with kit.opened(racks=("a", None, "c")) as cluster:
        talk, expected = talk_to(cluster, 2), {1: "a", 2: None, 3: "c"}
        for version, racks in ((0, dict.fromkeys(expected)), (1, expected), (13, expected)):
            answer = await talk.ask(MetadataRequest(topics=[]), version)
            assert {each.node_id: each.rack for each in answer.brokers} == racks
        await cluster.stop(3)
        described = await talk.ask(DescribeClusterRequest(include_fenced_brokers=True), 2)
        assert {each.broker_id: each.rack for each in described.brokers} == expected


async def test_new_topics_are_spread_over_racks(autojump_clock: MockClock) -> None:
    """Two brokers of one rack never have the two replicas of a partition."""
    async with open_cluster(autojump_clock, racks={1: "a", 2: "a", 3: "b"}) as cluster:
        cluster.controller.create_topics([NewTopic("two", 6, replication_factor=2)], lambda _: None)
        cluster.controller.create_partitions("two", 12)
        state = cluster.controller.state
        for each in state.partitions_of(["two"]):
            assert 3 in state.partitions[each].replicas


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"racks": ("a", "b")}, "one for each of the 3 brokers"),
        ({"racks": "abc"}, "one for each of the 3 brokers"),
        ({"racks": "abc", "brokers": 3}, "one for each"),
        ({"racks": ("a", "b", "c"), "options": {"broker_rack": "a"}}, "leave out broker.rack"),
        ({"racks": ("a", "b", "c"), "config": {"broker.rack": "a"}}, "leave out broker.rack"),
    ],
)
def test_racks_that_do_not_fit_are_refused(given: dict[str, Any], text: str) -> None:
    """The text says what would."""
    fields = {"path": "/c", "brokers": 3, "host": "h", "port": 0, "listen": tcp_listen, "options": {}} | given
    with pytest.raises(KafkaConfigurationError, match=text):
        ClusterOptions(
            clock=SystemClock(), files=MemoryFiles(), token_validator=None, **{"config": {}, **fields}
        )


def test_another_selector_is_refused() -> None:
    """It would be a class of the user's."""
    with pytest.raises(KafkaConfigurationError, match="RackAwareReplicaSelector"):
        BrokerSettings.from_properties({"replica.selector.class": "com.example.Nearest"})


# --- who reads from whom ------------------------------------------------------------------------------------


def request_of(cluster: Cluster, offset: int, rack: str = "b", **fields: Any) -> FetchRequest:
    """A consumer's fetch of t-0."""
    topic_id = cluster.controller.state.topics["t"].topic_id
    return fetch_request("t", offset, topic_id=topic_id, rack_id=rack, **fields)


async def fetch(talk: Talk, request: FetchRequest, version: int = 17) -> PartitionData:
    answer = await talk.ask(request, version)
    return answer.responses[0].partitions[0]


def values_of(part: PartitionData) -> list[bytes | None]:
    return [record.value for record in records_of(part.records)]


async def test_a_consumer_is_sent_to_the_follower_in_its_rack(autojump_clock: MockClock) -> None:
    """At once, and without records; the follower gives them. Nobody else is sent anywhere."""
    async with open_cluster(
        autojump_clock, racks=RACKS, replica_selector_class=RACK_AWARE_SELECTOR
    ) as cluster:
        cluster.create(1, 2, 3)
        assert await cluster.produce(b"x") == 0
        await cluster.settle()
        leader, follower = await cluster.talk(1), await cluster.talk(2)
        began = trio.current_time()
        part = await fetch(leader, request_of(cluster, 0, max_wait_ms=60_000, min_bytes=1000))
        assert trio.current_time() == began
        assert (part.preferred_read_replica, part.error_code, part.records) == (2, 0, b"")
        assert (part.high_watermark, part.last_stable_offset, part.log_start_offset) == (1, 1, 0)
        part = await fetch(leader, request_of(cluster, 1, isolation_level=1))
        assert (part.preferred_read_replica, part.aborted_transactions) == (2, None)
        part = await fetch(follower, request_of(cluster, 0))
        assert (part.preferred_read_replica, values_of(part)) == (-1, [b"x"])
        for rack in ("", "a", "elsewhere"):
            part = await fetch(leader, request_of(cluster, 0, rack))
            assert (part.preferred_read_replica, values_of(part)) == (-1, [b"x"])
        assert values_of(await fetch(leader, request_of(cluster, 0), 10)) == [b"x"]
        replica = ReplicaState(replica_id=2, replica_epoch=2)
        assert (
            await fetch(leader, request_of(cluster, 1, replica_state=replica))
        ).preferred_read_replica == -1


async def test_without_a_selector_the_leader_is_read(autojump_clock: MockClock) -> None:
    """As in Kafka, whose default is no selector."""
    async with open_cluster(autojump_clock, racks=RACKS) as cluster:
        cluster.create(1, 2, 3)
        assert await cluster.produce(b"x") == 0
        part = await fetch(await cluster.talk(1), request_of(cluster, 0))
        assert (part.preferred_read_replica, values_of(part)) == (-1, [b"x"])


async def test_a_follower_that_cannot_serve_is_not_named(autojump_clock: MockClock) -> None:
    """One that lacks the offset, and one that is not in sync any more."""
    async with open_cluster(
        autojump_clock,
        racks=RACKS,
        replica_selector_class=RACK_AWARE_SELECTOR,
        replica_lag_time_max_ms=10_000,
    ) as cluster:
        cluster.create(1, 2, 3)
        assert await cluster.produce(b"x") == 0
        await cluster.settle()
        talk = await cluster.talk(1)
        cluster.cut(1, 2)
        assert await cluster.produce(b"y", acks=1) == 0
        assert (await fetch(talk, request_of(cluster, 1))).preferred_read_replica == 2
        assert (await fetch(talk, request_of(cluster, 2))).preferred_read_replica == -1
        await trio.sleep(60)
        assert cluster.state.isr == (1, 3)
        part = await fetch(talk, request_of(cluster, 0))
        assert (part.preferred_read_replica, values_of(part)) == (-1, [b"x", b"y"])


async def test_a_session_without_news_still_learns_of_the_follower(autojump_clock: MockClock) -> None:
    """An incremental fetch leaves out what has not changed; that another replica is nearer is news."""
    async with open_cluster(
        autojump_clock, racks=RACKS, replica_selector_class=RACK_AWARE_SELECTOR
    ) as cluster:
        cluster.create(1, 2, 3)
        await cluster.settle()
        cluster.cut(1, 2)
        cluster.controller.fence(2)
        talk = await cluster.talk(1)
        answer = await talk.ask(request_of(cluster, 0, session_epoch=0), 17)
        assert answer.responses[0].partitions[0].preferred_read_replica == -1
        cluster.join()
        await cluster.nodes[2].end()
        await cluster.start(2)
        await cluster.settle()
        again = FetchRequest(
            session_id=answer.session_id, session_epoch=1, rack_id="b", topics=[], max_wait_ms=1000
        )
        assert (await fetch(talk, again)).preferred_read_replica == 2


async def test_a_consumer_of_a_follower_waited_for_its_whole_time(autojump_clock: MockClock) -> None:
    """It is answered as soon as the follower hears that what it has is safe."""
    async with open_cluster(autojump_clock, racks=RACKS) as cluster:
        cluster.create(1, 2, 3)
        await cluster.settle()
        talk = await cluster.talk(2)
        began = trio.current_time()
        await talk.send(request_of(cluster, 0, max_wait_ms=60_000, min_bytes=1), 17)
        assert await cluster.produce(b"x") == 0
        part = (await talk.answer()).responses[0].partitions[0]
        assert values_of(part) == [b"x"]
        assert trio.current_time() - began < 5


async def test_offsets_that_a_follower_does_not_serve(autojump_clock: MockClock) -> None:
    """Above its high watermark nothing is read; beyond its end the offset is out of range."""
    async with open_cluster(autojump_clock, racks=RACKS) as cluster:
        cluster.create(1, 2, 3)
        assert await cluster.produce(b"x") == 0
        await cluster.settle()
        cluster.cut(1, 3)
        assert await cluster.produce(b"y", acks=1) == 0
        await trio.sleep(2)
        log = cluster.nodes[2].log
        assert (log.high_watermark, log.log_end_offset) == (1, 2)
        talk = await cluster.talk(2)
        for offset, code in ((1, 0), (2, 0), (3, ErrorCode.OFFSET_OUT_OF_RANGE)):
            part = await fetch(talk, request_of(cluster, offset))
            assert (part.error_code, part.records) == (code, b"")
        assert cluster.controller.partition(T0).leader == 1


# --- clients ------------------------------------------------------------------------------------------------


def kafka_python_values(servers: str, rack: str) -> Iterator[bytes]:
    """With kafka-python."""
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=servers, client_rack=rack, auto_offset_reset="earliest", client_id="reader"
    )
    consumer.assign([kafka.TopicPartition("t", 0)])
    for message in consumer:
        yield message.value
        if message.value == b"last":
            break
    consumer.close()


def confluent_values(servers: str, rack: str) -> Iterator[bytes]:
    """With confluent-kafka."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "client.rack": rack,
            "group.id": "unused",
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "fetch.error.backoff.ms": 10,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
    value = b""
    while value != b"last":
        message = consumer.poll(30)
        assert message is not None
        assert not message.error()
        value = message.value()
        yield value
    consumer.close()


@pytest.mark.parametrize("values_of", [kafka_python_values, confluent_values])
def test_clients_read_from_the_follower_in_their_rack(
    tmp_path: Path, values_of: Callable[[str, str], Iterator[bytes]]
) -> None:
    """The follower is asked, too, and what was sent comes once, in order."""
    with (
        EmbeddedCluster(
            tmp_path,
            racks=("a", "b", "c"),
            fsync=False,
            config={"replica.selector.class": RACK_AWARE_SELECTOR},
        ) as cluster,
        KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer,
    ):
        producer.send("t", b"first").get(timeout=300)
        cluster.wait_in_sync()
        leader, follower = cluster.replicas_of("t")[:2]
        assert cluster.leader_of("t") == leader
        with cluster.requests.start() as requests:
            values = values_of(cluster.bootstrap_servers, "abc"[follower - 1])
            assert next(values) == b"first"
            for each in (b"second", b"last"):
                producer.send("t", each).get(timeout=300)
            assert list(values) == [b"second", b"last"]
        asked = {each.broker for each in requests if each.api == "fetch" and each.client_id == "reader"}
        assert asked == {leader, follower}
