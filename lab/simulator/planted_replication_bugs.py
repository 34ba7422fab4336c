"""Planted bugs of replication, each a patch of one method: the simulator must find every one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from support.running.patches import perhaps

from splashdam.embedded_broker.controller.state import PartitionState
from splashdam.embedded_broker.replication import replica_fetcher
from splashdam.embedded_broker.replication.isr import Follower, LeaderState
from splashdam.embedded_broker.replication.partition import Partition
from splashdam.embedded_broker.replication.replica_manager import ReplicaManager
from splashdam.model.broker_errors import NotLeaderOrFollowerError

Plant = Callable[[pytest.MonkeyPatch], None]


def high_watermark_runs_ahead_of_the_isr(patch: pytest.MonkeyPatch) -> None:
    """The leader's high watermark follows the fastest in-sync replica instead of the slowest."""

    def of_the_fastest(self: LeaderState, current: int, log_end_offset: int, now_ms: float) -> int:
        ends = [self.followers[node].end_offset for node in self.state.isr if node != self.node_id]
        return max(current, *ends) if ends else log_end_offset

    patch.setattr(LeaderState, "high_watermark", of_the_fastest)


def truncated_to_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """A follower truncates to its high watermark, and not where its log diverges (as before KIP-101)."""

    def to_the_high_watermark(*_: Any, log_end_offset: int, high_watermark: int) -> int:
        return min(high_watermark, log_end_offset)

    apply = ReplicaManager._follow

    def follow(self: ReplicaManager, partition: Partition, state: PartitionState) -> None:
        is_new = state.leader_epoch != partition.state.leader_epoch
        apply(self, partition, state)
        if is_new and partition.log.high_watermark < partition.log.log_end_offset:
            partition.log.truncate_to(partition.log.high_watermark, now_ms=self.clock.wall_ms())

    late = perhaps(to_the_high_watermark, because="few followers truncated like this differ from the leader")
    patch.setattr(replica_fetcher, "truncation_offset", late)
    patch.setattr(ReplicaManager, "_follow", follow)


def acknowledged_before_the_followers_have_it(patch: pytest.MonkeyPatch) -> None:
    """The leader does not wait for followers, even with acks=all."""

    async def at_once(self: Partition, *_: Any) -> None:
        self.leading()

    patch.setattr(Partition, "wait_replicated", at_once)


def isr_grows_too_early(patch: pytest.MonkeyPatch) -> None:
    """A follower joins the ISR at its first fetch, however far it is behind."""

    def at_the_first_fetch(self: LeaderState, node: int, high_watermark: int) -> tuple[int, ...] | None:
        if self.proposed is not None or node in self.state.isr or not self._is_eligible(node):
            return None
        return self._in_order({*self.state.isr, node})

    patch.setattr(LeaderState, "expansion", at_the_first_fetch)


def old_leaders_are_not_fenced(patch: pytest.MonkeyPatch) -> None:
    """A former leader acknowledges waiting batches, though the new leader may not have them."""
    wait = Partition.wait_replicated

    async def until_it_is_over(self: Partition, offset: int, term: int) -> None:
        with suppress(NotLeaderOrFollowerError):
            await wait(self, offset, term)

    patch.setattr(Partition, "wait_replicated", until_it_is_over)


def what_was_sent_counts_as_fetched(patch: pytest.MonkeyPatch) -> None:
    """A follower counts as having the records of an answer before it has asked for the next ones."""
    fetched = Follower.fetched

    def has_it_all(self: Follower, offset: int, leader_end_offset: int, now_ms: float) -> None:
        fetched(self, leader_end_offset, leader_end_offset, now_ms)

    patch.setattr(Follower, "fetched", has_it_all)


def producers_forgotten_at_a_failover(patch: pytest.MonkeyPatch) -> None:
    """A new leader forgets the producers whose batches it has fetched."""
    lead = Partition.lead

    def lead_without_producers(self: Partition, state: PartitionState) -> None:
        if self.leader is None:
            self.log.producers._entries.clear()
        lead(self, state)

    patch.setattr(Partition, "lead", lead_without_producers)


REPLICATION_PLANTS: dict[Plant, tuple[int, ...]] = {
    high_watermark_runs_ahead_of_the_isr: (0, 1),
    truncated_to_the_high_watermark: (8, 72),
    acknowledged_before_the_followers_have_it: (0, 1),
    isr_grows_too_early: (6, 9),
    old_leaders_are_not_fenced: (16, 292),
    what_was_sent_counts_as_fetched: (1, 3),
    producers_forgotten_at_a_failover: (9, 40),
}
"""The planted bugs, with seeds that have found them on brokers that replicate."""
