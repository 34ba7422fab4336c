"""N embedded brokers on disks in memory, with one map of leaders; they end, start and hand over on demand."""

from __future__ import annotations

from random import Random
from typing import Literal

import attrs
import trio

from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.embedded_broker.internal_topics import TRANSACTION_STATE
from splashdam.embedded_broker.leadership import LeadershipMap
from splashdam.embedded_broker.producer_ids import ProducerIds
from splashdam.embedded_broker.registry import Address
from splashdam.embedded_broker.storage.append_result import LogState
from splashdam.embedded_broker.storage.topic_registry import NewTopic
from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.values import TopicPartition
from splashdam.net.clock import Clock
from splashdam.testing.memory_files import Fault, MemoryFiles, PowerCutError
from splashdam.testing.simulator.moving import move_directory
from splashdam.testing.simulator.network import SimulatedNetwork
from splashdam.testing.simulator.report import RunRecord
from splashdam.testing.simulator.troubles import Troubles

ROOT = "/data"
PORT = 9092

_RESTART_S = 0.05
_LOOKS, _LOOK_S = 1_200, 0.1
"""For owed markers; together twice the coordinator's longest pause between two tries to write them."""

End = Literal["stop", "kill", "power cut"]


@attrs.define(eq=False)
class BrokerNode:
    """One broker: its disk, and the process while there is one.

    Attributes:
        node_id: from 1 on.
        files: the disk.
        broker: the running process, None while it is down.
        end: how it is being ended.
        life: the process's tasks.
        is_up: opens when it runs.
        may_start: opens when it may start again.
    """

    node_id: int
    files: MemoryFiles = attrs.field(factory=MemoryFiles)
    broker: Broker | None = None
    end: End = "stop"
    life: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    is_up: trio.Event = attrs.field(factory=trio.Event)
    may_start: trio.Event = attrs.field(factory=trio.Event)

    @property
    def host(self) -> str:
        """Its name in the network."""
        return f"node-{self.node_id}"


