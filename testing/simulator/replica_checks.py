"""What must be true of replicas all the time: one leader per epoch, and what was committed stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splashdam.embedded_broker.controller.state import NOBODY, ClusterChange, ClusterState
from splashdam.model.values import Buffer, TopicPartition
from splashdam.record.batch import BatchHeader, iter_headers
from splashdam.storage.log import AppendResult, Log
from splashdam.testing.simulator.report import RunRecord

if TYPE_CHECKING:
    from splashdam.testing.simulator.cluster import BrokerNode
    from splashdam.testing.simulator.replicas import ReplicatedLogs


class ReplicaChecks:
    """Sees what the controller decides, and what becomes of high watermarks.

    It is the controller's journal, too, which never fails: all changes come by before they count.

    Args:
        cluster: whose replicas.
        record: what happened.
    """

    def __init__(self, cluster: ReplicatedLogs, record: RunRecord) -> None:
        self._cluster = cluster
        self._record = record
        self._leaders: dict[tuple[TopicPartition, int], int] = {}
        self._writers: dict[tuple[TopicPartition, int], int] = {}
        self._appended: dict[TopicPartition, list[tuple[int, int, int]]] = {}
        self._committed: dict[TopicPartition, dict[int, int]] = {}
        self._committed_end: dict[TopicPartition, int] = {}

    def keep(self, change: ClusterChange, before: ClusterState) -> None:
        """The controller has decided something."""
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
        """Who joins the ISR has everything that was ever committed."""
        committed_end = self._committed_end.get(where, 0)
        for node_id in sorted(nodes):
            log = self._cluster.log_at(node_id, where)
            if log is not None and log.log_end_offset < committed_end:
                self._record.violated(
                    f"node {node_id} joins the ISR of {where} with {log.log_end_offset} of {committed_end}"
                )

    # --- one log --------------------------------------------------------------------------------------------

    def watch(self, log: Log, node: BrokerNode) -> None:
        """From now on everything that happens to this replica is looked at."""
        append, advance = log.append_as_leader, log.advance_high_watermark
        truncate, start_anew = log.truncate_to, log.start_anew_at

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
            start_anew_at=started_anew,
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
                f"{node.host} cut {where} to {end}, below what is committed, {committed_end}"
            )

    def _check_committed(self, log: Log, node: BrokerNode) -> None:
        """Below a high watermark everything is at every broker in sync, and is for ever as it is now."""
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
        """Whether another leader has come since something was appended at this offset."""
        now = self._cluster.controller.partition(where).leader_epoch
        return any(base <= offset < end and epoch < now for base, end, epoch in self._appended.get(where, ()))

    # --- the end --------------------------------------------------------------------------------------------

    @property
    def behind(self) -> list[str]:
        """The partitions whose replicas are not in sync and equal."""
        return [
            f"{where} {state} {[(log.log_end_offset, log.high_watermark) for log in self._logs(where)]}"
            for where, state in self._cluster.controller.state.partitions.items()
            if set(state.isr) != set(state.replicas) or state.is_reassigning or not self._is_level(where)
        ]

    @property
    def is_in_sync(self) -> bool:
        """Whether all have everything, and know that."""
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
        """All replicas are equal byte for byte, and hold what was ever committed."""
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
                    f"{where}: what was below the high watermark is gone or another: {lost}"
                )


def _checksums(log: Log, start: int, end: int) -> dict[int, int]:
    """Of the batches from one offset to another, by their base offsets."""
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
