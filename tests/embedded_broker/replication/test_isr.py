"""What a leader makes of its followers' fetches: high watermark and ISR, against a model and case by case."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from splashdam.embedded_broker.controller.state import PartitionState
from splashdam.embedded_broker.replication.isr import LeaderState
from splashdam.model.broker_errors import NotEnoughReplicasAfterAppendError, NotEnoughReplicasError

LAG_MS = 30_000
REPLICAS = (1, 2, 3)


def leader_of(
    isr: tuple[int, ...] = REPLICAS,
    *,
    min_isr: int = 1,
    epoch_start: int = 0,
    down: set[int] | None = None,
    replicas: tuple[int, ...] = REPLICAS,
) -> LeaderState:
    """Node 1 leads."""
    return LeaderState(
        1,
        PartitionState(replicas, isr, 1),
        epoch_start_offset=epoch_start,
        min_isr=lambda: min_isr,
        is_eligible=lambda node: node not in (down or ()),
        now_ms=0,
        lag_time_max_ms=LAG_MS,
    )


def test_the_high_watermark_is_the_smallest_end_of_those_in_sync() -> None:
    """It stands still until each of them has fetched."""
    leader = leader_of()
    assert leader.high_watermark(0, 10, 0) == 0
    leader.followers[2].fetched(10, 10, 1)
    assert leader.high_watermark(0, 10, 1) == 0
    leader.followers[3].fetched(4, 10, 2)
    assert leader.high_watermark(0, 10, 2) == 4
    assert leader.high_watermark(7, 10, 2) == 7


def test_it_waits_for_one_that_is_about_to_join() -> None:
    """Otherwise it would be ahead of that one for ever; one that is down is not waited for."""
    down: set[int] = set()
    leader = leader_of((1,), down=down)
    assert leader.high_watermark(0, 10, 0) == 10
    leader.followers[2].fetched(10, 10, 0)
    assert leader.high_watermark(10, 12, 1) == 10
    down.add(2)
    assert leader.high_watermark(10, 12, 1) == 12


def test_a_proposed_member_counts_at_once() -> None:
    """Nobody knows whether the controller takes it for in sync already."""
    leader = leader_of((1, 2), down={3})
    leader.followers[2].fetched(9, 9, 0)
    leader.followers[3].fetched(5, 9, 0)
    assert leader.high_watermark(0, 9, 0) == 9
    leader.proposed = frozenset(REPLICAS)
    assert leader.high_watermark(0, 9, 0) == 5


def test_below_min_isr_the_high_watermark_does_not_move() -> None:
    """KIP-966; acks=all is refused before an append, and after it where the ISR shrank meanwhile."""
    leader = leader_of((1, 2), min_isr=2)
    leader.check_enough_in_sync()
    leader.followers[2].fetched(3, 5, 0)
    assert leader.high_watermark(0, 5, 0) == 3
    assert leader.failure_of(3, 3) is None
    leader.apply(PartitionState(REPLICAS, (1,), 1, 0, 1), 1)
    assert leader.high_watermark(3, 5, 1) == 3
    assert isinstance(leader.failure_of(3, 3), NotEnoughReplicasAfterAppendError)
    with pytest.raises(NotEnoughReplicasError, match="1 replicas are in sync"):
        leader.check_enough_in_sync()


def test_min_isr_is_not_more_than_there_are_replicas() -> None:
    """A topic of one replica works whatever is asked."""
    leader = leader_of((1,), min_isr=5, replicas=(1,))
    leader.check_enough_in_sync()
    assert leader.high_watermark(0, 5, 0) == 5


@pytest.mark.parametrize(
    ("fetched", "high_watermark", "epoch_start", "joins"),
    [(5, 5, 0, True), (4, 5, 0, False), (5, 4, 6, False), (6, 4, 6, True)],
)
def test_a_follower_with_high_watermark_and_epoch_start_joins(
    fetched: int, high_watermark: int, epoch_start: int, *, joins: bool
) -> None:
    """With both of them; in the order of the replicas."""
    leader = leader_of((1, 3), epoch_start=epoch_start)
    leader.followers[2].fetched(fetched, 10, 0)
    assert leader.expansion(2, high_watermark) == ((1, 2, 3) if joins else None)


def test_one_change_at_a_time() -> None:
    """While one is under way nothing else is proposed; a broker that is down is not proposed either."""
    leader = leader_of((1,), down={3})
    for node in (2, 3):
        leader.followers[node].fetched(10, 10, 0)
    assert leader.expansion(3, 0) is None
    leader.proposed = frozenset({1, 2})
    assert leader.expansion(2, 0) is None
    assert leader.shrink(20, 10 * LAG_MS) is None


def test_a_follower_that_lags_for_too_long_leaves() -> None:
    """Fetching alone does not help: the leader's end at the fetch before has to be reached."""
    leader = leader_of()
    now, end = 0, 0
    for _ in range(10):
        now, end = now + 5_000, end + 100
        leader.followers[2].fetched(end - 100, end, now)  # what there was at its last fetch
        leader.followers[3].fetched(0, end, now)
    assert leader.shrink(end, now) == (1, 2)


