"""Brokers that replicate under one controller, over lines of the simulated network.

`DistantController` stands between a broker and the controller: changes arrive late, requests and answers get
lost. `ReplicaChecks` checks during the run that each epoch has one leader, and that committed records stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, cast

import trio

from lab.simulator.cluster import BrokerNode, End, Parts, SimulatedCluster
from lab.simulator.report import RunRecord
from lab.simulator.scenario import ReplicationPlan
from splashdam.embedded_broker.configs.broker_settings import BrokerSettings
from splashdam.embedded_broker.controller.controller import Controller, Member
from splashdam.embedded_broker.controller.election import changed, moved
from splashdam.embedded_broker.controller.producer_ids import ProducerIds
from splashdam.embedded_broker.controller.reassignment import begun
from splashdam.embedded_broker.controller.state import (
    NOBODY,
    ClusterChange,
    ClusterState,
    IsrAnswer,
    IsrProposal,
)
from splashdam.embedded_broker.execution.answers import Address
from splashdam.embedded_broker.replication.replica_manager import Membership
from splashdam.embedded_broker.topics.topics import new_internal_topic
from splashdam.model.broker_errors import BrokerResponseError, NetworkExceptionError
from splashdam.model.errors import KafkaConnectionError
from splashdam.model.values import Buffer, TopicPartition
from splashdam.net.memory import MemoryStream
from splashdam.record.batch import BatchHeader, iter_headers
from splashdam.storage.files.memory import MemoryFiles, PowerCutError
from splashdam.storage.log import AppendResult, Log
from splashdam.storage.topic_names import (
    INTERNAL_TOPICS,
    TRANSACTION_STATE,
)

if TYPE_CHECKING:
    from lab.simulator.cluster import BrokerNode

_IN_SYNC_S, _LOOK_S = 120.0, 0.1
"""Virtual time until all replicas must be in sync after the last fault, and the pause between polls."""


def line_name(one: BrokerNode, other: BrokerNode) -> str:
    """Return the network's name of the line between two brokers."""
    return "-".join(sorted((one.host, other.host)))


