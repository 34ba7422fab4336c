"""The members of a consumer group as the coordinator has them: heartbeats, timers, and who may commit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from splashdam.embedded_broker.answering.turns import UNIT_BYTES
from splashdam.embedded_broker.configs.groups import GroupTimes, assignor_names, group_times
from splashdam.embedded_broker.groups.consumer.assignors import assignor_of
from splashdam.embedded_broker.groups.consumer.context import PatternMatches, World
from splashdam.embedded_broker.groups.consumer.group import Change, ConsumerGroup, Draft
from splashdam.embedded_broker.groups.consumer.heartbeat import Heartbeat, fence, hear, leave
from splashdam.embedded_broker.groups.consumer.member import (
    ConsumerMember,
    MemberState,
    TopicIdPartition,
)
from splashdam.embedded_broker.groups.consumer.migration import to_classic
from splashdam.embedded_broker.groups.consumer.records import by_topic, encode_change
from splashdam.embedded_broker.groups.group import FIRST_TRANSACTIONAL_EPOCH_VERSION, GroupHost, Member
from splashdam.embedded_broker.groups.offset_records import CommittedOffset
from splashdam.model.broker_errors import BrokerResponseError, ErrorCode, error_for
from splashdam.model.log_text import quoted

_log = logging.getLogger(__name__)

R = TypeVar("R")

_ELEMENTS_IN_A_UNIT = 16
"""Names, members and partitions that a decision looks at, shares out and writes down."""

PATTERN_ELEMENTS = 4096
"""What it costs to match all topics with a pattern: more than a turn has time for."""

_FEW_NAMES = 256
"""Looked up in a fraction of a millisecond."""

_FIRST_EPOCH_VERSION = 9
"""Of OffsetCommit: members of consumer groups need it, for their epoch to be called one."""


class HeartbeatReply(NamedTuple):
    """What a member hears.

    Attributes:
        member_id: whose it is.
        member_epoch: what it has to name next.
        heartbeat_interval_ms: when; 0 for who has left.
        assigned: its partitions, None where nothing has changed.
    """

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    assigned: Sequence[tuple[bytes, list[int]]] | None = None


class Asked(NamedTuple):
    """A heartbeat of which nothing is known yet but how large it is.

    Attributes:
        member_id: who it is.
        member_epoch: what it names.
        ask: makes the rest of the request, beside the loop where that is large.
        elements: names and partitions in the request.
        names: of the topics that it wants.
        says_much: more than that the member is alive.
    """

    member_id: str
    member_epoch: int
    ask: Callable[[], Heartbeat]
    elements: int = 0
    names: Sequence[str] = ()
    says_much: bool = True


class Decided(NamedTuple, Generic[R]):
    """What was decided of a group, and is not so before it is written.

    Attributes:
        before: the group that it was decided for.
        after: the group as it becomes.
        records: what is to be written.
        result: what the decision says.
    """

    before: ConsumerGroup
    after: ConsumerGroup
    records: Sequence[tuple[bytes, bytes | None]]
    result: R


class Hearing:
    """A heartbeat as a `Work`: it decides, and changes nothing.

    Args:
        membership: of the group.
        ask: makes what the member says of the request.
        seed: the group as it was in the other protocol, to begin with.
        units: what it takes.
    """

    def __init__(
        self, membership: ConsumerMembership, ask: Callable[[], Heartbeat], seed: Sequence[Change], units: int
    ) -> None:
        self._membership = membership
        self._ask = ask
        self._seed = seed
        self._world = membership.world()
        self.size_bytes = units * UNIT_BYTES

    def do(self, _max_bytes: int) -> Decided[HeartbeatReply]:
        """The decision.

        Raises:
            BrokerResponseError: as ``heartbeat.hear`` and ``leave``.
        """
        return self._membership.prepare(partial(self._decide, self._ask()), self._seed)

    def _decide(self, asked: Heartbeat, draft: Draft) -> HeartbeatReply:
        if asked.member_epoch < 0:
            leave(draft, asked, self._world)
            return HeartbeatReply(asked.member_id, asked.member_epoch)
        heard = hear(draft, asked, self._world)
        epoch = heard.member.current.member_epoch
        assigned = None if heard.assigned is None else by_topic(heard.assigned)
        return HeartbeatReply(asked.member_id, epoch, assigned=assigned)


class ConsumerMembership:
    """The members of one group, a `Membership`.

    Args:
        group_id: the group's name.
        host: its surroundings.

    Attributes:
        group: what the log says of it.
    """

    group_type = "consumer"
    protocol_type = "consumer"

    def __init__(self, group_id: str, host: GroupHost) -> None:
        self.group = ConsumerGroup(group_id)
        self.host = host
        self._matches = PatternMatches()
        self._waits: set[tuple[str, str]] = set()
        self._is_over = False

    # --- as a Membership ------------------------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        """Kafka's name of the state."""
        return self.group.state

    @property
    def is_empty(self) -> bool:
        """No member is left."""
        return not self.group.members

    @property
    def record_keys(self) -> Sequence[bytes]:
        """Keys of all its records, in the order of their tombstones."""
        return [encode_change(self.group.group_id, each)[0] for each in self.group.tombstones()]

    def check_may_commit(self, member: Member, *, version: int, is_transactional: bool) -> None:
        """Nobody in particular for an empty group; a member of this epoch for its own.

        One that has not heard of its new epoch may still commit for what it has had since before (KIP-1251).

        Raises:
            BrokerResponseError: UNKNOWN_MEMBER_ID (25), STALE_MEMBER_EPOCH (113), ILLEGAL_GENERATION (22) for
                members that speak the classic protocol, UNSUPPORTED_VERSION (35) below version 9.
        """
        if member.generation_id < 0 and self.is_empty:
            return
        if is_transactional and member.is_nobody:
            return
        known = self.group.member(member.member_id)
        if not (is_transactional or known.is_classic or version >= _FIRST_EPOCH_VERSION):
            raise error_for(
                ErrorCode.UNSUPPORTED_VERSION,
                f"members of a consumer group commit with OffsetCommit {_FIRST_EPOCH_VERSION} or later",
            )
        if not self._kept_all(known, member):
            self._check_epoch_in(version, member, is_transactional=is_transactional)

    def _check_epoch_in(self, version: int, member: Member, *, is_transactional: bool) -> None:
        try:
            self._check_epoch(member)
        except BrokerResponseError as error:
            knows = not is_transactional or version >= FIRST_TRANSACTIONAL_EPOCH_VERSION
            if error.code != ErrorCode.STALE_MEMBER_EPOCH or knows:
                raise
            raise error_for(ErrorCode.ILLEGAL_GENERATION, error.message) from error

    def _kept_all(self, known: ConsumerMember, member: Member) -> bool:
        """Whether all that it commits for was its own at the epoch that it names, and still is."""
        held, topics = known.current.holds(), self.group.topics
        shapes = {each: topics.get(each.topic) for each in member.partitions}
        since = [
            None if shape is None else held.get(TopicIdPartition(shape.topic_id, each.partition))
            for each, shape in shapes.items()
        ]
        epoch, is_ahead = member.generation_id, member.generation_id > known.current.member_epoch
        return bool(since) and not is_ahead and all(each is not None and each <= epoch for each in since)

    def check_may_fetch(self, member: Member) -> None:
        """A member of this epoch, or somebody who claims to be none.

        Raises:
            BrokerResponseError: UNKNOWN_MEMBER_ID (25) or STALE_MEMBER_EPOCH (113).
        """
        if member.member_id or member.generation_id >= 0:
            self._check_epoch(member)

    def _check_epoch(self, member: Member) -> None:
        known = self.group.member(member.member_id)
        if member.generation_id != known.current.member_epoch:
            raise error_for(
                ErrorCode.ILLEGAL_GENERATION if known.is_classic else ErrorCode.STALE_MEMBER_EPOCH,
                f"member {quoted(member.member_id)} comes with epoch {member.generation_id} and is at "
                f"{known.current.member_epoch}",
            )

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member wants the topic, by name or by pattern."""
        return topic in self.group.subscribed_names()

    def retention_start_ms(self, committed: CommittedOffset) -> int | None:
        """From the commit: what members read is kept whatever its age."""
        return committed.commit_timestamp_ms

    def loaded(self) -> None:
        """Members of before a restart have the time of their sessions to come back."""
        for member_id in self.group.members:
            self.keep_alive(member_id)
            self._watch_revocation(member_id)

    def dismiss(self, code: int) -> None:
        """Ends its timers; nobody waits for an answer here."""
        self._is_over = True
        for member_id in self.group.members:
            self._cancel_timers(member_id)

    # --- what members say -----------------------------------------------------------------------------------

    def take(self, change: Change) -> None:
        """Takes in a record that is read at the start."""
        self.group.apply(change)

    def hearing(self, asked: Asked, seed: Sequence[Change] = ()) -> Hearing:
        """What decides on a heartbeat, for ``heard``.

        Args:
            asked: what the member says.
            seed: the group as it was in the other protocol, to begin with.
        """
        units = 1 + asked.elements // _ELEMENTS_IN_A_UNIT
        if not self._is_idle(asked):
            units += self.decision_units(asked.names)
        if seed:
            units += PATTERN_ELEMENTS // _ELEMENTS_IN_A_UNIT
        return Hearing(self, asked.ask, seed, units)

    def decision_units(self, names: Sequence[str] = ()) -> int:
        """What it takes to decide, where everything has to be looked at and shared out.

        Args:
            names: of topics that are wanted beside those of the group; of many, the first ones count.
        """
        group = self.group
        matched = {regex: len(resolved.topics) for regex, resolved in group.regexes.items()}
        subscribed = sum(
            len(each.metadata.topic_names) + matched.get(each.metadata.topic_regex or "", 0)
            for each in group.members.values()
        )
        patterns = PATTERN_ELEMENTS * bool(matched)
        wanted = group.subscribed_names()
        shared = 0
        if len(wanted) <= _FEW_NAMES:  # more are too much for a turn anyway
            shapes = self.host.topics.shapes(wanted.union(names[:_FEW_NAMES]))
            shared = sum(shape.partitions for shape in shapes.values())
        elements = len(group.members) + len(group.holders) + len(wanted) + subscribed + patterns + shared
        return elements // _ELEMENTS_IN_A_UNIT

    def _is_idle(self, asked: Asked) -> bool:
        """Nothing is to be done for the member, nor for a group of a few hundred names."""
        group, member = self.group, self.group.members.get(asked.member_id)
        return (
            not asked.says_much
            and member is not None
            and asked.member_epoch == member.current.member_epoch == group.epoch
            and member.current.is_reconciled_to(group.assignment_epoch)
            and not group.regexes
            and len(names := group.subscribed_names()) <= _FEW_NAMES
            and self.host.topics.shapes(names) == group.topics
        )

    def is_still(self, decided: Decided[R]) -> bool:
        """Whether the group is the one that this was decided for."""
        return self.group is decided.before

    def heard(
        self, decided: Decided[HeartbeatReply], owed: Sequence[tuple[bytes, None]] = ()
    ) -> HeartbeatReply:
        """Takes a heartbeat; what it changes is in the log when this returns.

        Args:
            decided: what ``hearing`` has come to, for the group as it is.
            owed: tombstones to write before the first records of the group.

        Raises:
            BrokerResponseError: the log refuses.
        """
        reply = self._settle(decided, owed)
        if reply.member_epoch < 0:
            return reply
        self.keep_alive(reply.member_id)
        return reply._replace(heartbeat_interval_ms=self.times().heartbeat_interval_ms)

    def world(self) -> World:
        """What a decision depends on, as it is now."""
        settings = self.host.settings
        return World(
            topics=self.host.topics,
            matches=self._matches,
            assignors=assignor_names(settings.groups.group_consumer_assignors),
            max_size=settings.groups.group_consumer_max_size,
            wall_ms=self.host.wall_ms(),
        )

    def times(self) -> GroupTimes:
        """How long members may be silent, as it is set now."""
        return group_times(self.host.settings.groups, self.host.configs_of(self.group.group_id))

    @property
    def assignor(self) -> str:
        """The assignor of the next target assignment."""
        return assignor_of(self.group, self.world())

    # --- the log, and time ----------------------------------------------------------------------------------

    def decide(self, decision: Callable[[Draft], R]) -> R:
        """Lets a draft decide, then writes what it changes; only then it is so.

        Raises:
            BrokerResponseError: what the decision raises, or the log refuses.
        """
        return self._settle(self.prepare(decision))

    def prepare(self, decision: Callable[[Draft], R], seed: Sequence[Change] = ()) -> Decided[R]:
        """Lets a draft decide; nothing is changed, and it may be done in a thread.

        Raises:
            BrokerResponseError: what the decision raises.
        """
        before = self.group
        draft = Draft(before)
        if seed:
            draft.change(*seed)
        result = decision(draft)
        records = [encode_change(before.group_id, each) for each in draft.changes]
        return Decided(before, draft.group, records, result)

    def _settle(self, decided: Decided[R], owed: Sequence[tuple[bytes, None]] = ()) -> R:
        if self._goes_classic(decided.after):
            self._hand_over(decided.after)
        elif decided.records:
            self.host.append(self.group.group_id, [*owed, *decided.records])
            before, self.group = self.group, decided.after
            self._watch(before)
        return decided.result

    def _goes_classic(self, after: ConsumerGroup) -> bool:
        """The last member that speaks the new protocol is gone, and others are left, and that is allowed."""
        settings = self.host.settings
        return (
            settings.groups.group_consumer_migration_policy in ("downgrade", "bidirectional")
            and 0 < len(after.members) <= settings.groups.group_max_size
            and all(each.is_classic for each in after.members.values())
            and not all(each.is_classic for each in self.group.members.values())
        )

    def _hand_over(self, after: ConsumerGroup) -> None:
        """The group goes on as a classic one, which begins with a rebalance."""
        classic = to_classic(after, self.host, self.group.epoch)
        classic.write([(key, None) for key in self.record_keys])
        _log.info("group %s goes on with the classic protocol", quoted(after.group_id))
        self.dismiss(ErrorCode.NONE)
        self.group = after
        self.host.replace_membership(after.group_id, classic)
        classic.loaded()
        classic.prepare_rebalance("the last member that spoke the consumer protocol is gone")

    def _watch(self, before: ConsumerGroup) -> None:
        """Sets timers by what has changed."""
        for member_id in before.members.keys() - self.group.members.keys():
            self._cancel_timers(member_id)
        for member_id, member in self.group.members.items():
            known = before.members.get(member_id)
            if known is None:
                self.keep_alive(member_id)
            if known is None or known.current is not member.current:
                self._watch_revocation(member_id)

    def keep_alive(self, member_id: str) -> None:
        """The member's session begins anew."""
        if self._is_over:
            return
        classic = self.group.members[member_id].metadata.classic
        timeout_ms = self.times().session_timeout_ms if classic is None else classic.session_timeout_ms
        action = partial(self._fence, member_id, f"was not heard of for {timeout_ms} ms")
        self.host.timers.set(self._key("session", member_id), self.host.now_ms() + timeout_ms, action)

    def wait_for(self, member_id: str, what: str, timeout_ms: int | None, *, is_kept: bool = False) -> None:
        """Gives a classic member so long for its next request; None: it came.

        Args:
            member_id: who it is.
            what: ``join`` or ``sync``.
            timeout_ms: until it is out.
            is_kept: where it is waited for already, that time counts.
        """
        key, wait = self._key(what, member_id), (what, member_id)
        if timeout_ms is None or self._is_over:
            self._waits.discard(wait)
            self.host.timers.cancel(key)
        elif not (is_kept and wait in self._waits):
            self._waits.add(wait)
            action = partial(self._fence, member_id, f"sent no {what} within {timeout_ms} ms")
            self.host.timers.set(key, self.host.now_ms() + timeout_ms, action)

    def _watch_revocation(self, member_id: str) -> None:
        """A member that has to give partitions up has its rebalance timeout for that."""
        member, key = self.group.members[member_id], self._key("revocation", member_id)
        if member.is_classic or member.current.state is not MemberState.UNREVOKED_PARTITIONS:
            self.host.timers.cancel(key)
            return
        at_ms = self.host.now_ms() + member.metadata.rebalance_timeout_ms
        self.host.timers.set(
            key, at_ms, partial(self._revocation_ends, member_id, member.current.member_epoch)
        )

    def _revocation_ends(self, member_id: str, member_epoch: int) -> None:
        member = self.group.members.get(member_id)
        if member is not None and member.current.member_epoch == member_epoch:
            self._fence(member_id, f"gave no partitions up within {member.metadata.rebalance_timeout_ms} ms")

    def _fence(self, member_id: str, reason: str) -> None:
        if member_id not in self.group.members:
            return
        _log.info("group %s: member %s is out: it %s", quoted(self.group.group_id), quoted(member_id), reason)
        try:
            self.decide(lambda draft: fence(draft, member_id, self.world()))
        except BrokerResponseError as error:
            _log.warning(
                "group %s: member %s stays: %s", quoted(self.group.group_id), quoted(member_id), error.message
            )
            self.keep_alive(member_id)

    def _cancel_timers(self, member_id: str) -> None:
        for what in ("session", "revocation", "join", "sync"):
            self._waits.discard((what, member_id))
            self.host.timers.cancel(self._key(what, member_id))

    def _key(self, what: str, member_id: str) -> tuple[str, str, str]:
        return self.group.group_id, what, member_id
