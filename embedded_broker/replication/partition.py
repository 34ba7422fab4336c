"""A replicated partition of this broker: its log, and the leader's duties while it leads.

As leader it moves the high watermark as far as the followers' fetches allow, and wakes producers that wait
for an offset, or tells them that another broker leads now. It stays one object while leaders change.
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
"""After these the controller may have accepted: the proposal stays pending until a newer state arrives."""


class PartitionHost(Protocol):
    """What a partition needs of its broker."""

    @property
    def node_id(self) -> int: ...

    @property
    def lag_time_max_ms(self) -> float: ...

    def now_ms(self) -> float: ...

    def is_eligible(self, node_id: int) -> bool:
        """Whether a broker may join an ISR."""
        ...

    def propose(self, partition: Partition) -> None:
        """Send `Partition.proposal`, as it is then, to the controller soon."""
        ...

    def high_watermark_moved(self, topic_partition: TopicPartition) -> None:
        """Wake the fetches that wait for this partition."""
        ...

    def log_failed(self, topic_partition: TopicPartition) -> None:
        """The log's disk has failed: give up leadership and ISR membership."""
        ...

    def changed(self, topic_partition: TopicPartition) -> None:
        """The leader, its epoch or the ISR has changed: wake the fetches that wait."""
        ...

    def watch(self, partition: Partition) -> None:
        """Check the partition's ISR periodically, until it is settled."""
        ...


@attrs.define(eq=False)
class _Waiter:
    """Waits until the high watermark reaches an offset, or another broker leads."""

    offset: int
    event: trio.Event = attrs.field(factory=trio.Event)

    def __lt__(self, other: _Waiter) -> bool:
        return self.offset < other.offset


