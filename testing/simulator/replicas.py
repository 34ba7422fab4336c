"""Brokers that replicate under one controller, over lines of the simulated network."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any, cast

import trio

from splashdam.embedded_broker.configs.broker_settings import BrokerSettings
from splashdam.embedded_broker.configs.own_topics import (
    INTERNAL_TOPICS,
    TRANSACTION_STATE,
    new_internal_topic,
)
from splashdam.embedded_broker.controller.controller import Controller
from splashdam.embedded_broker.controller.election import changed, moved
from splashdam.embedded_broker.controller.producer_ids import ProducerIds
from splashdam.embedded_broker.controller.reassignment import begun
from splashdam.embedded_broker.controller.state import ClusterState
from splashdam.embedded_broker.replication.membership import Membership
from splashdam.model.errors import BrokerResponseError, KafkaConnectionError
from splashdam.model.values import TopicPartition
from splashdam.net.memory import MemoryStream
from splashdam.storage.files.memory import MemoryFiles
from splashdam.storage.log import Log
from splashdam.testing.simulator.cluster import BrokerNode, End, Parts, SimulatedCluster
from splashdam.testing.simulator.distance import DistantController
from splashdam.testing.simulator.replica_checks import ReplicaChecks
from splashdam.testing.simulator.scenario import ReplicationPlan

_IN_SYNC_S, _LOOK_S = 120.0, 0.1
"""Virtual: by then all replicas are in sync, once nothing goes wrong any more."""


def line_name(one: BrokerNode, other: BrokerNode) -> str:
    """The network's name for the line between two brokers."""
    return "-".join(sorted((one.host, other.host)))


