"""One partition of which this broker keeps a replica beside others: its log, and what it means to lead it.

While it leads, appends move the high watermark as far as the followers' fetches allow, and whoever waits for
an offset hears of it, or that somebody else leads now. It stays one object while leaders change.
"""

from __future__ import annotations

import logging
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Protocol

import attrs
import trio

from splashdam.embedded_broker.controller.state import IsrProposal
from splashdam.embedded_broker.fetching.replica_fetches import not_a_replica
from splashdam.embedded_broker.replication.isr import Follower, LeaderState
from splashdam.model.broker_errors import (
    BrokerResponseError,
    NetworkExceptionError,
    NotLeaderOrFollowerError,
    RequestTimedOutError,
)
from splashdam.storage.log import Log

if TYPE_CHECKING:
    from splashdam.embedded_broker.controller.state import IsrAnswer, PartitionState
    from splashdam.embedded_broker.fetching.replica_fetches import ReplicaFetch
    from splashdam.model.values import TopicPartition

_log = logging.getLogger(__name__)

_UNCERTAIN = (RequestTimedOutError, NetworkExceptionError)
"""What leaves open whether the controller has agreed: the proposal stands until it says something newer."""


class Surroundings(Protocol):
    """What a partition asks of its broker."""

    @property
    def node_id(self) -> int:
        """The broker's id."""
        ...

    @property
    def lag_time_max_ms(self) -> float:
        """``replica.lag.time.max.ms``."""
        ...

    def now_ms(self) -> float:
        """The time."""
        ...

    def is_eligible(self, node_id: int) -> bool:
        """Whether a broker may join an ISR."""
        ...

    def propose(self, partition: Partition) -> None:
        """The controller is to be asked for another ISR soon: for `Partition.proposal`, as it is then."""
        ...

    def high_watermark_moved(self, topic_partition: TopicPartition) -> None:
        """Readers may go on."""
        ...

    def log_failed(self, topic_partition: TopicPartition) -> None:
        """Others are to lead, and to be in sync without this broker."""
        ...

    def changed(self, topic_partition: TopicPartition) -> None:
        """The leader, its epoch or the ISR is another one: fetches look again."""
        ...

    def watch(self, partition: Partition) -> None:
        """Looks at its ISR from time to time, until it is settled."""
        ...


@attrs.define(eq=False)
class _Waiter:
    """Somebody who waits for the high watermark, or to hear that somebody else leads."""

    offset: int
    event: trio.Event = attrs.field(factory=trio.Event)

    def __lt__(self, other: _Waiter) -> bool:
        return self.offset < other.offset


