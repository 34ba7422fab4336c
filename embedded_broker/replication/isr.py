"""A leader's state of its followers, from which high watermark and ISR follow. Pure.

The rules are Kafka's (Partition.scala). A follower's fetch carries its log end offset, which acknowledges all
records below. The high watermark is the lowest log end offset of the replicas that are in sync or about to
be; with fewer than ``min.insync.replicas`` in sync it does not move (KIP-966). The controller decides on the
ISR: a proposed change counts for the high watermark at once and for ``acks`` once accepted.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs

from splashdam.embedded_broker.controller.state import PartitionState
from splashdam.model.broker_errors import BrokerResponseError, ErrorCode, NotEnoughReplicasError, error_for

UNKNOWN = -1


@attrs.define
class Follower:
    """A follower, as its leader sees it (Kafka's ``Replica``).

    Attributes:
        end_offset: its log end offset at its last fetch, -1 before the first.
        start_offset: its log start offset at its last fetch.
        caught_up_ms: when it last had every record of the leader.
        fetched_ms: when it last fetched.
        leader_end_offset: the leader's log end offset at its last fetch.
    """

    end_offset: int = UNKNOWN
    start_offset: int = UNKNOWN
    caught_up_ms: float = -math.inf
    fetched_ms: float = -math.inf
    leader_end_offset: int = UNKNOWN

    def fetched(self, offset: int, leader_end_offset: int, now_ms: float) -> None:
        """Note a fetch: the follower has every record below ``offset``."""
        if offset >= leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        # It has all that the leader had at the fetch before, so it was caught up then. Without this rule a
        # follower of a partition that always grows would never count as caught up.
        elif offset >= self.leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.end_offset = offset
        self.fetched_ms = now_ms
        self.leader_end_offset = leader_end_offset

    def was_caught_up(self, until_ms: float) -> None:
        """Note that the follower waited until ``until_ms`` for something to happen, caught up."""
        self.caught_up_ms = max(self.caught_up_ms, until_ms)
        self.fetched_ms = max(self.fetched_ms, until_ms)

    def is_caught_up(self, leader_end_offset: int, now_ms: float, lag_time_max_ms: float) -> bool:
        """Whether it has every record, or had within ``replica.lag.time.max.ms``."""
        return self.end_offset == leader_end_offset or now_ms - self.caught_up_ms <= lag_time_max_ms


class LeaderState:
    """The state of one leadership, from the election until the next leader epoch.

    Args:
        node_id: the leader.
        state: the partition's state by the controller.
        epoch_start_offset: the leader's log end offset when its epoch began.
        min_isr: returns the present ``min.insync.replicas``.
        is_eligible: tells whether a broker may join the ISR.
        now_ms: the time.
        lag_time_max_ms: ``replica.lag.time.max.ms``.

    Attributes:
        state: the newest state from the controller.
        proposed: the ISR that was proposed to the controller and is not answered yet, None if there is none.
        followers: by node id.
    """

    def __init__(
        self,
        node_id: int,
        state: PartitionState,
        *,
        epoch_start_offset: int,
        min_isr: Callable[[], int],
        is_eligible: Callable[[int], bool],
        now_ms: float,
        lag_time_max_ms: float,
    ) -> None:
        self.node_id = node_id
        self.state = state
        self.proposed: frozenset[int] | None = None
        self.followers: dict[int, Follower] = {}
        self._epoch_start_offset = epoch_start_offset
        self._min_isr = min_isr
        self._is_eligible = is_eligible
        self._lag_time_max_ms = lag_time_max_ms
        self.apply(state, now_ms)

    def apply(self, state: PartitionState, now_ms: float) -> None:
        """Take over a newer state of the same leader epoch; a pending proposal is settled by it.

        Members of the ISR count as caught up now: they get ``replica.lag.time.max.ms`` to fetch.
        """
        self.state = state
        self.proposed = None
        others = [node for node in state.replicas if node != self.node_id]
        self.followers = {node: self.followers.get(node) or Follower() for node in others}
        for node, follower in self.followers.items():
            if node in state.isr and follower.end_offset == UNKNOWN:
                follower.caught_up_ms = max(follower.caught_up_ms, now_ms)

    # --- acknowledgements -------------------------------------------------------------------------------

    @property
    def min_isr(self) -> int:
        """``min.insync.replicas``, at most the number of replicas."""
        return min(self._min_isr(), len(self.state.replicas))

    @property
    def _maximal_isr(self) -> set[int]:
        """The ISR and the proposed members: the controller may have accepted the proposal already."""
        return {*self.state.isr, *(self.proposed or ())}

    def check_enough_in_sync(self) -> None:
        """Check the ISR before an append with acks=all.

        Raises:
            NotEnoughReplicasError: too few replicas are in sync (19); nothing may be appended.
        """
        if len(self.state.isr) < self.min_isr:
            raise NotEnoughReplicasError(
                f"{len(self.state.isr)} replicas are in sync, min.insync.replicas is {self.min_isr}"
            )

    def failure_of(self, offset: int, high_watermark: int) -> BrokerResponseError | None:
        """Return the error for an append with acks=all that the high watermark has passed, or None.

        It is NOT_ENOUGH_REPLICAS_AFTER_APPEND (20) if the ISR has become too small meanwhile.
        """
        # Kafka's rule: after the append proposed members count, before it only accepted ones.
        if len(self._maximal_isr) >= self.min_isr:
            return None
        return error_for(
            ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            f"records below {offset} are written (the high watermark is {high_watermark}), but "
            f"{len(self._maximal_isr)} replicas are in sync and min.insync.replicas is {self.min_isr}",
        )

    def high_watermark(self, current: int, log_end_offset: int, now_ms: float) -> int:
        """Return where the high watermark may be now; never below the current one."""
        if len(self.state.isr) < self.min_isr:
            return current
        in_sync = self._maximal_isr
        offset = log_end_offset
        for node, follower in self.followers.items():
            if follower.end_offset < offset and (
                node in in_sync or self._is_about_to_join(node, follower, log_end_offset, now_ms)
            ):
                offset = follower.end_offset
        return max(current, offset)

    def _is_about_to_join(self, node: int, follower: Follower, log_end_offset: int, now_ms: float) -> bool:
        caught_up = follower.is_caught_up(log_end_offset, now_ms, self._lag_time_max_ms)
        return caught_up and self._is_eligible(node)

    def reader_in(self, rack: str, fetch_offset: int, rack_of: Callable[[int], str | None]) -> int:
        """Return the follower that a consumer in this rack should read from (``RackAwareReplicaSelector``).

        Of the in-sync followers in the rack that have the offset, the one with most records, then the one
        that was caught up last. ``UNKNOWN`` if there is none, or if the leader itself is in the rack.
        """
        if rack_of(self.node_id) == rack:
            return UNKNOWN
        found = [
            (each.end_offset, each.caught_up_ms, node)
            for node, each in self.followers.items()
            if node in self.state.isr
            and rack_of(node) == rack
            and each.start_offset <= fetch_offset <= each.end_offset
        ]
        return max(found)[-1] if found else UNKNOWN

    def low_watermark(self, log_start_offset: int) -> int:
        """Return the lowest log start offset of the leader and of the followers that are alive."""
        alive = [each.start_offset for node, each in self.followers.items() if self._is_eligible(node)]
        return min([log_start_offset, *alive])

    # --- the ISR ----------------------------------------------------------------------------------------

    def may_wait(self, node: int, log_end_offset: int) -> bool:
        """Whether a follower's next fetch may wait until something happens: it is in sync and caught up."""
        follower = self.followers[node]
        return self.proposed is None and node in self.state.isr and follower.end_offset == log_end_offset

    def is_settled(self, log_end_offset: int) -> bool:
        """Whether the ISR cannot change by time alone: all members are caught up, nothing is pending."""
        return self.proposed is None and all(
            follower.end_offset == log_end_offset
            for node, follower in self.followers.items()
            if node in self.state.isr
        )

    def expansion(self, node: int, high_watermark: int) -> tuple[int, ...] | None:
        """Return the ISR to propose after a fetch: with this follower if it has caught up, else None.

        It must have reached the high watermark and the start of the leader's epoch, as in Kafka.
        """
        if self.proposed is not None or node in self.state.isr or not self._is_eligible(node):
            return None
        if self.followers[node].end_offset < max(high_watermark, self._epoch_start_offset):
            return None
        return self._in_order({*self.state.isr, node})

    def shrink(self, log_end_offset: int, now_ms: float) -> tuple[int, ...] | None:
        """Return the ISR to propose without followers that lag behind; None if none does."""
        if self.proposed is not None:
            return None
        left = {
            node
            for node in self.state.isr
            if node == self.node_id
            or self.followers[node].is_caught_up(log_end_offset, now_ms, self._lag_time_max_ms)
        }
        return None if len(left) == len(self.state.isr) else self._in_order(left)

    def _in_order(self, isr: set[int]) -> tuple[int, ...]:
        return tuple(node for node in self.state.replicas if node in isr)
