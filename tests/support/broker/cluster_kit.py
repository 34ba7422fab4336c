"""Three brokers that replicate, in one loop in virtual time: disks, lines and the controller in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from random import Random
from typing import Any

import trio
from trio.testing import MockClock

from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.embedded_broker.controller.controller import Controller
from splashdam.embedded_broker.controller.journal import Journal
from splashdam.embedded_broker.controller.producer_ids import ProducerIds
from splashdam.embedded_broker.controller.state import ClusterState, IsrAnswer, PartitionState
from splashdam.embedded_broker.replication.replica_manager import Membership
from splashdam.model.broker_errors import NetworkExceptionError
from splashdam.model.errors import KafkaConnectionError
from splashdam.model.values import TopicPartition
from splashdam.net.memory import MemoryStream, memory_stream_pair
from splashdam.record.reader import read_records
from splashdam.storage.files.memory import Fault, MemoryFiles, PowerCutError
from splashdam.storage.log import Log
from splashdam.storage.manager.topic_registry import NewTopic, Topic
from splashdam.testing.clock import VirtualClock
from support.broker.broker_talk import Talk, batch, produce

NODES = (1, 2, 3)
T0 = TopicPartition("t", 0)


class Node:
    """One broker, and what happens to it."""

    def __init__(self, node_id: int, cluster: Cluster) -> None:
        self.node_id = node_id
        self.files = cluster.make_files()
        self.streams: list[tuple[int, MemoryStream]] = []
        self.life = trio.CancelScope()
        self.ended = trio.Event()
        self._broker: Broker | None = None
        self._cluster = cluster

    @property
    def broker(self) -> Broker:
        """The running broker."""
        assert self._broker is not None
        return self._broker

    @property
    def is_up(self) -> bool:
        """Whether it runs."""
        return self._broker is not None

    @property
    def log(self) -> Log:
        """Its log of t-0."""
        return self.broker.logs.logs[T0]

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Until it is stopped or killed."""
        self.ended = trio.Event()
        with trio.CancelScope() as self.life, suppress(PowerCutError):
            async with open_broker(
                "/data",
                port=None,
                clock=self._cluster.clock,
                files=self.files,
                membership=self._cluster.membership_of(self.node_id),
                node_id=self.node_id,
                broker_rack=self._cluster.racks.get(self.node_id, ""),
                **self._cluster.settings,
            ) as self._broker:
                task_status.started()
                await trio.sleep_forever()
        self._broker = None
        self.ended.set()

    async def end(self, *, kill: bool = False, power_cut: Random | None = None) -> None:
        """Ends the broker in order, by ``kill -9``, or by a power cut that takes unsynced bytes by chance."""
        kill = kill or power_cut is not None
        if kill:
            self.files.inject(Fault(None))
        broker, self._broker = self._broker, None
        self.life.cancel()
        assert broker is not None
        broker.member.leave(orderly=False)
        await self.ended.wait()
        if power_cut is not None:
            self.files.crash(power_cut)
        elif kill:
            self.files.kill()