class ReplicatedCluster(SimulatedCluster):
    """A `SimulatedCluster` whose brokers replicate.

    Args:
        parts: as for `SimulatedCluster`.
        plan: settings of replication.
        random: places partitions.

    Attributes:
        plan: as given.
        controller: the real controller; brokers reach it through ``lines``.
        lines: the `DistantController` of each broker, by node id.
        checks: checks the replicas during the run.
        cut_lines: lines that take no connections.
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
        """Create all topics."""
        self._nursery = nursery
        settings = BrokerSettings.from_options(self.plan.settings, {})
        state_topic = new_internal_topic(TRANSACTION_STATE, settings)
        assert state_topic is not None
        self.controller.create_topics([*self.topics, state_topic], lambda _configs: None)

    # --- brokers --------------------------------------------------------------------------------------------

    def options_of(self, node: BrokerNode) -> dict[str, Any]:
        """Return the broker's membership of the cluster, and the plan's settings."""
        line = self.lines[node.node_id]
        line.mend()
        controller = cast("Controller", line)  # `DistantController` has all methods that a broker calls
        return {
            "membership": Membership(controller, partial(self.connect, node), line),
            **self.plan.settings,
        }

    def opened(self, node: BrokerNode) -> None:
        """Watch the broker's logs."""
        self._watch_all()

    def _watch_all(self) -> None:
        for node in self.nodes.values():
            logs = {} if node.broker is None else node.broker.logs.logs
            for topic_partition in sorted(logs):
                if topic_partition.topic not in INTERNAL_TOPICS:
                    self._watch(logs[topic_partition], node)

    def _watch(self, log: Log, node: BrokerNode) -> None:
        if "append_as_leader" not in vars(log):
            self.parts.append_errors.watch(log, node.node_id)
            self.checks.watch(log, node)

    async def connect(self, source: BrokerNode, node_id: int) -> MemoryStream:
        """Connect one broker to another."""
        await trio.lowlevel.checkpoint()
        target, network = self.nodes[node_id], self.parts.network
        name = line_name(source, target)
        if target.broker is None or name in self.cut_lines:
            raise KafkaConnectionError(f"node {node_id} is not reached")
        ours, theirs = network.make_pair(name, 0)
        target.broker.server.adopt(theirs, is_trusted=True)
        return ours

    def end(self, node: BrokerNode, how: End) -> None:
        """As for `SimulatedCluster`; a power cut that would destroy an only copy becomes a kill."""
        if how == "power cut" and not (self.plan.is_durable or self._has_copies(node)):
            how = "kill"
        super().end(node, how)

    def _has_copies(self, node: BrokerNode) -> bool:
        """Return whether each partition for which this broker is in sync has another live in-sync replica."""
        return all(
            any(self.nodes[each].broker is not None for each in state.isr if each != node.node_id)
            for state in self.controller.state.partitions.values()
            if node.node_id in state.isr
        )

    def let_go(self, node: BrokerNode, how: End) -> None:
        """End a broker's tasks; a broker that stops in order first moves its leaderships."""
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
        """Return the log of the leader by the controller's state."""
        return self.log_at(self.controller.partition(topic_partition).leader, topic_partition)

    def log_at(self, node_id: int, topic_partition: TopicPartition) -> Log | None:
        """Return a replica's log; None if its broker is down."""
        node = self.nodes.get(node_id)
        return None if node is None or node.broker is None else node.broker.logs.logs.get(topic_partition)

    def move(self, topic_partition: TopicPartition, to: int) -> None:
        """Move the leadership to another in-sync replica."""
        state = self.controller.state
        try:
            after = moved(self.controller.partition(topic_partition), to, state.is_eligible)
        except BrokerResponseError:
            return
        self.controller.change_partitions({topic_partition: after})

    def elect_preferred(self) -> None:
        """Make the first replica of each partition its leader, if it is in sync."""
        state = self.controller.state
        self.controller.change_partitions(
            {each: changed(now, state.is_eligible, preferred=True) for each, now in state.partitions.items()}
        )

    def reassign(self, topic_partition: TopicPartition, replicas: list[int]) -> None:
        """Begin a reassignment to other replicas."""
        state = self.controller.state
        after = begun(self.controller.partition(topic_partition), replicas, state.is_eligible)
        self.controller.change_partitions({topic_partition: after})

    def rejoin(self, node: BrokerNode) -> None:
        """Mend the line to the controller, and deliver the changes that the broker has missed."""
        line = self.lines[node.node_id]
        line.mend()
        line.catch_up()
        if node.broker is not None and self.controller.state.brokers[node.node_id].is_fenced:
            node.broker.member.join()

    def fence_later(self, node: BrokerNode) -> None:
        """Fence a broker after its session timeout: the controller has no heartbeats of it."""
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
        """Name an in-sync broker that lacks a record acknowledged with acks=all; "" if all have it."""
        if acks != "all":
            return ""
        for node_id in self.controller.partition(topic_partition).isr:
            log = self.log_at(node_id, topic_partition)
            if log is not None and log.log_end_offset <= offset:
                return f"at node {node_id}, which is in sync"
        return ""

    def may_be_lost(self, topic_partition: TopicPartition, offset: int) -> bool:
        """Return whether another broker has become leader since the record was appended."""
        return self.checks.epoch_has_passed(topic_partition, offset)

    def check_replicas(self) -> None:
        """Check that all replicas are equal; brokers that stop from now on move no leaderships."""
        self.controller.end()
        self.checks.check_end()

    async def recover(self) -> None:
        """Mend all lines, then as `SimulatedCluster`."""
        self.cut_lines.clear()
        for node in self.nodes.values():
            self.rejoin(node)
        await super().recover()

    async def settle(self) -> None:
        """Wait until all markers are written and all replicas are in sync."""
        await super().settle()
        with trio.move_on_after(_IN_SYNC_S) as scope:
            while not self.checks.is_in_sync:  # noqa: ASYNC110 (there is no event for it)
                await trio.sleep(_LOOK_S)
        if scope.cancelled_caught:
            self.record.violated(f"after {_IN_SYNC_S} s of calm not in sync: {self.checks.behind}")


class DistantController:
    """The controller as one broker sees it, over a line with faults.

    Args:
        controller: the controller.
        on_news: called after the broker has applied a change.

    Attributes:
        state: the cluster's state as far as the broker knows.
        hears: whether changes arrive; else they wait.
        is_asked: whether the broker's requests arrive.
        answers: whether the controller's answers arrive.
        is_silent: whether the controller does not notice the broker's end.
    """

    def __init__(self, controller: Controller, on_news: Callable[[], None]) -> None:
        self._controller = controller
        self._on_news = on_news
        self._member: Member | None = None
        self._delayed: list[ClusterChange] = []
        self.state = ClusterState()
        self.mend()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._controller, name)

    def mend(self) -> None:
        """Let everything arrive from now on."""
        self.hears = self.is_asked = self.answers = True
        self.is_silent = False

    def catch_up(self) -> None:
        """Deliver the changes that have waited."""
        self.hears = True
        delayed, self._delayed = self._delayed, []
        for change in delayed:
            self.deliver(change)

    def deliver(self, change: ClusterChange) -> None:
        """Deliver a change to the broker, now or later."""
        if self._member is None:
            return
        if not self.hears:
            self._delayed.append(change)
            return
        self.state.apply(change)
        with suppress(PowerCutError):  # the broker is about to end
            self._member.apply(change)
        self._on_news()

    # --- requests of the broker -----------------------------------------------------------------------------

    def register(self, member: Member, listeners: Mapping[str, Address], rack: str | None = None) -> int:
        """Register the broker, at its start or after it was fenced."""
        self._member, self._delayed, self.state = member, [], ClusterState()
        return self._controller.register(_RemoteMember(member.node_id, self), listeners, rack)

    def leave(self, node_id: int, broker_epoch: int) -> None:
        """Report the broker's end."""
        self._member = None
        if not self.is_silent:
            self._controller.leave(node_id, broker_epoch)

    def begin_shutdown(self, node_id: int, broker_epoch: int) -> bool:
        """Begin the broker's controlled shutdown."""
        return self.is_asked and self._controller.begin_shutdown(node_id, broker_epoch)

    def alter_partitions(
        self, node_id: int, broker_epoch: int, proposals: Mapping[TopicPartition, IsrProposal]
    ) -> Mapping[TopicPartition, IsrAnswer]:
        """Propose ISRs of the broker's partitions."""
        if not self.is_asked:
            raise NetworkExceptionError("the request was lost, on purpose")
        answers = self._controller.alter_partitions(node_id, broker_epoch, proposals)
        if not self.answers:
            raise NetworkExceptionError("the answer was lost, on purpose")
        return answers


