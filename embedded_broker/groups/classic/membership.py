"""A classic group: its states as a table, its generations, and what the requests of its members do.

Members join, the leader assigns, and all get their assignment; when a member joins or leaves, a rebalance
begins the next generation. States are those of Kafka's ``ClassicGroup``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from splashdam.embedded_broker.groups.classic.members import (
    ClassicMember,
    GroupMembers,
    JoinResult,
    SyncReply,
    SyncResult,
)
from splashdam.embedded_broker.groups.classic.records import (
    CONSUMER_PROTOCOL_TYPE,
    GroupMetadataValue,
    decode_value,
    encode_key,
    encode_value,
    from_record,
    subscribed_topics,
    to_record,
)
from splashdam.embedded_broker.groups.group import GroupHost, Member, Rebalance
from splashdam.embedded_broker.groups.offset_records import CommittedOffset
from splashdam.embedded_broker.groups.timers import TimerKey
from splashdam.model.broker_errors import BrokerResponseError, ErrorCode, error_for
from splashdam.model.lifecycle import Stage, next_state
from splashdam.model.log_text import quoted
from splashdam.model.values import Buffer

_log = logging.getLogger(__name__)

_NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60_000
"""How long a new member is kept before its JoinGroup is answered: as in Kafka, it may have given up."""


class GroupState(Stage):
    """State of a group; the value is Kafka's name."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"  # members join
    COMPLETING_REBALANCE = "CompletingRebalance"  # the leader assigns
    STABLE = "Stable"
    DEAD = "Dead"  # coordinated by another broker, or deleted


class GroupEvent(Stage):
    """Event that changes the state of a group."""

    REBALANCE = "prepare a rebalance"
    JOIN = "begin a generation"
    EMPTY = "begin a generation without members"
    ASSIGN = "take its assignment"
    END = "end"


_S, _E = GroupState, GroupEvent

TRANSITIONS: Mapping[tuple[GroupState, GroupEvent], GroupState] = {
    **{
        (state, _E.REBALANCE): _S.PREPARING_REBALANCE
        for state in (_S.EMPTY, _S.COMPLETING_REBALANCE, _S.STABLE)
    },
    (_S.PREPARING_REBALANCE, _E.JOIN): _S.COMPLETING_REBALANCE,
    (_S.PREPARING_REBALANCE, _E.EMPTY): _S.EMPTY,
    (_S.COMPLETING_REBALANCE, _E.ASSIGN): _S.STABLE,
    **{(state, _E.END): _S.DEAD for state in GroupState},
}
"""(state, event) → next state; missing pairs are illegal."""

REBALANCING = (GroupState.STABLE, GroupState.COMPLETING_REBALANCE)
"""States in which the loss of a member begins a rebalance."""


