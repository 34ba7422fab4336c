"""What each fault does to the client, to the log, and to those it does not mean."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from support.broker.broker_talk import Talk, batch, fetch_request, fetched, produce, produce_request
from trio.testing import MockClock, memory_stream_pair

from splashdam.embedded_broker.broker import Broker
from splashdam.embedded_broker.serving.dispatch import Interception
from splashdam.model.broker_errors import ErrorCode
from splashdam.model.values import TopicPartition
from splashdam.net.memory import MemoryNetwork
from splashdam.testing.faults.faults import Faults
from splashdam.wire.messages.api_versions import ApiVersionsRequest
from splashdam.wire.messages.find_coordinator import FindCoordinatorRequest
from splashdam.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from splashdam.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


def end(broker: Broker, topic: str = "t", partition: int = 0) -> int:
    return broker.logs.logs[TopicPartition(topic, partition)].log_end_offset


async def code(talk: Talk, topic: str = "t", **fields: Any) -> int:
    return (await produce(talk, topic, batch(b"v"), **fields)).error_code


async def test_error_for_so_many_times(broker: Broker, talk: Talk, faults: Faults) -> None:
    """Two requests are refused, with nothing appended; then all is as before, and nobody is asked."""
    fault = faults.produce(topic="t", error="NOT_LEADER_OR_FOLLOWER", times=2)
    assert [await code(talk) for _ in range(3)] == [NOT_LEADER, NOT_LEADER, 0]
    assert (fault.hits, end(broker), broker.interception.interceptor) == (2, 1, None)


async def test_error_after_the_work(broker: Broker, talk: Talk, faults: Faults) -> None:
    """The batch is in the log, and the answer says that it is not."""
    faults.produce(error=ErrorCode.REQUEST_TIMED_OUT, after=True, times=1)
    assert (await code(talk), end(broker)) == (ErrorCode.REQUEST_TIMED_OUT, 1)


@pytest.mark.parametrize("after", [False, True])
async def test_error_of_one_partition(broker: Broker, talk: Talk, faults: Faults, after: bool) -> None:
    """The other partitions of the request are appended to and answered truly."""
    faults.produce(topic="t", partition=1, error=NOT_LEADER, after=after)
    data = [PartitionProduceData(index=index, records=batch(b"v")) for index in (0, 1)]
    topics = [
        TopicProduceData(name="u", partition_data=data[:1]),
        TopicProduceData(name="t", partition_data=data),
    ]
    request = ProduceRequest(acks=-1, topic_data=topics)
    answer = await talk.ask(request, 9)
    found = {
        (topic.name, each.index): each for topic in answer.responses for each in topic.partition_responses
    }
    assert {place: each.error_code for place, each in found.items()} == {
        ("u", 0): 0,
        ("t", 0): 0,
        ("t", 1): NOT_LEADER,
    }
    assert (found["t", 0].base_offset, found["t", 1].base_offset) == (0, -1)
    assert (end(broker), end(broker, partition=1)) == (1, int(after))


async def test_which_requests_a_fault_matches(talk: Talk, some_faults: Faults) -> None:
    """Other topics, partitions, clients, brokers and calls go unharmed."""
    some_faults.produce(topic="u*", error=NOT_LEADER)
    some_faults.produce(partition=1, error=NOT_LEADER)
    some_faults.produce(client_id="other", error=NOT_LEADER)
    some_faults.produce(broker=17, error=NOT_LEADER)
    some_faults.produce(client_id="ta*", on_call=3, times=1, error=NOT_LEADER)
    assert await code(talk, "u") == NOT_LEADER
    assert await code(talk, partition=1) == NOT_LEADER
    assert [await code(talk) for _ in range(4)] == [0, 0, NOT_LEADER, 0]
    assert len(some_faults.unhit) == 2


async def test_probability_comes_from_the_seed(talk: Talk, faults: Faults) -> None:
    """The same seed draws the same requests."""
    drawn = []
    for seed in (7, 7, 8):
        with faults.produce(error=NOT_LEADER, probability=0.5, seed=seed):
            drawn.append([await code(talk) for _ in range(20)])
    assert drawn[0] == drawn[1] != drawn[2]
    assert 0 < drawn[0].count(0) < 20


async def test_removed(talk: Talk, some_faults: Faults) -> None:
    """A fault ends with its block, with remove, and with clear."""
    with some_faults.produce(error=NOT_LEADER):
        assert await code(talk) == NOT_LEADER
    assert await code(talk) == 0
    fault = some_faults.produce(error=NOT_LEADER)
    fault.remove()
    fault.remove()
    some_faults.any_request(error=NOT_LEADER)
    some_faults.clear()
    assert await code(talk) == 0
    assert len(some_faults.unhit) == 2


async def test_delay(autojump_clock: MockClock, talk: Talk, faults: Faults) -> None:
    """Delays add up, and the request is handled after them."""
    faults.produce(delay_ms=300)
    faults.any_request(delay_ms=200)
    began = trio.current_time()
    assert await code(talk) == 0
    assert trio.current_time() - began == pytest.approx(0.5)


@pytest.mark.parametrize(("drop", "appended"), [("before", 0), ("after", 1)])
async def test_drop(broker: Broker, talk: Talk, faults: Faults, drop: Any, appended: int) -> None:
    """The connection closes without an answer, what was asked before is answered."""
    faults.produce(drop=drop, on_call=2)
    await talk.send_together(*[produce_request("t", batch(b"v"))] * 2, version=9)
    assert (await talk.answer()).responses[0].partition_responses[0].base_offset == 0
    assert await talk.is_closed()
    assert end(broker) == 1 + appended


@pytest.mark.parametrize("count", [0, 3, 11, 10_000])
async def test_cut(broker: Broker, talk: Talk, faults: Faults, count: int) -> None:
    """So many bytes of the answer arrive, then the end of the stream."""
    await talk.send(ApiVersionsRequest(), 0)
    whole = len(await talk.frame()) + 4
    faults.any_request(cut_after_bytes=count)
    await talk.send(ApiVersionsRequest(), 0)
    received = b""
    while data := await talk.stream.receive_some(1 << 16):
        received += data
    assert len(received) == min(count, whole)


async def test_throttle(talk: Talk, faults: Faults) -> None:
    """The answer is a usual one and asks the client to wait."""
    faults.produce(throttle_ms=1234)
    answer = await talk.ask(produce_request("t", batch(b"v")), 9)
    assert (answer.throttle_time_ms, answer.responses[0].partition_responses[0].error_code) == (1234, 0)


async def test_black_hole(
    autojump_clock: MockClock, broker: Broker, talk: Talk, faults: Faults, network: MemoryNetwork
) -> None:
    """Nothing on this connection is answered any more, though the fault is gone; others are served."""
    faults.produce(black_hole=True, times=1)
    await talk.send(produce_request("t", batch(b"v")), 9)
    await talk.send(ApiVersionsRequest(), 0)
    with trio.move_on_after(60) as silence:
        await talk.answer()
    assert silence.cancelled_caught
    async with await network.connect("broker", 9092) as stream:
        assert await code(Talk(stream)) == 0
    assert end(broker) == 1


async def test_refused_connections(talk: Talk, some_faults: Faults, network: MemoryNetwork) -> None:
    """New connections are closed at once, those that are there stay."""
    assert await code(talk) == 0  # before that, the broker may not have looked at its connection yet
    refusals = some_faults.refuse_connections(times=2)
    for _ in range(2):
        async with await network.connect("broker", 9092) as stream:
            assert await Talk(stream).is_closed()
    async with await network.connect("broker", 9092) as stream:
        assert await code(Talk(stream)) == 0
    assert (await code(talk), refusals.hits) == (0, 2)
    with some_faults.refuse_connections(broker=17):
        async with await network.connect("broker", 9092) as stream:
            assert await code(Talk(stream)) == 0
    assert len(some_faults.unhit) == 1


async def test_with_acks_0_the_connection_is_closed(talk: Talk, faults: Faults) -> None:
    """There is no answer to put the error in; Kafka closes the connection then."""
    faults.produce(error=NOT_LEADER)
    await talk.send(produce_request("t", batch(b"v"), acks=0), 9, answered=False)
    assert await talk.is_closed()


async def test_metadata_keeps_its_brokers(broker: Broker, talk: Talk, faults: Faults) -> None:
    """Topics have the error, the cluster stays known, and nothing is made."""
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in ("t", "u", "new")])
    faults.metadata(topic="t", error="LEADER_NOT_AVAILABLE", times=1)
    answer = await talk.ask(asked, 9)
    assert {topic.name: topic.error_code for topic in answer.topics} == {"t": 5, "u": 0, "new": 3}
    assert (len(answer.brokers), broker.topics.get("new")) == (1, None)
    faults.metadata(partition=1, error=5)
    (topic,) = (await talk.ask(MetadataRequest(topics=asked.topics[:1]), 9)).topics
    assert {each.partition_index: each.error_code for each in topic.partitions} == {0: 0, 1: 5}


async def test_coordinators(talk: Talk, faults: Faults) -> None:
    """An API without topics, in both of its shapes."""
    faults.find_coordinator(error="COORDINATOR_NOT_AVAILABLE")
    old = await talk.ask(FindCoordinatorRequest(key="g"), 2)
    new = await talk.ask(FindCoordinatorRequest(coordinator_keys=["g", "h"]), 4)
    assert (old.error_code, old.node_id) == (15, -1)
    assert [(each.key, each.error_code, each.node_id) for each in new.coordinators] == [
        ("g", 15, -1),
        ("h", 15, -1),
    ]


async def test_parked_fetches_are_waited_for(
    autojump_clock: MockClock, broker: Broker, talk: Talk, faults: Faults
) -> None:
    """A fetch that waits for data waits behind a fault as well, and answers what came."""
    faults.fetch(delay_ms=10)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(talk.send, fetch_request("t", 0, max_wait_ms=5000, min_bytes=1), 4)
        await trio.sleep(1)
        async with await broker_stream(broker) as stream:
            assert await code(Talk(stream)) == 0
    assert len(fetched(await talk.answer())[0].records or b"") > 60


async def broker_stream(broker: Broker) -> trio.abc.Stream:
    ours, theirs = memory_stream_pair()
    broker.server.adopt(theirs)
    return ours


async def test_followers_are_left_alone(talk: Talk, faults: Faults) -> None:
    """A fault of fetch is about consumers, unless it says otherwise."""
    await code(talk)
    storage = ErrorCode.KAFKA_STORAGE_ERROR
    faults.fetch(topic="t", error=storage)
    follower = fetch_request("t", 0, replica_id=5)
    assert fetched(await talk.ask(fetch_request("t", 0), 4))[0].error_code == storage
    assert fetched(await talk.ask(follower, 4))[0].error_code != storage
    faults.fetch(topic="t", error=ErrorCode.UNKNOWN_SERVER_ERROR, from_brokers=True)
    assert fetched(await talk.ask(follower, 4))[0].error_code == -1


def test_every_served_api_has_a_method() -> None:
    """By its name in snake case; editors know all that are declared."""
    from splashdam.testing.faults.faults import ApiNames
    from splashdam.wire.registry import API_KEYS

    declared = {api.request.__module__.rpartition(".")[2] for api in API_KEYS.values()}
    assert set(ApiNames.__annotations__) == declared
    faults = Faults(Interception())
    offered = {name for name in dir(faults) if name in declared}
    assert {"produce", "fetch", "list_offsets", "init_producer_id"} <= offered
    for name in offered:
        getattr(faults, name)(delay_ms=1)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "give one of error"),
        ({"error": "NOT_LEADER"}, "did you mean NOT_LEADER_OR_FOLLOWER"),
        ({"error": "NONE"}, "Kafka has no such error"),
        ({"error": 0}, "no such error code"),
        ({"error": 9999}, "no such error code"),
        ({"error": 6, "drop": "after"}, "give only one of error"),
        ({"drop": "later"}, "'before' or 'after'"),
        ({"after": True, "delay_ms": 3}, "needs an error"),
        ({"error": 6.5}, "error=6.5: Kafka has no such error"),
        ({"error": 6, "on_call": 0}, "on_call=0: must be a whole number, 1 or more"),
        ({"error": 6, "times": "x"}, "times='x': must be a whole number, 1 or more"),
        ({"error": 6, "times": 1.5}, "times=1.5"),
        ({"error": 6, "probability": "x"}, "probability='x': must be a number above 0 and at most 1"),
        ({"error": 6, "topic": 3}, "topic=3: must be a text"),
        ({"error": 6, "probability": 1.5}, "at most 1"),
        ({"delay_ms": -1}, "delay_ms=-1: must be a number, 0 or more"),
        ({"throttle_ms": "x"}, "throttle_ms='x'"),
        ({"cut_after_bytes": -1}, "cut_after_bytes=-1"),
        ({"error": 6, "partition": "1"}, "partition='1': must be a number"),
        ({"error": 6, "broker": "1"}, "broker='1'"),
    ],
)
def test_nonsense_is_refused(options: dict[str, Any], text: str) -> None:
    """It says what is wrong, where the test is written."""
    with pytest.raises((TypeError, ValueError), match=text):
        Faults(Interception()).produce(**options)


def test_refusals_of_no_number_were_a_bare_type_error() -> None:
    """At the first connection, in the broker's thread."""
    with pytest.raises(ValueError, match="times='x': must be a whole number"):
        Faults(Interception()).refuse_connections(times="x")  # type: ignore[arg-type]


def test_unknown_apis_and_topics_of_none() -> None:
    """An unknown API, and a topic for an API whose requests name no topic."""
    faults = Faults(Interception())
    with pytest.raises(AttributeError, match=r"'prodce'; did you mean produce\?"):
        faults.prodce(error=6)  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="requests of init_producer_id name no topics"):
        faults.init_producer_id(topic="t", error=6)
    assert not hasattr(faults, "_nothing")
