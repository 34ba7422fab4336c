"""A classic group's members as the coordinator knows them: who may commit, what their requests do."""

from __future__ import annotations

from collections.abc import Sequence

from splashdam.embedded_broker.groups.classic.generations import (
    CONSUMER_PROTOCOL_TYPE,
    REBALANCING,
    Generations,
)
from splashdam.embedded_broker.groups.classic.members import (
    ClassicMember,
    JoinResult,
    SyncReply,
    SyncResult,
)
from splashdam.embedded_broker.groups.classic.records import decode_value, encode_key, from_record
from splashdam.embedded_broker.groups.classic.roster import Roster
from splashdam.embedded_broker.groups.classic.states import GroupEvent, GroupState
from splashdam.embedded_broker.groups.group import GroupHost, Member
from splashdam.embedded_broker.groups.offset_records import CommittedOffset
from splashdam.model.broker_errors import ErrorCode, error_for
from splashdam.model.log_text import quoted
from splashdam.model.values import Buffer


class ClassicMembership(Generations):
    """The members of one group, and in which generation they are; a `Membership`."""

    LEAVE_AT_ONCE = 32
    """So many members go before the others are told."""

    leave_units = 12
    """What that takes: a third of a millisecond."""

    group_type = "classic"

    @classmethod
    def found(
        cls, group_id: str, host: GroupHost, owed: Sequence[tuple[bytes, bytes | None]] = ()
    ) -> ClassicMembership:
        """Begins the membership of a group that nobody has joined yet, and says so in the log.

        Args:
            group_id: the group.
            host: time, timers and the log.
            owed: records that belong before its first one, in the same batch.

        Raises:
            BrokerResponseError: the log refuses.
        """
        membership = cls(group_id, host)
        membership.write(owed)
        return membership

    @classmethod
    def from_record(cls, group_id: str, host: GroupHost, data: Buffer) -> ClassicMembership:
        """What a record says; ``loaded`` begins its timers.

        Raises:
            CorruptMessageError: the record cannot be read.
        """
        value = decode_value(data)
        membership = cls(group_id, host)
        members = [from_record(each, value.protocol) for each in value.members]
        membership.roster = Roster(members, value.leader)
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
    def state_name(self) -> str:
        """Kafka's name of the state."""
        return str(self.state.value)

    @property
    def record_keys(self) -> Sequence[bytes]:
        """Its one record."""
        return [encode_key(self.group_id)]

    def check_may_commit(self, member: Member, *, version: int, is_transactional: bool) -> None:
        """As Kafka: nobody for an empty group, a member of this generation for one that has an assignment.

        Raises:
            BrokerResponseError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION or
                REBALANCE_IN_PROGRESS.
        """
        if member.generation_id < 0 and self.is_empty:
            return
        if member.generation_id >= 0 or member.member_id or member.instance_id is not None:
            self.validate(member.generation_id, member.member_id, member.instance_id)
        elif not is_transactional:
            raise error_for(ErrorCode.UNKNOWN_MEMBER_ID, "the group has members, which alone may commit")
        if is_transactional:
            return
        if self.state is GroupState.COMPLETING_REBALANCE:
            raise error_for(ErrorCode.REBALANCE_IN_PROGRESS, "the leader has not assigned yet")
        self.keep_alive(self.roster.members[member.member_id])

    def check_may_fetch(self, member: Member) -> None:
        """Anybody may."""

    def is_subscribed_to(self, topic: str) -> bool:
        """As far as members say it in words that are known; consumers in others may read anything."""
        if self.topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in self.topics

    def retention_start_ms(self, committed: CommittedOffset) -> int | None:
        """From when the group is empty; while it is stable, from the commit: of topics nobody reads."""
        if not self.protocol_type:
            return committed.commit_timestamp_ms
        if self.is_empty:
            return committed.commit_timestamp_ms if self.state_since_ms is None else self.state_since_ms
        is_known = self.state is GroupState.STABLE and self.topics is not None
        return committed.commit_timestamp_ms if is_known else None

    def loaded(self) -> None:
        """Members of before a restart have the time of their sessions to come back."""
        for member in self.roster.members.values():
            self.keep_alive(member)
        if len(self.roster) > self.host.settings.groups.group_max_size:
            self.prepare_rebalance("it is larger than group.max.size")

    def dismiss(self, code: int) -> None:
        """Ends; whoever waits is told why."""
        self.go(GroupEvent.END)
        for member_id in list(self.roster.joins):
            self.roster.answer_join(member_id, JoinResult(code, member_id))
        for member_id in list(self.roster.syncs):
            self.roster.answer_sync(member_id, SyncResult(code))
        for key in (self.join_timer, self.sync_timer):
            self.host.timers.cancel(key)
        for member_id in (*self.roster.members, *self.roster.pending):
            self.host.timers.cancel(self.session_timer(member_id))

    # --- requests of members --------------------------------------------------------------------------------

    def validate(self, generation_id: int, member_id: str, instance_id: str | None) -> ClassicMember:
        """The member of the present generation that a request comes from.

        Raises:
            BrokerResponseError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or ILLEGAL_GENERATION.
        """
        member = self.roster.validate(member_id, instance_id)
        if generation_id != self.generation_id:
            raise error_for(
                ErrorCode.ILLEGAL_GENERATION, f"generation {generation_id} is not {self.generation_id}"
            )
        return member

    def check_protocol(self, member_id: str, protocol_type: str | None, protocol_name: str | None) -> None:
        """Refuses a SyncGroup of a member that names another protocol than the group has.

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
        """A member is alive.

        Raises:
            BrokerResponseError: as ``validate``; REBALANCE_IN_PROGRESS: it should join again.
        """
        self.keep_alive(self.validate(generation_id, member_id, instance_id))
        if self.state is GroupState.PREPARING_REBALANCE:
            raise error_for(ErrorCode.REBALANCE_IN_PROGRESS, "the group rebalances")

    def sync(self, member_id: str, assignments: dict[str, bytes], reply: SyncReply) -> None:
        """A member that was validated asks for its share; the leader brings everybody's.

        Raises:
            BrokerResponseError: REBALANCE_IN_PROGRESS: it should join again.
        """
        if self.state is GroupState.PREPARING_REBALANCE:
            raise error_for(ErrorCode.REBALANCE_IN_PROGRESS, "the group rebalances")
        self.roster.pending_syncs.discard(member_id)
        if not self.roster.pending_syncs:
            self.host.timers.cancel(self.sync_timer)
        if self.state is GroupState.STABLE:
            reply(self.share(self.roster.members[member_id]))
            return
        self.roster.wait_sync(member_id, reply)
        if member_id == self.roster.leader:
            self.assign(assignments)

    def leave(self, member_id: str, instance_id: str | None) -> None:
        """A member goes, or is sent away by the id of its instance alone; ``left`` follows for all.

        Raises:
            BrokerResponseError: UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID.
        """
        if member_id in self.roster.pending:
            gone_id = member_id
        elif member_id:
            gone_id = self.roster.validate(member_id, instance_id).member_id
        else:
            known_id = None if instance_id is None else self.roster.static_id(instance_id)
            if known_id is None:
                raise error_for(
                    ErrorCode.UNKNOWN_MEMBER_ID, f"the group has no instance {quoted(instance_id)}"
                )
            gone_id = known_id
        self.remove(gone_id)

    def left(self) -> None:
        """Members have left: the others share what they had."""
        if self.state in REBALANCING:
            self.prepare_rebalance("members left")
        else:
            self.complete_join_if_all_came()
