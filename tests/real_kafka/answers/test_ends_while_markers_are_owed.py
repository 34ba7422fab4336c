"""EndTxn while markers of the last end are owed: its partition's leader is away, Kafka's and ours alike."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeAlias

import attrs
import pytest
import trio
from support.broker.broker_talk import Talk
from support.broker.transaction_talk import RawProducer
from support.kafka.kafka_jars import START_SECONDS, KafkaBroker
from support.running.ports import free_port

from splashdam.embedded_broker.embedded_cluster import EmbeddedCluster
from splashdam.net.addresses import parse_bootstrap_servers
from splashdam.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from splashdam.wire.messages.find_coordinator import FindCoordinatorRequest
from splashdam.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

Codes: TypeAlias = list[tuple[str, int]]
"""What was asked, and the code of its answer."""

OWED, INVALID_STATE = 51, 48
ENDS = {True: "commit", False: "abort"}
_TRANSACTION = 1
_LOOK_SECONDS = 0.02
_NOT_NOW = frozenset({3, 5, 6, 14, 15, 16, 19, 38, OWED})
"""Who is asked has not heard yet of a topic or its leader, or loads, or is still busy with the last end."""

_ONE_COPY = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
}


@attrs.frozen
class TwoNodes:
    """A cluster of two, one of which can be sent away.

    Attributes:
        coordinator: where the transaction coordinator answers.
        other: where the other node does.
        other_id: its node id.
        leave: has the other node answer nobody from now on.
        come_back: has it go on.
    """

    coordinator: tuple[str, int]
    other: tuple[str, int]
    other_id: int
    leave: Callable[[], None]
    come_back: Callable[[], None]


async def until(ask: Callable[[], Awaitable[int]], not_now: frozenset[int] = _NOT_NOW) -> int:
    """The first answer that is more than "not now"; the last one where the time is up."""
    code = -1
    with trio.move_on_after(START_SECONDS):
        while True:
            code = await ask()
            if code not in not_now:
                break
            await trio.sleep(_LOOK_SECONDS)
    return code


async def asked(nodes: TwoNodes, *, uses_v2: bool) -> Codes:
    """The codes of all ends while the markers are owed, and once they are written."""
    async with (
        await trio.open_tcp_stream(*nodes.coordinator) as here,
        await trio.open_tcp_stream(*nodes.other) as there,
    ):
        coordinator, other = Talk(here), Talk(there)
        told = {is_commit: RawProducer(coordinator, f"{uses_v2} {is_commit}", uses_v2) for is_commit in ENDS}
        fenced = RawProducer(coordinator, f"{uses_v2} fenced", uses_v2)
        for producer in (*told.values(), fenced):
            await _begin(producer, coordinator, other)
        await trio.to_thread.run_sync(nodes.leave)
        codes = [each for is_commit in ENDS for each in await _ends(told[is_commit], is_commit)]
        codes.append(("another InitProducerId", await fenced.initialize()))
        codes += await _each_end(fenced, "behind InitProducerId, owed")
        await trio.to_thread.run_sync(nodes.come_back)
        codes += [each for is_commit in ENDS for each in await _late_ends(told[is_commit], is_commit)]
        code = await until(fenced.initialize)
        return [*codes, ("InitProducerId again", code), ("its epoch", fenced.epoch)]


async def _begin(producer: RawProducer, coordinator: Talk, other: Talk) -> None:
    """One record in the partition that the other node leads."""
    assert await until(producer.initialize) == 0
    if not producer.uses_v2:

        async def add() -> int:
            return (await producer.add(0))[0]

        assert await until(add) == 0
    producer.talk = other
    assert await until(lambda: producer.write(b"v")) == 0
    producer.talk = coordinator


async def _ends(producer: RawProducer, told: bool) -> Codes:
    """The end that is told, and what is said to whatever comes behind it."""
    before = producer.epoch
    found = [(f"{ENDS[told]} is told", await producer.end(is_commit=told))]
    producer.epoch = before
    found += await _each_end(producer, f"behind {ENDS[told]}, owed")
    producer.producer_id += 1_000
    found.append((f"another producer behind {ENDS[told]}, owed", await producer.end()))
    producer.producer_id -= 1_000
    return [*found, (f"InitProducerId behind {ENDS[told]}, owed", await producer.initialize())]


async def _late_ends(producer: RawProducer, told: bool) -> Codes:
    """The same once the markers are there."""
    before = producer.epoch
    found = await until(lambda: _end_of(producer, before, not told))
    return [
        (f"{ENDS[not told]} behind {ENDS[told]}, written", found),
        *await _each_end(producer, f"behind {ENDS[told]}, written"),
    ]


async def _each_end(producer: RawProducer, behind: str) -> Codes:
    """Both ends by the producer's epoch and by the two that follow, in each version that the broker has.

    An abort by the next epoch may begin and end a transaction of its own: it comes last.
    """
    before = producer.epoch
    found = [
        (
            f"{ENDS[is_commit]} {behind}, epoch {more}, EndTxn {version}",
            await _end_of(producer, before + more, is_commit, version),
        )
        for more, is_commit in ((0, True), (0, False), (2, True), (2, False), (1, True), (1, False))
        for version in ((3, 5) if producer.uses_v2 else (3,))
    ]
    producer.epoch = before
    return found


async def _end_of(producer: RawProducer, epoch: int, is_commit: bool, version: int | None = None) -> int:
    producer.epoch = epoch
    return await producer.end(is_commit=is_commit, version=version)


async def placed(address: tuple[str, int], leader: int) -> None:
    """Makes the topic ``t`` on one node, and waits until that node leads it."""
    topic = CreatableTopic(name="t", num_partitions=-1, replication_factor=-1)
    topic.assignments = [CreatableReplicaAssignment(partition_index=0, broker_ids=[leader])]
    async with await trio.open_tcp_stream(*address) as stream:
        talk = Talk(stream)
        made = await talk.ask(CreateTopicsRequest(topics=[topic]), 7)
        assert made.topics[0].error_code == 0, made

        async def is_led() -> int:
            request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
            (found,) = (await talk.ask(request, 9)).topics
            leads = [each.leader_id for each in found.partitions] == [leader]
            return found.error_code or (0 if leads else 5)

        assert await until(is_led) == 0


async def coordinator_of(address: tuple[str, int]) -> int:
    """The node id of the only transaction coordinator, which is made at the first question."""
    found = -1

    async def ask() -> int:
        nonlocal found
        (answer,) = (
            await talk.ask(FindCoordinatorRequest(coordinator_keys=["x"], key_type=_TRANSACTION), 4)
        ).coordinators
        found = answer.node_id
        return answer.error_code

    async with await trio.open_tcp_stream(*address) as stream:
        talk = Talk(stream)
        assert await until(ask) == 0
    return found


@contextmanager
def two_of_kafka(version: str, home: Path) -> Iterator[TwoNodes]:
    """The first node is alone when the coordinator's topic is made; the second is halted by a signal."""
    ports = [free_port() for _ in range(3)]
    first, second, controller = (f"127.0.0.1:{port}" for port in ports)
    quorum = {"controller.quorum.voters": f"1@{controller}"}
    listeners = {"listeners": f"PLAINTEXT://{first},CONTROLLER://{controller}"}
    advertised = {"advertised.listeners": f"PLAINTEXT://{first}"}
    one = KafkaBroker(version, home / "1", {**quorum, **listeners, **advertised})
    plain = f"PLAINTEXT://{second}"
    role = {"process.roles": "broker", "node.id": "2", "listeners": plain, "advertised.listeners": plain}
    two = KafkaBroker(version, home / "2", {**quorum, **role}, cluster_id=one.cluster_id)
    with ExitStack() as stack:
        stack.callback(one.stop)
        one.start()
        here, there = (("127.0.0.1", port) for port in ports[:2])
        assert trio.run(coordinator_of, here) == 1
        stack.callback(two.stop)
        two.start()
        stack.callback(lambda: os.kill(two.pid, signal.SIGCONT))
        trio.run(placed, here, 2)
        yield TwoNodes(
            here,
            there,
            2,
            leave=lambda: os.kill(two.pid, signal.SIGSTOP),
            come_back=lambda: os.kill(two.pid, signal.SIGCONT),
        )