class Partition:
    """A partition with several replicas, one of them on this broker.

    Args:
        log: its log; replicated from now on.
        state: from the controller.
        host: its broker.

    Attributes:
        log: as given.
        state: the newest state from the controller that was applied.
        leader: state of the leadership; None while another broker leads.
        term: how often this broker has ceased to lead.
        is_watched: its ISR is checked periodically; the checker clears this.
    """

    def __init__(self, log: Log, state: PartitionState, host: PartitionHost) -> None:
        log.begin_replication(self)
        self.log = log
        self.state = state
        self.leader: LeaderState | None = None
        self.term = 0
        self.is_watched = False
        self._host = host
        self._waiting: list[_Waiter] = []  # a heap
        self._followers_changed = trio.Event()

    # --- roles ----------------------------------------------------------------------------------------------

    def lead(self, state: PartitionState) -> None:
        """Become leader, or take over another ISR or other replicas as leader.

        Nothing is written: a new epoch comes to disk with its first record.
        """
        host, before = self._host, self.leader
        self.state = state
        self._watch()
        # The same leadership with another ISR: its followers' offsets stay valid.
        if before is not None and before.state.leader_epoch == state.leader_epoch:
            before.apply(state, host.now_ms())
        else:
            self.log.begin_leader_epoch(state.leader_epoch)
            self.leader = LeaderState(
                host.node_id,
                state,
                epoch_start_offset=self._epoch_start(state.leader_epoch),
                min_isr=lambda: self.log.settings.min_insync_replicas,
                is_eligible=host.is_eligible,
                now_ms=host.now_ms(),
                lag_time_max_ms=host.lag_time_max_ms,
            )
            _log.info("%s: this broker leads, epoch %d, ISR %s", self._name, state.leader_epoch, state.isr)
        self._tell_followers_changed()
        host.changed(self._name)
        self.advance()

    def _epoch_start(self, leader_epoch: int) -> int:
        """Return the start offset of the epoch, also after a restart within it."""
        # The log knows where its last epoch began; an epoch without records yet begins at the log end.
        began = self.log.last_epoch == leader_epoch
        return self.log.leader_epoch_start if began else self.log.log_end_offset

    def resign(self, state: PartitionState) -> None:
        """Stop leading: producers that wait for acknowledgements are woken and get an error."""
        self.state = state
        self.leader = None
        # A request that waits compares its term: if leadership left and came back, another batch may be at
        # its offset.
        self.term += 1
        for waiter in self._waiting:
            waiter.event.set()
        self._waiting = []
        self._tell_followers_changed()

    def _tell_followers_changed(self) -> None:
        """Wake the tasks that wait for the followers; a task that waits again waits for the next change."""
        changed, self._followers_changed = self._followers_changed, trio.Event()
        changed.set()

    @property
    def _name(self) -> TopicPartition:
        return self.log.topic_partition

    def leading(self) -> LeaderState:
        """Return the state of the leadership.

        Raises:
            NotLeaderOrFollowerError: another broker leads.
        """
        if self.leader is None:
            raise NotLeaderOrFollowerError(f"{self._name} is led by node {self.state.leader} (-1: nobody)")
        return self.leader

    @property
    def leader_epoch(self) -> int:
        """The present leader epoch, whichever broker leads."""
        return self.state.leader_epoch

    def check_leading(self) -> None:
        """Raise NotLeaderOrFollowerError if another broker leads, or none does."""
        self.leading()

    def check_enough_in_sync(self) -> None:
        """Check the ISR before an append with acks=all.

        Raises:
            NotLeaderOrFollowerError: another broker leads.
            NotEnoughReplicasError: too few replicas are in sync.
        """
        self.leading().check_enough_in_sync()

    def log_failed(self) -> None:
        """Give up leadership: the log's disk has failed."""
        self._host.log_failed(self._name)

    # --- as leader ------------------------------------------------------------------------------------------

    def fetched(self, fetch: ReplicaFetch) -> Follower | None:
        """Handle a follower's fetch: it has every record below its fetch offset.

        That may move the high watermark and expand the ISR.

        Returns:
            The follower if its next fetch may wait until something happens here, else None.

        Raises:
            NotLeaderOrFollowerError: this broker does not lead; or the node is no replica, and the fetch
                names no leader epoch.
            UnknownLeaderEpochError: the node is no replica by this broker's state, which may be behind.
        """
        leader = self.leading()
        follower = leader.followers.get(fetch.replica_id)
        if follower is None:
            raise not_a_replica(self._name, fetch)
        # A follower asks for the first record that it lacks, so the fetch itself is the acknowledgement.
        follower.fetched(fetch.fetch_offset, fetch.leader_end_offset, self._host.now_ms())
        if fetch.log_start_offset != follower.start_offset:
            follower.start_offset = fetch.log_start_offset
            self._tell_followers_changed()
        isr = leader.expansion(fetch.replica_id, self.log.high_watermark)
        if isr is not None:
            self._propose(leader, frozenset(isr))
        self.advance()
        rests = self.leader is leader and leader.may_wait(fetch.replica_id, self.log.log_end_offset)
        return follower if rests else None

    @property
    def is_settled(self) -> bool:
        """Whether periodic checks of the ISR can stop until something happens."""
        if self.leader is None:
            return True
        end = self.log.log_end_offset
        return self.log.high_watermark >= end and self.leader.is_settled(end)

    def _watch(self) -> None:
        if not self.is_watched:
            self.is_watched = True
            self._host.watch(self)

    def check_isr(self) -> None:
        """Propose to shrink the ISR by followers that lag behind."""
        leader = self.leader
        if leader is None:
            return
        isr = leader.shrink(self.log.log_end_offset, self._host.now_ms())
        if isr is not None:
            self._propose(leader, frozenset(isr))
        self.advance()

    def propose_again(self) -> None:
        """Repeat a proposal that was not answered."""
        if self.leader is not None and self.leader.proposed is not None:
            self._propose(self.leader, self.leader.proposed)

    def _propose(self, leader: LeaderState, isr: frozenset[int]) -> None:
        leader.proposed = isr
        self._host.propose(self)

    @property
    def proposal(self) -> IsrProposal | None:
        """The proposal that the controller has not answered yet, or None."""
        leader = self.leader
        if leader is None or leader.proposed is None:
            return None
        isr = tuple(node for node in leader.state.replicas if node in leader.proposed)
        return IsrProposal(isr, leader.state.leader_epoch, leader.state.partition_epoch)

    def answered(self, proposal: IsrProposal, answer: IsrAnswer) -> None:
        """Handle the answer to a proposal, or an error that leaves open whether it was accepted."""
        isr = list(proposal.isr)
        # The proposal stays pending and is repeated: the controller may have accepted it, and the high
        # watermark has to count both ISRs until that is known (KIP-497).
        if isinstance(answer, _UNCERTAIN):
            _log.info("%s: unknown whether the ISR %s was accepted: %s", self._name, isr, answer.message)
            return
        if isinstance(answer, BrokerResponseError):
            _log.info("%s: the controller refused the ISR %s: %s", self._name, isr, answer.message)
            if self.proposal == proposal:
                self.leading().proposed = None
            return
        _log.info("%s: the ISR is %s", self._name, list(answer.isr))
        is_newer = self.leader is not None and answer.partition_epoch > self.leader.state.partition_epoch
        if is_newer:
            self.lead(answer)

    def advance(self) -> None:
        """Move the high watermark as far as the followers allow, and wake the requests that wait for it."""
        leader, log = self.leader, self.log
        if leader is None:
            return
        self._watch()
        now_ms = self._host.now_ms()
        if log.advance_high_watermark(leader.high_watermark(log.high_watermark, log.log_end_offset, now_ms)):
            while self._waiting and self._waiting[0].offset <= log.high_watermark:
                heappop(self._waiting).event.set()
            self._host.high_watermark_moved(self._name)

    async def wait_replicated(self, offset: int, term: int) -> None:
        """Wait until everything below ``offset``, appended in this term, is on all in-sync replicas.

        Raises:
            NotLeaderOrFollowerError: another broker leads, or has led meanwhile; the records may be lost.
            NotEnoughReplicasAfterAppendError: it is, but the ISR has become too small.
        """
        self._check_term(term)
        if self.log.high_watermark < offset:
            waiter = _Waiter(offset)
            heappush(self._waiting, waiter)
            try:
                await waiter.event.wait()
            # Taken out, or each client that leaves would leave an entry until the high watermark passes it.
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
            raise NotLeaderOrFollowerError(f"{self._name} has another leader than at the time of the append")

    async def wait_deleted(self, offset: int) -> None:
        """Wait until no replica that is alive has records below ``offset`` any more.

        Raises:
            NotLeaderOrFollowerError: another broker leads.
        """
        while self.leading().low_watermark(self.log.log_start_offset) < offset:
            await self._followers_changed.wait()
