"""Embedded brokers on disks in memory, which end, start and move their leaders on demand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from random import Random
from typing import Any, Literal

import attrs
import trio

from lab.simulator.append_errors import AppendErrors
from lab.simulator.network import SimulatedNetwork
from lab.simulator.report import RunRecord
from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.values import TopicPartition
from splashdam.net.clock import Clock
from splashdam.storage.files.memory import Fault, MemoryFiles, PowerCutError
from splashdam.storage.log import Log, LogState
from splashdam.storage.manager.topic_registry import NewTopic

ROOT = "/data"
PORT = 9092

_RESTART_S = 0.05
_LOOKS, _LOOK_S = 1_200, 0.1
"""Polls for missing markers, and the pause between them: in all twice the coordinator's longest backoff."""

End = Literal["stop", "kill", "power cut"]


@attrs.define(eq=False)
class BrokerNode:
    """One broker: its disk, and its process while it runs.

    Attributes:
        node_id: from 1 on.
        files: the disk.
        broker: the running process, None while it is down.
        end: how its last process ended.
        life: cancels the process's tasks.
        is_up: set while it runs.
        may_start: set when it may start again.
        leaves: set to stop the broker in order.
    """

    node_id: int
    files: MemoryFiles = attrs.field(factory=MemoryFiles)
    broker: Broker | None = None
    end: End = "stop"
    life: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    is_up: trio.Event = attrs.field(factory=trio.Event)
    may_start: trio.Event = attrs.field(factory=trio.Event)
    leaves: trio.Event = attrs.field(factory=trio.Event)

    @property
    def host(self) -> str:
        """Its name in the network."""
        return f"node-{self.node_id}"


@attrs.frozen
class Parts:
    """The parts of a cluster.

    Attributes:
        nodes: number of brokers.
        topics: topics that exist before the first send.
        network: for listeners and connections.
        clock: of the brokers.
        random: chooses which unsynced bytes survive a power cut.
        record: for the trace, counts and violations.
        append_errors: fails some appends.
        sync_ms: longest time that a disk takes to make a file durable.
    """

    nodes: int
    topics: list[NewTopic]
    network: SimulatedNetwork
    clock: Clock
    random: Random
    record: RunRecord
    append_errors: AppendErrors
    sync_ms: float