class ReplicatedLogs(SimulatedCluster):
    """A `SimulatedCluster` with followers.

    Args:
        parts: as for `SimulatedCluster`.
        plan: how they replicate.
        random: places partitions.

    Attributes:
        plan: as given.
        controller: as it is; brokers see it from afar.
        lines: what each broker sees of it.
        checks: of what must be true all the time.
        cut_lines: between which brokers there are no connections.
    """

    def __init__(self, parts: Parts, plan: ReplicationPlan, random: Random) -> None:
        super().__init__(parts)
        self.plan = plan
        self.checks = ReplicaChecks(self, parts.record)
        self.controller = Controller(
            self.checks, ProducerIds(MemoryFiles(), "/", above=-1), lambda _configs: False, random
        )
        self.controller.begin(ClusterState())
        self.lines = {node_id: DistantController(self.controller, self._watch_all) for node_id in self.nodes}
        self.cut_lines: set[str] = set()
        self._nursery: trio.Nursery | None = None

    def begin(self, nursery: trio.Nursery) -> None:
        """Makes all topics."""
        self._nursery = nursery
        settings = BrokerSettings.from_options(self.plan.settings, {})
        state_topic = new_internal_topic(TRANSACTION_STATE, settings)
        assert state_topic is not None
        self.controller.create_topics([*self.topics, state_topic], lambda _configs: None)

    # --- brokers --------------------------------------------------------------------------------------------

    def options_of(self, node: BrokerNode) -> dict[str, Any]:
        """Its place in the cluster."""
        line = self.lines[node.node_id]
        line.mend()
        controller = cast("Controller", line)  # all that a broker asks is there
        return {
            "membership": Membership(controller, partial(self.connect, node), line),
            **self.plan.settings,
        }

    def opened(self, node: BrokerNode) -> None:
        """Watches its logs."""
        self._watch_all()

    def _watch_all(self) -> None:
        for node in self.nodes.values():
            logs = {} if node.broker is None else node.broker.logs.logs
            for topic_partition in sorted(logs):
                if topic_partition.topic not in INTERNAL_TOPICS:
                    self._watch(logs[topic_partition], node)

    def _watch(self, log: Log, node: BrokerNode) -> None:
        if "append_as_leader" not in vars(log):
            self.parts.troubles.watch(log, node.node_id)
            self.checks.watch(log, node)

    async def connect(self, source: BrokerNode, node_id: int) -> MemoryStream:
        """A connection between brokers."""
        await trio.lowlevel.checkpoint()
        target, network = self.nodes[node_id], self.parts.network
        name = line_name(source, target)
        if target.broker is None or name in self.cut_lines:
            raise KafkaConnectionError(f"node {node_id} is not reached")
        ours, theirs = network.make_pair(name, 0)
        target.broker.adopt(theirs, is_trusted=True)
        return ours

    def end(self, node: BrokerNode, how: End) -> None:
        """As for `SimulatedCluster`; a power cut that would take the only copy of something is a kill."""
        if how == "power cut" and not (self.plan.is_durable or self._has_copies(node)):
            how = "kill"
        super().end(node, how)

    def _has_copies(self, node: BrokerNode) -> bool:
        """Whether everything that counts is at another broker, too."""
        return all(
            any(self.nodes[each].broker is not None for each in state.isr if each != node.node_id)
            for state in self.controller.state.partitions.values()
            if node.node_id in state.isr
        )

    def let_go(self, node: BrokerNode, how: End) -> None:
        """In order: it hands its leads over first."""
        if how == "stop":
            node.leaves.set()
        else:
            node.life.cancel()

    # --- leaders --------------------------------------------------------------------------------------------

    @property
    def partitions(self) -> list[TopicPartition]:
        """Those that applications write to."""
        return sorted(each for each in self.controller.state.partitions if each.topic not in INTERNAL_TOPICS)

    def leader_log(self, topic_partition: TopicPartition) -> Log | None:
        """By the controller's word."""
        return self.log_at(self.controller.partition(topic_partition).leader, topic_partition)

    def log_at(self, node_id: int, topic_partition: TopicPartition) -> Log | None:
        """A replica, of a broker that runs."""
        node = self.nodes.get(node_id)
        return None if node is None or node.broker is None else node.broker.logs.logs.get(topic_partition)

    def move(self, topic_partition: TopicPartition, to: int) -> None:
        """To another replica in sync."""
        state = self.controller.state
        try:
            after = moved(self.controller.partition(topic_partition), to, state.is_eligible)
        except BrokerResponseError:
            return
        self.controller.change_partitions({topic_partition: after})

    def elect_preferred(self) -> None:
        """The first replica of each partition leads it, where it is in sync."""
        state = self.controller.state
        self.controller.change_partitions(
            {each: changed(now, state.is_eligible, preferred=True) for each, now in state.partitions.items()}
        )

    def reassign(self, topic_partition: TopicPartition, replicas: list[int]) -> None:
        """Other replicas."""
        state = self.controller.state
        after = begun(self.controller.partition(topic_partition), replicas, state.is_eligible)
        self.controller.change_partitions({topic_partition: after})

    def rejoin(self, node: BrokerNode) -> None:
        """The line to the controller is whole again: the broker hears what it has missed."""
        line = self.lines[node.node_id]
        line.mend()
        line.catch_up()
        if node.broker is not None and self.controller.state.brokers[node.node_id].is_fenced:
            node.broker.member.join()

    def fence_later(self, node: BrokerNode) -> None:
        """The controller has no word of a broker any more, and takes it for down in time."""
        assert self._nursery is not None
        self._nursery.start_soon(self._fence, node, self.controller.state.brokers[node.node_id].epoch)

    async def _fence(self, node: BrokerNode, broker_epoch: int) -> None:
        await trio.sleep(self.plan.session_ms / 1000)
        line, known = self.lines[node.node_id], self.controller.state.brokers[node.node_id]
        if known.epoch != broker_epoch or known.is_fenced:
            return
        if line.is_silent:
            self.controller.leave(node.node_id, broker_epoch)
        elif not line.is_asked:
            self.controller.fence(node.node_id)

    # --- checks ---------------------------------------------------------------------------------------------

    def missing(self, topic_partition: TopicPartition, offset: int, acks: int | str) -> str:
        """What all have acknowledged is at every broker in sync that runs."""
        if acks != "all":
            return ""
        for node_id in self.controller.partition(topic_partition).isr:
            log = self.log_at(node_id, topic_partition)
            if log is not None and log.log_end_offset <= offset:
                return f"at node {node_id}, which is in sync"
        return ""

    def may_be_lost(self, topic_partition: TopicPartition, offset: int) -> bool:
        """Whether another broker has led since it was appended."""
        return self.checks.epoch_has_passed(topic_partition, offset)

    def check_replicas(self) -> None:
        """All are the same; whoever ends from now on ends with the run."""
        self.controller.end()
        self.checks.check_end()

    async def recover(self) -> None:
        """Lines as well."""
        self.cut_lines.clear()
        for node in self.nodes.values():
            self.rejoin(node)
        await super().recover()

    async def settle(self) -> None:
        """Until markers are written and all replicas have everything."""
        await super().settle()
        with trio.move_on_after(_IN_SYNC_S) as scope:
            while not self.checks.is_in_sync:  # noqa: ASYNC110 (nothing tells of it)
                await trio.sleep(_LOOK_S)
        if scope.cancelled_caught:
            self.record.violated(f"after {_IN_SYNC_S} s of calm not in sync: {self.checks.behind}")