class Partition:
    """One partition of this broker.

    Args:
        log: its log; replicated from now on.
        state: what the controller says.
        surroundings: its broker.

    Attributes:
        log: as given.
        state: the newest that the controller has told, as far as it was taken in.
        leader: what it knows of the others; None while it does not lead.
        term: how often it has ceased to lead.
        is_watched: its ISR is looked at from time to time; whoever does so takes this back.
    """

    def __init__(self, log: Log, state: PartitionState, surroundings: Surroundings) -> None:
        log.begin_replication(self)
        self.log = log
        self.state = state
        self.leader: LeaderState | None = None
        self.term = 0
        self.is_watched = False
        self._surroundings = surroundings
        self._waiting: list[_Waiter] = []  # a heap
        self._followers_changed = trio.Event()

    # --- roles ----------------------------------------------------------------------------------------------

    def lead(self, state: PartitionState) -> None:
        """Leads from now on, or goes on leading with another ISR or other replicas.

        Raises:
            KafkaStorageError: the epoch cannot be written; it does not lead.
        """
        around, before = self._surroundings, self.leader
        self.state = state
        self._watch()
        if before is not None and before.state.leader_epoch == state.leader_epoch:
            before.apply(state, around.now_ms())
        else:
            self.log.begin_leader_epoch(state.leader_epoch)
            self.leader = LeaderState(
                around.node_id,
                state,
                epoch_start_offset=self._epoch_start(state.leader_epoch),
                min_isr=lambda: self.log.settings.min_insync_replicas,
                is_eligible=around.is_eligible,
                now_ms=around.now_ms(),
                lag_time_max_ms=around.lag_time_max_ms,
            )
            _log.info("%s: led here, epoch %d, ISR %s", self._name, state.leader_epoch, state.isr)
        self._followers_changed.set()
        around.changed(self._name)
        self.advance()

    def _epoch_start(self, leader_epoch: int) -> int:
        """Where the epoch begins, also after a restart within it."""
        began = self.log.last_epoch == leader_epoch
        return self.log.leader_epoch_start if began else self.log.log_end_offset

    def resign(self, state: PartitionState) -> None:
        """Somebody else leads, or nobody; who waits for acknowledgements hears that."""
        self.state = state
        self.leader = None
        self.term += 1
        for waiter in self._waiting:
            waiter.event.set()
        self._waiting = []
        self._followers_changed.set()

    @property
    def _name(self) -> TopicPartition:
        return self.log.topic_partition

    def leading(self) -> LeaderState:
        """What it knows as leader.

        Raises:
            NotLeaderOrFollowerError: somebody else leads.
        """
        if self.leader is None:
            raise NotLeaderOrFollowerError(f"{self._name} is led by node {self.state.leader} (-1: nobody)")
        return self.leader

    @property
    def leader_epoch(self) -> int:
        """In which the partition is led, here or elsewhere."""
        return self.state.leader_epoch

    def check_leading(self) -> None:
        """Raises NotLeaderOrFollowerError where another broker leads, or nobody does."""
        self.leading()

    def check_enough_in_sync(self) -> None:
        """Before an append that all replicas in sync are to have.

        Raises:
            NotLeaderOrFollowerError: somebody else leads.
            NotEnoughReplicasError: too few are in sync.
        """
        self.leading().check_enough_in_sync()

    def log_failed(self) -> None:
        """The log takes nothing any more: another replica is to lead."""
        self._surroundings.log_failed(self._name)

    # --- as leader ------------------------------------------------------------------------------------------

    def fetched(self, fetch: ReplicaFetch) -> Follower | None:
        """A follower has everything below its fetch offset: that moves the high watermark, and the ISR grows.

        Returns:
            Who rests until something happens here; None: the next fetch counts, too.

        Raises:
            NotLeaderOrFollowerError: this broker does not lead; or the node is no replica, and the fetch
                names no leader epoch.
            UnknownLeaderEpochError: it is no replica here; perhaps this broker is behind.
        """
        leader = self.leading()
        follower = leader.followers.get(fetch.replica_id)
        if follower is None:
            raise not_a_replica(self._name, fetch)
        follower.fetched(fetch.fetch_offset, fetch.leader_end_offset, self._surroundings.now_ms())
        if fetch.log_start_offset != follower.start_offset:
            follower.start_offset = fetch.log_start_offset
            self._followers_changed.set()
        isr = leader.growth(fetch.replica_id, self.log.high_watermark)
        if isr is not None:
            self._propose(leader, frozenset(isr))
        self.advance()
        rests = self.leader is leader and leader.may_rest(fetch.replica_id, self.log.log_end_offset)
        return follower if rests else None

    @property
    def is_settled(self) -> bool:
        """Whether a look at the ISR has nothing to find before something happens."""
        if self.leader is None:
            return self.state.leader != self._surroundings.node_id
        end = self.log.log_end_offset
        return self.log.high_watermark >= end and self.leader.is_settled(end)

    def _watch(self) -> None:
        if not self.is_watched:
            self.is_watched = True
            self._surroundings.watch(self)

    def look_at_isr(self) -> None:
        """Proposes an ISR without those who have fallen behind.

        Raises:
            KafkaStorageError: it cannot begin to lead; the next look tries again.
        """
        if self.leader is None and self.state.leader == self._surroundings.node_id:
            self.lead(self.state)
        leader = self.leader
        if leader is None:
            return
        isr = leader.shrinkage(self.log.log_end_offset, self._surroundings.now_ms())
        if isr is not None:
            self._propose(leader, frozenset(isr))
        self.advance()

    def propose_again(self) -> None:
        """Proposes once more what was not answered."""
        if self.leader is not None and self.leader.proposed is not None:
            self._propose(self.leader, self.leader.proposed)

    def _propose(self, leader: LeaderState, isr: frozenset[int]) -> None:
        leader.proposed = isr
        self._surroundings.propose(self)

    @property
    def proposal(self) -> IsrProposal | None:
        """What the controller is to agree to; None where there is nothing, or nothing any more."""
        leader = self.leader
        if leader is None or leader.proposed is None:
            return None
        isr = tuple(node for node in leader.state.replicas if node in leader.proposed)
        return IsrProposal(isr, leader.state.leader_epoch, leader.state.partition_epoch)

    def answered(self, proposal: IsrProposal, answer: IsrAnswer) -> None:
        """The controller has answered a proposal, or nobody knows whether it has agreed.

        Raises:
            KafkaStorageError: what it has agreed to cannot be done here.
        """
        isr = list(proposal.isr)
        if isinstance(answer, _UNCERTAIN):
            _log.info("%s: nobody knows whether the ISR is %s: %s", self._name, isr, answer.message)
            return
        if isinstance(answer, BrokerResponseError):
            _log.info("%s: the ISR does not become %s: %s", self._name, isr, answer.message)
            if self.proposal == proposal:
                self.leading().proposed = None
            return
        _log.info("%s: the ISR is %s", self._name, list(answer.isr))
        is_news = self.leader is not None and answer.partition_epoch > self.leader.state.partition_epoch
        if is_news:
            self.lead(answer)

    def advance(self) -> None:
        """Moves the high watermark as far as it may go."""
        leader, log = self.leader, self.log
        if leader is None:
            return
        self._watch()
        now_ms = self._surroundings.now_ms()
        if log.advance_high_watermark(leader.high_watermark(log.high_watermark, log.log_end_offset, now_ms)):
            while self._waiting and self._waiting[0].offset <= log.high_watermark:
                heappop(self._waiting).event.set()
            self._surroundings.high_watermark_moved(self._name)

    async def wait_replicated(self, offset: int, term: int) -> None:
        """Returns when everything below ``offset``, appended in this term, is on all replicas in sync.

        Raises:
            NotLeaderOrFollowerError: somebody else leads, or has led; it may or may not have it.
            NotEnoughReplicasAfterAppendError: it is, but they have become too few.
        """
        self._check_term(term)
        if self.log.high_watermark < offset:
            waiter = _Waiter(offset)
            heappush(self._waiting, waiter)
            try:
                await waiter.event.wait()
            except trio.Cancelled:
                if waiter in self._waiting:
                    self._waiting.remove(waiter)
                    heapify(self._waiting)
                raise
            self._check_term(term)
        failure = self.leading().failure_of(offset, self.log.high_watermark)
        if failure is not None:
            raise failure

    def _check_term(self, term: int) -> None:
        if term != self.term:
            raise NotLeaderOrFollowerError(f"{self._name} has another leader than when it was appended")

    async def wait_deleted(self, offset: int) -> None:
        """Returns when nobody who may lead next has anything below ``offset`` any more.

        Raises:
            NotLeaderOrFollowerError: somebody else leads.
        """
        while self.leading().low_watermark(self.log.log_start_offset) < offset:
            self._followers_changed = trio.Event()
            await self._followers_changed.wait()