class SimulatedCluster(ABC):
    """The brokers of one run; subclasses decide how they share partitions.

    Args:
        parts: the parts of the cluster.

    Attributes:
        nodes: by node id.
        topics: as given.
        parts: as given.
        record: as given.
    """

    def __init__(self, parts: Parts) -> None:
        self.nodes = {node_id: BrokerNode(node_id) for node_id in range(1, parts.nodes + 1)}
        for node in self.nodes.values():
            node.files.sync_s = partial(parts.random.uniform, 0, parts.sync_ms / 1000)
        self.topics = parts.topics
        self.parts = parts
        self.record = parts.record

    @abstractmethod
    def options_of(self, node: BrokerNode) -> dict[str, Any]:
        """Return further options to open a broker with."""

    @abstractmethod
    def opened(self, node: BrokerNode) -> None:
        """Called directly after a broker has opened."""

    def begin(self, nursery: trio.Nursery) -> None:  # noqa: B027 (most have nothing to do)
        """Called when all brokers run for the first time; ``nursery`` is the cluster's."""

    @property
    @abstractmethod
    def partitions(self) -> list[TopicPartition]:
        """The partitions that applications write to."""

    @abstractmethod
    def leader_log(self, topic_partition: TopicPartition) -> Log | None:
        """Return the leader's log; None if there is no leader or it is down."""

    @abstractmethod
    def move(self, topic_partition: TopicPartition, to: int) -> None:
        """Move the leadership to a node, if that is possible."""

    def missing(self, topic_partition: TopicPartition, offset: int, acks: int | str) -> str:
        """Return where a record that was just acknowledged is missing; "" if it is in place."""
        log = self.leader_log(topic_partition)
        return "in the log" if log is not None and log.log_end_offset <= offset else ""

    def may_be_lost(self, topic_partition: TopicPartition, offset: int) -> bool:
        """Return whether the record at this offset, acknowledged with acks=1, may be lost."""
        return False

    def check_replicas(self) -> None:  # noqa: B027 (there are none)
        """Check the replicas at the end of the run."""

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers."""
        return ",".join(f"{node.host}:{PORT}" for node in self.nodes.values())

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Run all brokers until cancelled; started when all have the topics."""
        async with trio.open_nursery() as nursery:
            for node in self.nodes.values():
                await nursery.start(self._run_node, node)
            self.begin(nursery)
            task_status.started()

    # --- one broker's life ----------------------------------------------------------------------------------

    async def _run_node(self, node: BrokerNode, *, task_status: trio.TaskStatus[None]) -> None:
        first = True
        while True:
            node.leaves = trio.Event()
            with trio.CancelScope() as node.life:
                try:
                    await self._live(node, task_status if first else trio.TASK_STATUS_IGNORED)
                except* (PowerCutError, KafkaStorageError) as errors:
                    self.record.note("ended", f"{node.host} {_kinds(errors)}")
            first = False
            node.broker = None
            self._after_the_end(node)
            await node.may_start.wait()
            await trio.sleep(_RESTART_S)  # a start may fail again and again, for example on a full disk

    async def _live(self, node: BrokerNode, task_status: trio.TaskStatus[None]) -> None:
        async with open_broker(
            ROOT,
            host=node.host,
            port=PORT,
            listen=self.parts.network.listen,
            clock=self.parts.clock,
            files=node.files,
            node_id=node.node_id,
            auto_create_topics_enable=False,
            **self.options_of(node),
        ) as broker:
            node.broker = broker
            self.opened(node)
            node.is_up.set()
            self.record.note("up", node.host)
            task_status.started()
            await node.leaves.wait()

    def _after_the_end(self, node: BrokerNode) -> None:
        if node.end == "kill":
            node.files.kill()
        elif node.end == "power cut":
            node.files.crash(self.parts.random)
        else:
            node.files.heal()
        self.record.note("down", f"{node.host} {node.end}")

    def end(self, node: BrokerNode, how: End) -> None:
        """End a broker's process: in order, by kill -9, or by a power cut. It stays down until `start`."""
        if node.broker is None:
            return
        node.end = how
        node.may_start, node.is_up = trio.Event(), trio.Event()
        if how != "stop":
            node.files.inject(Fault(None))  # its tasks still run for a moment, but nothing reaches the disk
        node.broker = None
        self.let_go(node, how)
        self.record.count(f"broker ended: {how}")

    def let_go(self, node: BrokerNode, how: End) -> None:
        """End a broker's tasks."""
        node.life.cancel()

    def start(self, node: BrokerNode) -> None:
        """Let a broker that was ended start again."""
        node.may_start.set()

    # --- its end --------------------------------------------------------------------------------------------

    def has_failed_log(self, node: BrokerNode) -> bool:
        """Return whether a disk error has made one of its logs read-only until it is started again."""
        logs = [] if node.broker is None else node.broker.logs.logs.values()
        return any(log.state is LogState.FAILED for log in logs)

    async def recover(self) -> None:
        """Heal all disks, and start the brokers that are down or have a failed log."""
        for node in self.nodes.values():
            node.files.heal()
            node.files.capacity_bytes = None
            if self.has_failed_log(node):
                self.end(node, "kill")
            if node.broker is None:
                self.start(node)
        for node in self.nodes.values():
            await node.is_up.wait()

    async def settle(self) -> None:
        """Wait until the brokers have nothing left to do; everything works, and nobody sends."""
        await self.complete_transactions()

    async def complete_transactions(self) -> None:
        """Wait until every decided transaction has its markers, or will never have them.

        A commit is answered with the decision; markers that a full disk refused are tried again later.
        """
        for _ in range(_LOOKS):
            if not any(self._owes_markers(node) for node in self.nodes.values()):
                return
            await trio.sleep(_LOOK_S)

    def _owes_markers(self, node: BrokerNode) -> bool:
        states = {} if node.broker is None else node.broker.transactions.states
        return any(each.is_prepared for each in states.values())


def _kinds(errors: BaseExceptionGroup[BaseException]) -> str:
    leaves = [*errors.exceptions]
    names = set()
    while leaves:
        error = leaves.pop()
        if isinstance(error, BaseExceptionGroup):
            leaves += error.exceptions
        else:
            names.add(type(error).__name__)
    return ", ".join(sorted(names))