@contextmanager
def two_of_ours(home: Path) -> Iterator[TwoNodes]:
    """The node that does not coordinate is killed, and started again."""
    with EmbeddedCluster(home, brokers=2, config=_ONE_COPY, fsync=False) as cluster:
        addresses = dict(zip(cluster.nodes, parse_bootstrap_servers(cluster.bootstrap_servers), strict=True))
        chosen = trio.run(coordinator_of, addresses[1])
        (other,) = {*cluster.nodes} - {chosen}
        trio.run(placed, addresses[chosen], other)
        yield TwoNodes(
            addresses[chosen],
            addresses[other],
            other,
            leave=lambda: cluster.kill(other),
            come_back=lambda: cluster.start(other),
        )


def answers_of(nodes: TwoNodes, protocols: tuple[bool, ...]) -> list[Codes]:
    """By protocol."""
    return [trio.run(partial(asked, nodes, uses_v2=uses_v2)) for uses_v2 in protocols]


def check_ends(of_protocols: list[Codes]) -> None:
    """51 for the end that was told and for the other one; once they are written the other one is 48.

    With the newer protocol the producer's next epoch is one up, and its ends wait, too.
    """
    for newest, epochs, codes in zip((3, 5), ((0,), (0, 1)), map(dict, of_protocols), strict=False):
        assert codes["commit is told"] == codes["abort is told"] == 0
        for told, other in (("commit", "abort"), ("abort", "commit")):
            for epoch in epochs:
                assert codes[f"{told} behind {told}, owed, epoch {epoch}, EndTxn {newest}"] == OWED
                assert codes[f"{other} behind {told}, owed, epoch {epoch}, EndTxn {newest}"] == OWED
            assert codes[f"{other} behind {told}, written"] == INVALID_STATE


def test_all_ends_wait_while_markers_are_owed(version: str, tmp_path: Path) -> None:
    """Ends by Kafka's producer, by ours, and by clients that are not the producer."""
    protocols = (False,) if version.startswith("3.") else (False, True)
    with two_of_kafka(version, tmp_path / "kafka") as nodes:
        theirs = answers_of(nodes, protocols)
    with two_of_ours(tmp_path / "ours") as nodes:
        own = answers_of(nodes, protocols)
    check_ends(theirs)
    check_ends(own)
    for mine, their in zip(own, theirs, strict=True):
        pairs = zip(mine, their, strict=True)
        differ = {what: (code, kafkas) for (what, code), (_, kafkas) in pairs if code != kafkas}
        assert differ == {}