class SimulatedCluster:
    """The brokers of one run.

    Args:
        nodes: how many.
        topics: what is made before anybody sends.
        network: where they listen.
        clock: what they read the time from.
        random: decides what a power cut leaves.
        record: what happened.
        troubles: what appends meet.
    """

    def __init__(
        self,
        nodes: int,
        topics: list[NewTopic],
        *,
        network: SimulatedNetwork,
        clock: Clock,
        random: Random,
        record: RunRecord,
        troubles: Troubles,
    ) -> None:
        self.nodes = {node_id: BrokerNode(node_id) for node_id in range(1, nodes + 1)}
        self.map = LeadershipMap(ProducerIds(MemoryFiles(), "/", above=-1))
        self.topics = topics
        self._network = network
        self._clock = clock
        self._random = random
        self._record = record
        self._troubles = troubles
        for node in self.nodes.values():
            self.map.addresses[node.node_id] = Address(node.host, PORT)
        for topic in topics:
            for partition in range(topic.partitions):
                leader = 1 + (partition + len(topic.name)) % nodes
                self.map.appoint(TopicPartition(topic.name, partition), leader)

        self.map.appoint(TopicPartition(TRANSACTION_STATE, 0), 1)  # node 1 coordinates

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers."""
        return ",".join(f"{node.host}:{PORT}" for node in self.nodes.values())

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """All brokers, until cancelled; started once all have the topics."""
        async with trio.open_nursery() as nursery:
            for node in self.nodes.values():
                await nursery.start(self._run_node, node)
            task_status.started()

    # --- one broker's life ----------------------------------------------------------------------------------

    async def _run_node(self, node: BrokerNode, *, task_status: trio.TaskStatus[None]) -> None:
        first = True
        while True:
            with trio.CancelScope() as node.life:
                try:
                    await self._live(node, task_status if first else trio.TASK_STATUS_IGNORED)
                except* (PowerCutError, KafkaStorageError) as errors:
                    self._record.note("ended", f"{node.host} {_kinds(errors)}")
            first = False
            node.broker = None
            self._after_the_end(node)
            await node.may_start.wait()
            await trio.sleep(_RESTART_S)  # one that cannot start, as on a full disk, is tried again and again

    async def _live(self, node: BrokerNode, task_status: trio.TaskStatus[None]) -> None:
        async with open_broker(
            ROOT,
            host=node.host,
            port=PORT,
            listen=self._network.listen,
            clock=self._clock,
            files=node.files,
            leadership=self.map,
            node_id=node.node_id,
            auto_create_topics_enable=False,
            transaction_state_log_num_partitions=1,
        ) as broker:
            missing = [topic for topic in self.topics if broker.topics.get(topic.name) is None]
            if missing:
                broker.topics.add(missing)
            for log in broker.logs.logs.values():
                self._troubles.watch(log, node.node_id)
            node.broker = broker
            node.is_up.set()
            self._record.note("up", node.host)
            task_status.started()
            await trio.sleep_forever()

    def _after_the_end(self, node: BrokerNode) -> None:
        if node.end == "kill":
            node.files.kill()
        elif node.end == "power cut":
            node.files.crash(self._random)
        else:
            node.files.heal()
        self._record.note("down", f"{node.host} {node.end}")

    @property
    def partitions(self) -> list[TopicPartition]:
        """Those that applications write to."""
        return [each for each in sorted(self.map.leaders) if each.topic != TRANSACTION_STATE]

    def end(self, node: BrokerNode, how: End) -> None:
        """Ends a broker's process: in order, by kill -9, or by a power cut. It stays down until `start`."""
        if node.broker is None:
            return
        node.end = how
        node.may_start, node.is_up = trio.Event(), trio.Event()
        if how != "stop":
            node.files.inject(Fault(None))  # nothing it does on its way out reaches the disk
        node.broker = None
        node.life.cancel()
        self._record.count(f"broker ended: {how}")

    def start(self, node: BrokerNode) -> None:
        """Lets a broker that was ended start again."""
        node.may_start.set()

    # --- what else happens to brokers -----------------------------------------------------------------------

    def move(self, topic_partition: TopicPartition, to: int) -> None:
        """Another leader takes over, also from a broker that is down; nothing happens where one cannot."""
        old = self.nodes[self.map.leaders[topic_partition].node_id]
        new = self.nodes[to]
        if old is new or new.broker is None or old.files.is_faulty or new.files.is_faulty:
            return
        clean = self._let_go(old, topic_partition)
        leader = self.map.appoint(topic_partition, to)
        directory = f"{ROOT}/{topic_partition}"
        move_directory(old.files, directory, new.files, directory)
        new.broker.logs.take_over(
            topic_partition,
            leader_epoch=leader.leader_epoch,
            now_ms=self._clock.wall_ms(),
            clean_shutdown=clean,
        )
        self._troubles.watch(new.broker.logs.logs[topic_partition], to)
        self._record.note("leader", f"{topic_partition} {old.host} -> {new.host} {leader.leader_epoch}")
        self._record.count("leader moves" if clean else "leader moves from a broker that failed")

    def _let_go(self, old: BrokerNode, topic_partition: TopicPartition) -> bool:
        """Whether the log was closed in order."""
        if old.broker is None:
            return False
        try:
            old.broker.logs.release(topic_partition)
        except KafkaStorageError:
            return False
        finally:
            old.broker.parking.changed(topic_partition)
        return True

    def has_failed_log(self, node: BrokerNode) -> bool:
        """Whether a disk error has made one of its logs read-only until it is started again."""
        logs = [] if node.broker is None else node.broker.logs.logs.values()
        return any(log.state is LogState.FAILED for log in logs)

    async def recover(self) -> None:
        """Everything works again: disks are healed, and brokers that need it are started anew."""
        for node in self.nodes.values():
            node.files.heal()
            node.files.capacity_bytes = None
            if self.has_failed_log(node):
                self.end(node, "kill")
            if node.broker is None:
                self.start(node)
        for node in self.nodes.values():
            await node.is_up.wait()

    async def complete_transactions(self) -> None:
        """Returns when every decided transaction has its markers, or will never have them.

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