class ClassicMembership:
    """A classic group's members, state and generation; a `Membership`.

    It has no I/O of its own: time, timers and the log belong to its host. A change is in the log before it
    takes effect.

    Args:
        group_id: the group.
        host: time, timers and the log.

    Attributes:
        group_id: as given.
        host: as given.
        members: the members.
        state: of the group.
        generation_id: number of the present generation.
        protocol_type: of the members, mostly ``consumer``.
        protocol_name: the chosen assignor.
        topics: topics that members subscribe to; None if a subscription cannot be read.
        last_rebalance: see `Membership`.
    """

    LEAVE_AT_ONCE = 32
    """Number of members that a LeaveGroup removes in one step, before the rebalance begins."""

    leave_units = 12
    """Cost of such a step in units of ``execution.turns``: a third of a millisecond."""

    group_type = "classic"

    def __init__(self, group_id: str, host: GroupHost) -> None:
        self.group_id = group_id
        self.host = host
        self.members = GroupMembers()
        self.state = GroupState.EMPTY
        self.generation_id = 0
        self.protocol_type = ""
        self.protocol_name: str | None = None
        self.topics: frozenset[str] | None = None
        self.state_since_ms: int | None = host.wall_ms()
        self.last_rebalance: Rebalance | None = None
        self._is_initial = False
        self._has_newcomers = False

    @classmethod
    def create(
        cls, group_id: str, host: GroupHost, tombstones: Sequence[tuple[bytes, bytes | None]] = ()
    ) -> ClassicMembership:
        """Create the membership of a group without members, and write its first record.

        Args:
            group_id: the group.
            host: time, timers and the log.
            tombstones: tombstones of another protocol's records, written before it in the same batch.

        Raises:
            BrokerResponseError: the append failed.
        """
        membership = cls(group_id, host)
        membership.write(tombstones)
        return membership

    @classmethod
    def from_record(cls, group_id: str, host: GroupHost, data: Buffer) -> ClassicMembership:
        """Restore the membership from its record; ``loaded`` starts its timers.

        Raises:
            CorruptMessageError: the record cannot be read.
        """
        value = decode_value(data)
        membership = cls(group_id, host)
        members = [from_record(each, value.protocol) for each in value.members]
        membership.members = GroupMembers(members, value.leader)
        membership.state = GroupState.STABLE if members else GroupState.EMPTY
        membership.generation_id = value.generation
        membership.protocol_type = value.protocol_type
        membership.protocol_name = value.protocol
        since_ms = value.current_state_timestamp
        membership.state_since_ms = None if since_ms == -1 else since_ms
        membership.topics = membership.subscribed_topics()
        return membership

    # --- as a Membership ------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Whether it has no members; ids may be pending."""
        return self.state is GroupState.EMPTY

    @property
    def state_name(self) -> str:
        """Kafka's name of the state."""
        return str(self.state.value)

    @property
    def record_keys(self) -> Sequence[bytes]:
        """See `Membership`; a classic group has one record."""
        return [encode_key(self.group_id)]

    def check_may_commit(self, member: Member, *, version: int, is_transactional: bool) -> None:
        """See `Membership`. A group with members takes commits of its present generation only.

        Raises:
            BrokerResponseError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION or
                REBALANCE_IN_PROGRESS.
        """
        # A consumer that uses ``assign()``, or an admin tool: without a generation it may commit while nobody
        # reads.
        if member.generation_id < 0 and self.is_empty:
            return
        if member.generation_id >= 0 or member.member_id or member.instance_id is not None:
            self.validate(member.generation_id, member.member_id, member.instance_id)
        # TxnOffsetCommit before version 3 has no member fields, so a transaction without them is accepted.
        elif not is_transactional:
            raise error_for(ErrorCode.UNKNOWN_MEMBER_ID, "the group has members; only they may commit")
        if is_transactional:
            return
        if self.state is GroupState.COMPLETING_REBALANCE:
            raise error_for(ErrorCode.REBALANCE_IN_PROGRESS, "the leader has not assigned yet")
        self.keep_alive(self.members.by_id[member.member_id])

    def check_may_fetch(self, member: Member) -> None:
        """See `Membership`; every client may fetch."""

    def is_subscribed_to(self, topic: str) -> bool:
        """See `Membership`; unreadable subscriptions of consumers count as subscriptions to every topic."""
        if self.topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in self.topics

    def retention_start_ms(self, committed: CommittedOffset) -> int | None:
        """See `Membership`: from the time the group became empty; in a stable group from the commit."""
        if not self.protocol_type:
            return committed.commit_timestamp_ms
        if self.is_empty:
            return committed.commit_timestamp_ms if self.state_since_ms is None else self.state_since_ms
        is_known = self.state is GroupState.STABLE and self.topics is not None
        return committed.commit_timestamp_ms if is_known else None

    def loaded(self) -> None:
        """See `Membership`: members get a new session timeout to come back."""
        for member in self.members.by_id.values():
            self.keep_alive(member)
        if len(self.members) > self.host.settings.groups.group_max_size:
            self.prepare_rebalance("it is larger than group.max.size")

    def dismiss(self, code: int) -> None:
        self.go(GroupEvent.END)
        for member_id in list(self.members.joins):
            self.members.answer_join(member_id, JoinResult(code, member_id))
        for member_id in list(self.members.syncs):
            self.members.answer_sync(member_id, SyncResult(code))
        for key in (self.join_timer, self.sync_timer):
            self.host.timers.cancel(key)
        for member_id in (*self.members.by_id, *self.members.pending):
            self.host.timers.cancel(self.session_timer(member_id))

    # --- requests of members --------------------------------------------------------------------------------

    def validate(self, generation_id: int, member_id: str, instance_id: str | None) -> ClassicMember:
        """Return the member that sent a request, if it is of the present generation.

        Raises:
            BrokerResponseError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or ILLEGAL_GENERATION.
        """
        member = self.members.validate(member_id, instance_id)
        if generation_id != self.generation_id:
            raise error_for(
                ErrorCode.ILLEGAL_GENERATION, f"generation {generation_id} is not {self.generation_id}"
            )
        return member

    def check_protocol(self, member_id: str, protocol_type: str | None, protocol_name: str | None) -> None:
        """Check that a SyncGroup names the group's protocol type and assignor.

        Raises:
            BrokerResponseError: INCONSISTENT_GROUP_PROTOCOL (23).
        """
        if protocol_type not in (None, self.protocol_type) or protocol_name not in (None, self.protocol_name):
            raise error_for(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"the group uses {quoted(self.protocol_name)} of type {quoted(self.protocol_type)}, not what "
                f"{quoted(member_id)} names",
            )

    def heartbeat(self, generation_id: int, member_id: str, instance_id: str | None) -> None:
        """Handle a heartbeat.

        Raises:
            BrokerResponseError: as ``validate``; REBALANCE_IN_PROGRESS: the member has to join again.
        """
        self.keep_alive(self.validate(generation_id, member_id, instance_id))
        if self.state is GroupState.PREPARING_REBALANCE:
            raise error_for(ErrorCode.REBALANCE_IN_PROGRESS, "the group rebalances")

    def sync(self, member_id: str, assignments: dict[str, bytes], reply: SyncReply) -> None:
        """Handle the SyncGroup of a validated member; the leader's carries all assignments.

        Raises:
            BrokerResponseError: REBALANCE_IN_PROGRESS: the member has to join again.
        """
        if self.state is GroupState.PREPARING_REBALANCE:
            raise error_for(ErrorCode.REBALANCE_IN_PROGRESS, "the group rebalances")
        self.members.pending_syncs.discard(member_id)
        if not self.members.pending_syncs:
            self.host.timers.cancel(self.sync_timer)
        if self.state is GroupState.STABLE:
            # A follower's SyncGroup may come after the leader's, or be repeated after a lost answer.
            reply(self.share(self.members.by_id[member_id]))
            return
        self.members.wait_sync(member_id, reply)
        if member_id == self.members.leader:
            self.assign(assignments)

    def leave(self, member_id: str, instance_id: str | None) -> None:
        """Remove a member, by member id or by instance id alone; call ``left`` after the last one.

        Raises:
            BrokerResponseError: UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID.
        """
        if member_id in self.members.pending:
            gone_id = member_id
        elif member_id:
            gone_id = self.members.validate(member_id, instance_id).member_id
        else:
            known_id = None if instance_id is None else self.members.static_id(instance_id)
            if known_id is None:
                raise error_for(
                    ErrorCode.UNKNOWN_MEMBER_ID, f"the group has no instance {quoted(instance_id)}"
                )
            gone_id = known_id
        self.remove(gone_id)

    def left(self) -> None:
        """Begin a rebalance after members have left."""
        if self.state in REBALANCING:
            self.prepare_rebalance("members left")
        else:
            self.complete_join_if_all_came()

    # --- generations ----------------------------------------------------------------------------------------

    def rebalance_or_complete(self, reason: str) -> None:
        """Begin a rebalance after a member joined; one that is under way may be complete now."""
        if self.state is GroupState.PREPARING_REBALANCE:
            self.complete_join_if_all_came()
        else:
            self.prepare_rebalance(reason)

    def prepare_rebalance(self, reason: str) -> None:
        """Begin a rebalance: all members have to join again."""
        if self.state is GroupState.COMPLETING_REBALANCE:
            self._fail_assignment(ErrorCode.REBALANCE_IN_PROGRESS)
        self.members.pending_syncs.clear()
        self.host.timers.cancel(self.sync_timer)
        self._is_initial = self.is_empty
        self.go(GroupEvent.REBALANCE)
        self.last_rebalance = Rebalance(self.host.wall_ms(), self.generation_id, reason)
        _log.info(
            "group %s rebalances after generation %d: %s", quoted(self.group_id), self.generation_id, reason
        )
        if self._is_initial:
            delay_ms = self.host.settings.groups.group_initial_rebalance_delay_ms
            left_ms = max(self.members.rebalance_timeout_ms - delay_ms, 0)
            self._set(self.join_timer, delay_ms, partial(self._initial_delay_over, delay_ms, left_ms))
        elif self.members.has_all_joined:
            self._complete_join()
        else:
            self._set(self.join_timer, self.members.rebalance_timeout_ms, self._complete_join)

    def complete_join_if_all_came(self) -> None:
        """Complete the rebalance if all have joined; a group's first one waits for its delay."""
        is_due = self.state is GroupState.PREPARING_REBALANCE and not self._is_initial
        if is_due and self.members.has_all_joined:
            self._complete_join()

    def note_newcomer(self) -> None:
        """Note a new member: it extends ``group.initial.rebalance.delay.ms``."""
        self._has_newcomers = self.state is GroupState.PREPARING_REBALANCE and self._is_initial

    def _initial_delay_over(self, delay_ms: int, left_ms: int) -> None:
        if not self._has_newcomers or not left_ms:
            self._complete_join()
            return
        self._has_newcomers = False
        # All delays together take at most the rebalance timeout.
        next_ms = min(self.host.settings.groups.group_initial_rebalance_delay_ms, left_ms)
        rest_ms = max(left_ms - delay_ms, 0)
        self._set(self.join_timer, next_ms, partial(self._initial_delay_over, next_ms, rest_ms))

    def _complete_join(self) -> None:
        """Begin the next generation with those who joined, and with static members, which may be away."""
        self.host.timers.cancel(self.join_timer)
        absent = [each for each in self.members.by_id.values() if each.member_id not in self.members.joins]
        for member in absent:
            # A static member keeps its place while it restarts (KIP-345), until its session times out.
            if member.instance_id is None:
                self.remove(member.member_id)
        # Only static members are left, and all are away: nobody could assign, so the rebalance waits again.
        if not self.members.elect() and self.members.by_id:
            self._set(self.join_timer, self.members.rebalance_timeout_ms, self._complete_join)
            return
        self.generation_id += 1
        self.protocol_name = self.members.selected_protocol() if self.members.by_id else None
        self.topics = self.subscribed_topics()
        self._is_initial = False
        if not self.members.by_id:
            self.go(GroupEvent.EMPTY)
            self._write_or_warn()
            return
        # A generation is written together with its assignment, as in Kafka: after a restart before that, the
        # members join again.
        self.go(GroupEvent.JOIN)
        self.members.pending_syncs = set(self.members.by_id)
        self._set(self.sync_timer, self.members.rebalance_timeout_ms, self._expire_syncs)
        for member in list(self.members.by_id.values()):
            self.members.answer_join(member.member_id, self.joined(member))
            member.is_new = False
            self.keep_alive(member)

    def joined(self, member: ClassicMember) -> JoinResult:
        """Return the JoinGroup answer for a member of the present generation."""
        is_leader = member.member_id == self.members.leader
        return JoinResult(
            ErrorCode.NONE,
            member.member_id,
            self.generation_id,
            self.protocol_type,
            self.protocol_name,
            self.members.leader or "",
            tuple(self.members.by_id.values()) if is_leader else (),
        )

    def assign(self, assignments: dict[str, bytes]) -> None:
        """Take the leader's assignment; a member that is missing in it gets an empty one."""
        for member in self.members.by_id.values():
            member.assignment = assignments.get(member.member_id, b"")
        try:
            self.write()
        except BrokerResponseError as error:
            # The members have the assignment in memory already. It goes, because a restart would not know it.
            self._fail_assignment(error.code)
            self.prepare_rebalance("its assignment could not be written")
            return
        self.go(GroupEvent.ASSIGN)
        for member in self.members.by_id.values():
            if self.members.answer_sync(member.member_id, self.share(member)):
                self.keep_alive(member)

    def share(self, member: ClassicMember) -> SyncResult:
        """Return the SyncGroup answer for a member."""
        return SyncResult(ErrorCode.NONE, self.protocol_type, self.protocol_name, member.assignment)

    def _fail_assignment(self, code: int) -> None:
        for member in self.members.by_id.values():
            member.assignment = b""
            if self.members.answer_sync(member.member_id, SyncResult(code)):
                self.keep_alive(member)

    # --- timeouts -------------------------------------------------------------------------------------------

    def keep_alive(self, member: ClassicMember) -> None:
        """Restart the member's session timeout."""
        timeout_ms = _NEW_MEMBER_JOIN_TIMEOUT_MS if member.is_new else member.session_timeout_ms
        self.begin_session(member.member_id, timeout_ms)

    def begin_session(self, member_id: str, timeout_ms: int) -> None:
        """Start the session timeout of a member or a pending id."""
        self._set(self.session_timer(member_id), timeout_ms, partial(self._expire_session, member_id))

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending id."""
        self.host.timers.cancel(self.session_timer(member_id))
        self.members.remove(member_id)

    def _expire_session(self, member_id: str) -> None:
        member = self.members.by_id.get(member_id)
        is_waiting = member_id in self.members.joins or member_id in self.members.syncs
        if member is not None and is_waiting and not member.is_new:
            return  # it waits for our answer, which restarts its session
        _log.info(
            "member %s of group %s is removed: its session timed out",
            quoted(member_id),
            quoted(self.group_id),
        )
        self.members.remove(member_id)
        if member is None:
            if self.state is GroupState.PREPARING_REBALANCE and self.members.has_all_joined:
                self._complete_join()
        elif self.state in REBALANCING:
            self.prepare_rebalance(f"member {quoted(member_id)} sent no heartbeat")
        elif self.members.has_all_joined:
            self._complete_join()

    def _expire_syncs(self) -> None:
        """Remove members that joined but sent no SyncGroup within the rebalance timeout."""
        if not self.members.pending_syncs:
            return
        for member_id in list(self.members.pending_syncs):
            self.remove(member_id)
        self.prepare_rebalance("members sent no SyncGroup")

    def session_timer(self, member_id: str) -> TimerKey:
        """Key of a member's session timer."""
        return self.group_id, "session", member_id

    @property
    def join_timer(self) -> TimerKey:
        """Key of the timer that completes a rebalance."""
        return self.group_id, "join"

    @property
    def sync_timer(self) -> TimerKey:
        """Key of the timer that ends the wait for SyncGroups."""
        return self.group_id, "sync"

    def _set(self, key: TimerKey, delay_ms: int, action: Callable[[], None]) -> None:
        self.host.timers.set(key, self.host.now_ms() + delay_ms, action)

    # --- the log --------------------------------------------------------------------------------------------

    def go(self, event: GroupEvent) -> None:
        self.state = next_state(TRANSITIONS, self.state, event, f"group {quoted(self.group_id)}")
        self.state_since_ms = self.host.wall_ms()

    def write(self, tombstones: Sequence[tuple[bytes, bytes | None]] = ()) -> None:
        """Append the group's record, after ``tombstones``.

        Raises:
            BrokerResponseError: the append failed.
        """
        value = GroupMetadataValue(
            protocol_type=self.protocol_type,
            generation=self.generation_id,
            protocol=self.protocol_name,
            leader=self.members.leader,
            current_state_timestamp=-1 if self.state_since_ms is None else self.state_since_ms,
            members=[to_record(each, self.protocol_name) for each in self.members.by_id.values()],
        )
        self.host.append(self.group_id, [*tombstones, (encode_key(self.group_id), encode_value(value))])

    def _write_or_warn(self) -> None:
        """Write an empty generation; if that fails, former members time out again after a restart."""
        try:
            self.write()
        except BrokerResponseError as error:
            _log.warning("cannot write that group %s is empty: %s", quoted(self.group_id), error.message)

    def subscribed_topics(self) -> frozenset[str] | None:
        """Return the topics of all subscriptions; None if one cannot be read, or members are no consumers."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        topics: set[str] = set()
        for member in self.members.by_id.values():
            found = subscribed_topics(member.metadata(self.protocol_name))
            if found is None:
                return None
            topics |= found
        return frozenset(topics)