class _RemoteMember:
    """The broker as the controller sees it: changes go over the line."""

    def __init__(self, node_id: int, line: DistantController) -> None:
        self.node_id = node_id
        self._line = line

    def apply(self, change: ClusterChange) -> None:
        """Send a change over the line."""
        self._line.deliver(change)


class ReplicaChecks:
    """Checks the controller's decisions and the high watermarks during the run.

    It serves as the controller's journal, so it sees each change before it takes effect.

    Args:
        cluster: has the replicas.
        record: for the trace, counts and violations.
    """

    def __init__(self, cluster: ReplicatedCluster, record: RunRecord) -> None:
        self._cluster = cluster
        self._record = record
        self._leaders: dict[tuple[TopicPartition, int], int] = {}
        self._writers: dict[tuple[TopicPartition, int], int] = {}
        self._appended: dict[TopicPartition, list[tuple[int, int, int]]] = {}
        self._committed: dict[TopicPartition, dict[int, int]] = {}
        self._committed_end: dict[TopicPartition, int] = {}

    def keep(self, change: ClusterChange, before: ClusterState) -> None:
        """Check and count a decision of the controller."""
        for where, state in change.partitions.items():
            known = before.partitions.get(where)
            if state.leader != NOBODY:
                leader = self._leaders.setdefault((where, state.leader_epoch), state.leader)
                if leader != state.leader:
                    self._record.violated(f"{where} is led by {leader} and {state.leader} in one epoch")
            if known is None:
                continue
            self._check_joining(where, set(state.isr) - set(known.isr))
            self._record.note(
                "partition", f"{where} leader={state.leader}/{state.leader_epoch} isr={state.isr}"
            )
            if known.leader != state.leader:
                self._record.count("leader changes" if state.leader != NOBODY else "leaders lost")
            elif len(known.isr) != len(state.isr):
                self._record.count("ISR grows" if len(known.isr) < len(state.isr) else "ISR shrinks")

    def _check_joining(self, where: TopicPartition, nodes: set[int]) -> None:
        """Check that a replica that joins the ISR has every committed record."""
        committed_end = self._committed_end.get(where, 0)
        for node_id in sorted(nodes):
            log = self._cluster.log_at(node_id, where)
            if log is not None and log.log_end_offset < committed_end:
                self._record.violated(
                    f"node {node_id} joins the ISR of {where} with {log.log_end_offset} of {committed_end}"
                )

    # --- one log --------------------------------------------------------------------------------------------

    def watch(self, log: Log, node: BrokerNode) -> None:
        """Patch a replica's log, so that its appends, high watermarks and truncations are checked."""
        append, advance = log.append_as_leader, log.advance_high_watermark
        truncate, start_anew = log.truncate_to, log.truncate_fully_and_start_at

        def appended(
            batch: Buffer,
            *,
            now_ms: int,
            leader_epoch: int | None = None,
            header: BatchHeader | None = None,
        ) -> AppendResult:
            result = append(batch, now_ms=now_ms, leader_epoch=leader_epoch, header=header)
            if not result.duplicate:
                self._check_writer(log, node, result)
            return result

        def advanced(offset: int) -> bool:
            has_moved = advance(offset)
            if has_moved:
                self._check_committed(log, node)
            return has_moved

        def truncated(offset: int, *, now_ms: int) -> None:
            before, high_watermark = log.log_end_offset, log.high_watermark
            truncate(offset, now_ms=now_ms)
            if log.log_end_offset < before:
                self._check_cut(log, node, before, high_watermark)

        def started_anew(offset: int, *, now_ms: int) -> None:
            before, high_watermark = log.log_end_offset, log.high_watermark
            start_anew(offset, now_ms=now_ms)
            self._check_cut(log, node, before, high_watermark)

        vars(log).update(
            append_as_leader=appended,
            advance_high_watermark=advanced,
            truncate_to=truncated,
            truncate_fully_and_start_at=started_anew,
        )

    def _check_writer(self, log: Log, node: BrokerNode, result: AppendResult) -> None:
        where, epoch = log.topic_partition, log.leader_epoch
        writer = self._writers.setdefault((where, epoch), node.node_id)
        if writer != node.node_id:
            self._record.violated(f"{node.host} appends to {where} in epoch {epoch} of node {writer}")
        self._appended.setdefault(where, []).append((result.base_offset, log.log_end_offset, epoch))

    def _check_cut(self, log: Log, node: BrokerNode, before: int, high_watermark: int) -> None:
        where, end = log.topic_partition, log.log_end_offset
        self._record.note("truncated", f"{where} {node.host} {before} -> {end}")
        self._record.count("replicas truncated")
        in_sync = node.node_id in self._cluster.controller.partition(where).isr
        committed_end = max(high_watermark, self._committed_end.get(where, 0) if in_sync else 0)
        if end < committed_end:
            self._record.violated(
                f"{node.host} truncated {where} to {end}, below the committed records up to {committed_end}"
            )

    def _check_committed(self, log: Log, node: BrokerNode) -> None:
        """Check that every in-sync replica has the records below a high watermark; keep their checksums."""
        where, end = log.topic_partition, log.high_watermark
        start = self._committed_end.get(where, 0)
        if end <= start:
            return
        self._committed_end[where] = end
        for node_id in self._cluster.controller.partition(where).isr:
            replica = self._cluster.log_at(node_id, where)
            if replica is not None and replica.log_end_offset < end:
                self._record.violated(
                    f"the high watermark of {where} is {end} at {node.host}, and node {node_id}, which is"
                    f" in sync, ends at {replica.log_end_offset}"
                )
        self._committed.setdefault(where, {}).update(_checksums(log, start, end))

    def epoch_has_passed(self, where: TopicPartition, offset: int) -> bool:
        """Return whether the leader has changed since an append at this offset."""
        now = self._cluster.controller.partition(where).leader_epoch
        return any(base <= offset < end and epoch < now for base, end, epoch in self._appended.get(where, ()))

    # --- the end --------------------------------------------------------------------------------------------

    @property
    def behind(self) -> list[str]:
        """Descriptions of the partitions whose replicas are not in sync and equal."""
        return [
            f"{where} {state} {[(log.log_end_offset, log.high_watermark) for log in self._logs(where)]}"
            for where, state in self._cluster.controller.state.partitions.items()
            if set(state.isr) != set(state.replicas) or state.is_reassigning or not self._is_level(where)
        ]

    @property
    def is_in_sync(self) -> bool:
        """Whether all replicas have all records and the same high watermark."""
        return not self.behind

    def _logs(self, where: TopicPartition) -> list[Log]:
        replicas = self._cluster.controller.partition(where).replicas
        found = [self._cluster.log_at(node_id, where) for node_id in replicas]
        return [log for log in found if log is not None]

    def _is_level(self, where: TopicPartition) -> bool:
        logs = self._logs(where)
        ends = {end for log in logs for end in (log.log_end_offset, log.high_watermark)}
        return len(ends) == 1 and len(logs) == len(self._cluster.controller.partition(where).replicas)

    def check_end(self) -> None:
        """Check that all replicas are equal byte for byte, and have every record that was ever committed."""
        for where in sorted(self._cluster.controller.state.partitions):
            contents = {b"".join(bytes(batch) for _, batch in log.batches()) for log in self._logs(where)}
            if len(contents) > 1 and where in self._cluster.partitions:
                self._record.violated(f"the replicas of {where} differ")
        for where, committed in sorted(self._committed.items()):
            log = self._cluster.leader_log(where)
            found = {} if log is None else _checksums(log, 0, log.log_end_offset)
            lost = [offset for offset, checksum in committed.items() if found.get(offset) != checksum]
            if lost:
                self._record.violated(
                    f"{where}: records below the high watermark are gone or changed: {lost}"
                )


def _checksums(log: Log, start: int, end: int) -> dict[int, int]:
    """Return the checksums of the batches from one offset to another, by base offset."""
    found = {}
    offset = start
    while offset < end:
        piece = log.read(offset, 1 << 20)
        data = bytes(piece.read())
        piece.close()
        headers = [header for _, header in iter_headers(data)]
        if not headers:
            break
        for header in headers:
            offset = header.base_offset + header.last_offset_delta + 1
            if start <= header.base_offset < end:
                found[header.base_offset] = header.crc
    return found