def test_a_follower_with_all_records_stays_however_old_its_fetch() -> None:
    """There was nothing to fetch."""
    leader = leader_of()
    leader.followers[2].fetched(7, 7, 0)
    leader.followers[3].fetched(7, 7, 0)
    assert leader.shrink(7, 100 * LAG_MS) is None
    assert leader.shrink(8, 100 * LAG_MS) == (1,)


class Machine(RuleBasedStateMachine):
    """Logs as numbers: what is below the high watermark must be in every log that could lead next."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.end = {1: 0, 2: 0, 3: 0}
        self.high_watermark = 0
        self.controller = PartitionState(REPLICAS, REPLICAS, 1)
        self.down: set[int] = set()
        self.min_isr = 1
        self.leader: LeaderState

    @initialize(min_isr=st.integers(1, 3))
    def start(self, min_isr: int) -> None:
        self.min_isr = min_isr
        self.leader = leader_of(min_isr=min_isr, down=self.down)

    def advance(self) -> None:
        now = self.leader.high_watermark(self.high_watermark, self.end[1], self.now)
        assert now >= self.high_watermark
        if now > self.high_watermark:
            assert len(self.leader.state.isr) >= self.min_isr
        self.high_watermark = now

    def propose(self, isr: tuple[int, ...] | None, outcome: str) -> None:
        if isr is None:
            return
        self.leader.proposed = frozenset(isr)
        if outcome == "refused":
            self.leader.proposed = None
            return
        if set(isr) - self.down - set(self.controller.isr) or set(isr) < set(self.controller.isr):
            epoch = self.controller.partition_epoch + 1
            self.controller = self.controller._replace(isr=isr, partition_epoch=epoch)
        if outcome == "agreed":
            self.leader.apply(self.controller, self.now)

    @rule(count=st.integers(1, 5))
    def append(self, count: int) -> None:
        self.end[1] += count
        self.advance()

    @rule(node=st.sampled_from([2, 3]), count=st.integers(0, 5))
    def fetch(self, node: int, count: int) -> None:
        """It tells where it is, then gets more."""
        if node in self.down:
            return
        self.leader.followers[node].fetched(self.end[node], self.end[1], self.now)
        self.propose(self.leader.expansion(node, self.high_watermark), "agreed")
        self.advance()
        self.end[node] = min(self.end[1], self.end[node] + count)

    @rule(node=st.sampled_from([2, 3]))
    def fetch_and_lose_the_controllers_answer(self, node: int) -> None:
        if node not in self.down:
            self.leader.followers[node].fetched(self.end[node], self.end[1], self.now)
            self.propose(self.leader.expansion(node, self.high_watermark), "lost")
            self.advance()

    @rule(seconds=st.integers(1, 40), outcome=st.sampled_from(["agreed", "refused", "lost"]))
    def pass_time(self, seconds: int, outcome: str) -> None:
        self.now += seconds * 1000
        self.propose(self.leader.shrink(self.end[1], self.now), outcome)
        self.advance()

    @rule()
    def hear_from_the_controller(self) -> None:
        self.leader.apply(self.controller, self.now)
        self.advance()

    @precondition(lambda self: len(self.down) < 2)
    @rule(node=st.sampled_from([2, 3]))
    def go_down(self, node: int) -> None:
        """The controller takes it out; the leader hears of that at once or later."""
        self.down.add(node)
        if node in self.controller.isr:
            isr = tuple(each for each in self.controller.isr if each != node)
            epoch = self.controller.partition_epoch + 1
            self.controller = self.controller._replace(isr=isr, partition_epoch=epoch)

    @rule()
    def come_back(self) -> None:
        self.down.clear()

    @invariant()
    def nothing_committed_can_be_lost(self) -> None:
        """Every replica that the controller may elect has all records below the high watermark."""
        for node in self.controller.isr:
            assert self.end[node] >= self.high_watermark


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
