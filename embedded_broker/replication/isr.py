"""What the leader of a partition knows of its replicas, and what follows: high watermark and ISR. Pure.

The rules are Kafka's (Partition.scala). A follower's fetch carries the end of its log, which acknowledges all
below. The high watermark is the smallest end over those in sync and those about to be; where fewer than
``min.insync.replicas`` are in sync it stands still (KIP-966). The ISR is what the controller says: a change
is proposed, counts for the high watermark from then on, and for ``acks`` when the controller has agreed.
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
    """One other replica, as its leader sees it.

    Attributes:
        end_offset: where its log ended at its last fetch, -1 before the first.
        start_offset: where its log started then.
        caught_up_ms: when it last had everything that the leader had.
        fetched_ms: when it last fetched.
        leader_end_offset: the end of the leader's log at that time.
    """

    end_offset: int = UNKNOWN
    start_offset: int = UNKNOWN
    caught_up_ms: float = -math.inf
    fetched_ms: float = -math.inf
    leader_end_offset: int = UNKNOWN

    def fetched(self, offset: int, leader_end_offset: int, now_ms: float) -> None:
        """It has everything below ``offset``; the leader's log ends where it says."""
        if offset >= leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self.leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.end_offset = offset
        self.fetched_ms = now_ms
        self.leader_end_offset = leader_end_offset

    def was_caught_up(self, until_ms: float) -> None:
        """It fetched until then, and had everything; nothing had happened since it was heard of."""
        self.caught_up_ms = max(self.caught_up_ms, until_ms)
        self.fetched_ms = max(self.fetched_ms, until_ms)

    def is_caught_up(self, leader_end_offset: int, now_ms: float, lag_time_max_ms: float) -> bool:
        """Whether it has everything, or had so not too long ago."""
        return self.end_offset == leader_end_offset or now_ms - self.caught_up_ms <= lag_time_max_ms


class LeaderState:
    """One leadership: from the broker's election until another leader epoch.

    Args:
        node_id: the leader.
        state: what the controller says.
        epoch_start_offset: the end of the leader's log when its epoch began.
        min_isr: what ``min.insync.replicas`` says at present.
        is_eligible: whether a broker may join the ISR: it is alive.
        now_ms: the time.
        lag_time_max_ms: ``replica.lag.time.max.ms``.

    Attributes:
        state: the newest that the controller has told.
        proposed: the ISR that was proposed to the controller and not answered yet, None where there is none.
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
        """The controller has told a newer state of the same leader epoch; nothing is under way any more.

        Who is in sync by its word has time to fetch before it is doubted.
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
        """How many have to be in sync; not more than there are replicas."""
        return min(self._min_isr(), len(self.state.replicas))

    @property
    def _maximal_isr(self) -> set[int]:
        """Those that the controller may take for in sync, whatever became of the proposal."""
        return {*self.state.isr, *(self.proposed or ())}

    def check_enough_in_sync(self) -> None:
        """Before an append with acks=all.

        Raises:
            NotEnoughReplicasError: too few are in sync (19); nothing is to be written.
        """
        if len(self.state.isr) < self.min_isr:
            raise NotEnoughReplicasError(
                f"{len(self.state.isr)} replicas are in sync, min.insync.replicas is {self.min_isr}"
            )

    def failure_of(self, offset: int, high_watermark: int) -> BrokerResponseError | None:
        """What an append with acks=all is answered that the high watermark has passed; None: all is well.

        It is NOT_ENOUGH_REPLICAS_AFTER_APPEND (20) where those in sync have become too few meanwhile.
        """
        if len(self._maximal_isr) >= self.min_isr:
            return None
        return error_for(
            ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            f"what is below {offset} is written (the high watermark is {high_watermark}), but "
            f"{len(self._maximal_isr)} replicas are in sync and min.insync.replicas is {self.min_isr}",
        )

    def high_watermark(self, current: int, log_end_offset: int, now_ms: float) -> int:
        """Where the high watermark may be now; never below the current one."""
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
        """Which follower a consumer in this rack is to read from: Kafka's ``RackAwareReplicaSelector``.

        It is in sync and has the offset; the one that has most, then the one that was caught up last.
        ``UNKNOWN`` where no follower is such a one, and where the leader itself is in the rack.
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
        """The lowest start of a log that may be led by next: the leader's, those of others that are alive."""
        alive = [each.start_offset for node, each in self.followers.items() if self._is_eligible(node)]
        return min([log_start_offset, *alive])

    # --- the ISR ----------------------------------------------------------------------------------------

    def may_rest(self, node: int, log_end_offset: int) -> bool:
        """Whether a follower need not be heard again before something happens: in sync, with everything."""
        follower = self.followers[node]
        return self.proposed is None and node in self.state.isr and follower.end_offset == log_end_offset

    def is_settled(self, log_end_offset: int) -> bool:
        """Whether time alone changes nothing: all in sync have everything, and nothing is to be answered."""
        return self.proposed is None and all(
            follower.end_offset == log_end_offset
            for node, follower in self.followers.items()
            if node in self.state.isr
        )

    def growth(self, node: int, high_watermark: int) -> tuple[int, ...] | None:
        """The ISR to propose after a fetch of a follower that has come up; None where it stays as it is."""
        if self.proposed is not None or node in self.state.isr or not self._is_eligible(node):
            return None
        if self.followers[node].end_offset < max(high_watermark, self._epoch_start_offset):
            return None
        return self._in_order({*self.state.isr, node})

    def shrinkage(self, log_end_offset: int, now_ms: float) -> tuple[int, ...] | None:
        """The ISR to propose without those who have fallen behind; None where nobody has."""
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