class ControllerLine:
    """What one broker sees of the controller: ``is_cut`` loses its questions, ``is_deaf`` the answers."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self.state = controller.state
        self.is_cut = self.is_deaf = False

    def alter_partitions(self, *args: Any) -> Mapping[TopicPartition, IsrAnswer]:
        """Asks, or loses it on the way."""
        if self.is_cut:
            raise NetworkExceptionError("cut")
        answers = self._controller.alter_partitions(*args)
        if self.is_deaf:
            raise NetworkExceptionError("the answer is lost")
        return answers


class Cluster:
    """Brokers, a controller, and lines between them that can be cut."""

    def __init__(
        self,
        clock: VirtualClock,
        nursery: trio.Nursery,
        racks: Mapping[int, str] | None = None,
        make_files: Callable[[], MemoryFiles] = MemoryFiles,
        **settings: Any,
    ) -> None:
        self.clock = clock
        self.make_files = make_files
        self.racks = racks or {}
        self.settings = settings
        self.controller = Controller(
            Journal(MemoryFiles(), "/journal"),
            ProducerIds(MemoryFiles(), "/", above=-1),
            lambda configs: configs.get("unclean.leader.election.enable") == "true",
        )
        self.controller.begin(ClusterState())
        self.nodes = {node_id: Node(node_id, self) for node_id in NODES}
        self.lines = {node_id: ControllerLine(self.controller) for node_id in NODES}
        self._nursery = nursery
        self._cut: set[frozenset[int]] = set()

    def membership_of(self, node_id: int) -> Membership:
        """What a broker is given."""
        return Membership(self.controller, partial(self.connect, node_id), self.lines[node_id])

    async def start(self, *node_ids: int) -> None:
        """Starts brokers, or starts them again."""
        for node_id in node_ids or NODES:
            await self._nursery.start(self.nodes[node_id].run)

    async def connect(self, source: int, target: int) -> MemoryStream:
        """A line between two brokers."""
        await trio.lowlevel.checkpoint()
        node = self.nodes[target]
        if not node.is_up or frozenset((source, target)) in self._cut:
            raise KafkaConnectionError(f"no line from {source} to {target}")
        ours, theirs = memory_stream_pair()
        node.broker.server.adopt(theirs, is_trusted=True)
        self.nodes[source].streams.append((target, ours))
        return ours

    def cut(self, one: int, other: int) -> None:
        """No line between them any more."""
        self._cut.add(frozenset((one, other)))
        for source, target in ((one, other), (other, one)):
            for node_id, stream in self.nodes[source].streams:
                if node_id == target:
                    stream.cut()

    def join(self) -> None:
        """All lines are whole again."""
        self._cut.clear()

    async def talk(self, node_id: int) -> Talk:
        """A client's connection to a broker."""
        await trio.lowlevel.checkpoint()
        ours, theirs = memory_stream_pair()
        self.nodes[node_id].broker.server.adopt(theirs)
        return Talk(ours)

    # --- topics and what is in them -------------------------------------------------------------------------

    def create(self, *replicas: int, **configs: str) -> Topic:
        """Topic t with one partition: the first replica leads."""
        options = {name.replace("_", "."): value for name, value in configs.items()}
        topics = self.controller.create_topics(
            [NewTopic("t", 1, options, assignments=(tuple(replicas or NODES),))], lambda _: None
        )
        return topics[0]

    @property
    def state(self) -> PartitionState:
        """The leader of t-0, and its in-sync replicas."""
        return self.controller.partition(T0)

    @property
    def leader(self) -> Node:
        """The leader of t-0."""
        return self.nodes[self.state.leader]

    async def produce(self, *values: bytes, node_id: int | None = None, acks: int = -1) -> int:
        """Produces one batch to t-0, at the leader unless told otherwise; the answer's error code."""
        talk = await self.talk(self.leader.node_id if node_id is None else node_id)
        answer = await produce(talk, "t", batch(*values), acks=acks)
        await talk.stream.aclose()
        return answer.error_code

    def values(self, node_id: int, *, up_to_high_watermark: bool = False) -> list[bytes | None]:
        """What a broker has of t-0."""
        log = self.nodes[node_id].log
        found = [record for _, data in log.batches() for record in read_records(data)]
        end = log.high_watermark if up_to_high_watermark else log.log_end_offset
        return [each.value for each in found if each.offset < end]

    async def settle(self, seconds: float = 3.0) -> None:
        """Time for fetches, and for the high watermark to come round."""
        await trio.sleep(seconds)


@asynccontextmanager
async def open_cluster(mock_clock: MockClock, **settings: Any) -> AsyncIterator[Cluster]:
    """Three running brokers."""
    async with trio.open_nursery() as nursery:
        cluster = Cluster(VirtualClock(mock_clock), nursery, **settings)
        await cluster.start()
        yield cluster
        nursery.cancel_scope.cancel()
