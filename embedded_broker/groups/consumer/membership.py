"""The membership of a consumer group: heartbeats, timers, log writes, and who may commit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from splashdam.embedded_broker.configs.groups import GroupTimes, assignor_names, group_times
from splashdam.embedded_broker.execution.turns import UNIT_BYTES
from splashdam.embedded_broker.groups.consumer.assignors import assignor_of
from splashdam.embedded_broker.groups.consumer.context import DecisionContext, PatternMatches
from splashdam.embedded_broker.groups.consumer.group import Change, ConsumerGroup, Draft
from splashdam.embedded_broker.groups.consumer.heartbeat import Heartbeat, apply_heartbeat, fence, leave
from splashdam.embedded_broker.groups.consumer.member import (
    ConsumerMember,
    MemberState,
    TopicIdPartition,
)
from splashdam.embedded_broker.groups.consumer.migration import to_classic
from splashdam.embedded_broker.groups.consumer.records import by_topic, encode_change
from splashdam.embedded_broker.groups.group import (
    FIRST_TRANSACTIONAL_EPOCH_VERSION,
    GroupHost,
    Member,
    Rebalance,
)
from splashdam.embedded_broker.groups.offset_records import CommittedOffset
from splashdam.model.broker_errors import BrokerResponseError, ErrorCode, error_for
from splashdam.model.log_text import quoted

_log = logging.getLogger(__name__)

R = TypeVar("R")

_ELEMENTS_IN_A_UNIT = 16
"""Names, members and partitions that one unit of work (``execution.turns``) covers."""

PATTERN_ELEMENTS = 4096
"""Cost of matching all topics with a pattern: more than the loop has time for, so a thread does it."""

_FENCE_RETRY_MS, _LONGEST_FENCE_RETRY_MS = 5_000, 60_000
"""Backoff between two attempts to remove a member, if the log does not take it; doubled while it does not."""

_FEW_NAMES = 256
"""So many names are looked up in a fraction of a millisecond."""

_FIRST_EPOCH_VERSION = 9
"""OffsetCommit version that members of consumer groups need: it carries a member epoch."""


class HeartbeatReply(NamedTuple):
    """The answer to a heartbeat.

    Attributes:
        member_id: of the member.
        member_epoch: the epoch that its next heartbeat has to name.
        heartbeat_interval_ms: time until its next heartbeat; 0 for a member that has left.
        assigned: its partitions, None if nothing has changed.
    """

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    assigned: Sequence[tuple[bytes, list[int]]] | None = None


class Asked(NamedTuple):
    """A heartbeat that is not unpacked yet.

    Attributes:
        member_id: of the member.
        member_epoch: that the request names.
        ask: unpacks the rest of the request, in a thread if that is large.
        elements: number of names and partitions in the request.
        names: topics that it subscribes to.
        has_content: the request names topics, a pattern or partitions, and is more than a sign of life.
    """

    member_id: str
    member_epoch: int
    ask: Callable[[], Heartbeat]
    elements: int = 0
    names: Sequence[str] = ()
    has_content: bool = True


class Decided(NamedTuple, Generic[R]):
    """A decision about a group; it takes effect once its records are written.

    Attributes:
        before: the group that it was made for.
        after: the group after it.
        records: to be written.
        result: return value of the decision.
    """

    before: ConsumerGroup
    after: ConsumerGroup
    records: Sequence[tuple[bytes, bytes | None]]
    result: R


class HeartbeatWork:
    """The decision on a heartbeat as a `Work`, which may run in a thread; it changes nothing.

    Args:
        membership: of the group.
        ask: unpacks the heartbeat.
        conversion: changes that convert the group's members from the classic protocol.
        units: its cost.
    """

    def __init__(
        self,
        membership: ConsumerMembership,
        ask: Callable[[], Heartbeat],
        conversion: Sequence[Change],
        units: int,
    ) -> None:
        self._membership = membership
        self._ask = ask
        self._conversion = conversion
        self._context = membership.context()
        self.size_bytes = units * UNIT_BYTES

    def do(self, _max_bytes: int) -> Decided[HeartbeatReply]:
        """Return the decision.

        Raises:
            BrokerResponseError: as ``heartbeat.apply_heartbeat`` and ``leave``.
        """
        return self._membership.prepare(partial(self._decide, self._ask()), self._conversion)

    def _decide(self, asked: Heartbeat, draft: Draft) -> HeartbeatReply:
        if asked.member_epoch < 0:
            leave(draft, asked, self._context)
            return HeartbeatReply(asked.member_id, asked.member_epoch)
        outcome = apply_heartbeat(draft, asked, self._context)
        epoch = outcome.member.current.member_epoch
        assigned = None if outcome.assigned is None else by_topic(outcome.assigned)
        return HeartbeatReply(asked.member_id, epoch, assigned=assigned)


class ConsumerMembership:
    """A consumer group as a `Membership`.

    Args:
        group_id: the group.
        host: time, timers, topics and the log.

    Attributes:
        group: its present state, by its records.
        last_rebalance: see `Membership`.
    """

    group_type = "consumer"
    protocol_type = "consumer"

    def __init__(self, group_id: str, host: GroupHost) -> None:
        self.group = ConsumerGroup(group_id)
        self.host = host
        self._matches = PatternMatches()
        self.last_rebalance: Rebalance | None = None
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
        return [encode_change(self.group.group_id, each)[0] for each in self.group.tombstones()]

    def check_may_commit(self, member: Member, *, version: int, is_transactional: bool) -> None:
        """See `Membership`. An empty group takes any commit; else the member epoch must be current.

        With an older epoch a member may still commit for partitions that it has held since then (KIP-1251).

        Raises:
            BrokerResponseError: UNKNOWN_MEMBER_ID (25), STALE_MEMBER_EPOCH (113), ILLEGAL_GENERATION (22) for
                members that speak the classic protocol, UNSUPPORTED_VERSION (35) below version 9.
        """
        if member.generation_id < 0 and self.is_empty:
            return
        # As Kafka: TxnOffsetCommit of a producer that names no member is not checked.
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
            # Clients of these versions do not know STALE_MEMBER_EPOCH.
            raise error_for(ErrorCode.ILLEGAL_GENERATION, error.message) from error

    def _kept_all(self, known: ConsumerMember, member: Member) -> bool:
        """Whether the member has held all partitions that it commits for since the epoch that it names."""
        held, topics = known.current.holds(), self.group.topics
        shapes = {each: topics.get(each.topic) for each in member.partitions}
        since = [
            None if shape is None else held.get(TopicIdPartition(shape.topic_id, each.partition))
            for each, shape in shapes.items()
        ]
        epoch, is_ahead = member.generation_id, member.generation_id > known.current.member_epoch
        return bool(since) and not is_ahead and all(each is not None and each <= epoch for each in since)

    def check_may_fetch(self, member: Member) -> None:
        """See `Membership`: a member of the present epoch, or a client that is no member.

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
        """See `Membership`; by name or by pattern."""
        return topic in self.group.subscribed_names()

    def retention_start_ms(self, committed: CommittedOffset) -> int | None:
        """See `Membership`: from the commit; offsets of subscribed topics never expire."""
        return committed.commit_timestamp_ms

    def loaded(self) -> None:
        """See `Membership`: members get a new session timeout to come back."""
        for member_id in self.group.members:
            self.keep_alive(member_id)
            self._watch_revocation(member_id)

    def dismiss(self, code: int) -> None:
        """See `Membership`; no request ever waits here."""
        self._is_over = True
        for member_id in self.group.members:
            self._cancel_timers(member_id)

    # --- heartbeats -----------------------------------------------------------------------------------------

    def take(self, change: Change) -> None:
        """Apply a record that was read from the log."""
        self.group.apply(change)

    def heartbeat_work(self, asked: Asked, conversion: Sequence[Change] = ()) -> HeartbeatWork:
        """Return the work that decides on a heartbeat; its result goes to ``finish_heartbeat``.

        Args:
            asked: the heartbeat.
            conversion: changes that convert the group's members from the classic protocol.
        """
        units = 1 + asked.elements // _ELEMENTS_IN_A_UNIT
        if not self._is_idle(asked):
            units += self.decision_units(asked.names)
        if conversion:
            # A conversion computes a whole assignment, whatever the heartbeat asks for: it belongs into a
            # thread.
            units += PATTERN_ELEMENTS // _ELEMENTS_IN_A_UNIT
        return HeartbeatWork(self, asked.ask, conversion, units)

    def decision_units(self, names: Sequence[str] = ()) -> int:
        """Return the cost of a decision that computes a new target assignment.

        Args:
            names: topics that the heartbeat subscribes to; of many, only the first ones are counted.
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
        if len(wanted) <= _FEW_NAMES:  # with more, the decision runs in a thread anyway
            shapes = self.host.topics.shapes(wanted.union(names[:_FEW_NAMES]))
            shared = sum(shape.partitions for shape in shapes.values())
        elements = len(group.members) + len(group.holders) + len(wanted) + subscribed + patterns + shared
        return elements // _ELEMENTS_IN_A_UNIT

    def _is_idle(self, asked: Asked) -> bool:
        """Whether the heartbeat cannot change anything, which is cheap to tell for a group of few topics."""
        group, member = self.group, self.group.members.get(asked.member_id)
        return (
            not asked.has_content
            and member is not None
            and asked.member_epoch == member.current.member_epoch == group.epoch
            and member.current.is_reconciled_to(group.assignment_epoch)
            and not group.regexes
            and len(names := group.subscribed_names()) <= _FEW_NAMES
            and self.host.topics.shapes(names) == group.topics
        )

    def is_still(self, decided: Decided[R]) -> bool:
        """Whether the group has not changed since this was decided."""
        return self.group is decided.before

    def finish_heartbeat(
        self, decided: Decided[HeartbeatReply], tombstones: Sequence[tuple[bytes, None]] = ()
    ) -> HeartbeatReply:
        """Apply a decided heartbeat; its changes are in the log when this returns.

        Args:
            decided: the result of ``heartbeat_work``, for the present group.
            tombstones: tombstones of another protocol's records, written before the group's first ones.

        Raises:
            BrokerResponseError: the append failed.
        """
        reply = self._settle(decided, tombstones)
        if reply.member_epoch < 0:
            return reply
        self.keep_alive(reply.member_id)
        return reply._replace(heartbeat_interval_ms=self.times().heartbeat_interval_ms)

    def context(self) -> DecisionContext:
        """Return what a decision depends on besides the group, as of now."""
        settings = self.host.settings
        return DecisionContext(
            topics=self.host.topics,
            matches=self._matches,
            assignors=assignor_names(settings.groups.group_consumer_assignors),
            max_size=settings.groups.group_consumer_max_size,
            wall_ms=self.host.wall_ms(),
        )

    def times(self) -> GroupTimes:
        """Return the present session timeout and heartbeat interval."""
        return group_times(self.host.settings.groups, self.host.configs_of(self.group.group_id))

    @property
    def assignor(self) -> str:
        """The assignor of the next target assignment."""
        return assignor_of(self.group, self.context())

    # --- decisions and timers -------------------------------------------------------------------------------

    def decide(self, decision: Callable[[Draft], R]) -> R:
        """Make a decision on a draft, write its changes, and then apply them.

        Raises:
            BrokerResponseError: as the decision; or the append failed.
        """
        return self._settle(self.prepare(decision))

    def prepare(self, decision: Callable[[Draft], R], conversion: Sequence[Change] = ()) -> Decided[R]:
        """Make a decision on a draft; nothing is changed, so it may run in a thread.

        Raises:
            BrokerResponseError: as the decision.
        """
        before = self.group
        draft = Draft(before)
        if conversion:
            draft.change(*conversion)
        result = decision(draft)
        records = [encode_change(before.group_id, each) for each in draft.changes]
        return Decided(before, draft.group, records, result)

    def _settle(self, decided: Decided[R], tombstones: Sequence[tuple[bytes, None]] = ()) -> R:
        if self._must_downgrade(decided.after):
            self._downgrade(decided.after)
        elif decided.records:
            self.host.append(self.group.group_id, [*tombstones, *decided.records])
            before, self.group = self.group, decided.after
            self._watch(before)
            if before.epoch != self.group.epoch:
                self._note_rebalance(_why_rebalanced(before, self.group))
        return decided.result

    def _note_rebalance(self, reason: str) -> None:
        self.last_rebalance = Rebalance(self.host.wall_ms(), self.group.epoch, reason)

    def _must_downgrade(self, after: ConsumerGroup) -> bool:
        """Whether the last member of the consumer protocol left, and the group may be downgraded."""
        settings = self.host.settings
        return (
            settings.groups.group_consumer_migration_policy in ("downgrade", "bidirectional")
            and 0 < len(after.members) <= settings.groups.group_max_size
            and all(each.is_classic for each in after.members.values())
            and not all(each.is_classic for each in self.group.members.values())
        )

    def _downgrade(self, after: ConsumerGroup) -> None:
        """Convert the group to the classic protocol; it begins with a rebalance."""
        classic = to_classic(after, self.host, self.group.epoch)
        classic.write([(key, None) for key in self.record_keys])
        _log.info("group %s goes on with the classic protocol", quoted(after.group_id))
        # The classic record and the tombstones are written, so nothing below may fail. Timers end first: the
        # classic membership sets its own under the same keys.
        self.dismiss(ErrorCode.NONE)
        self.group = after
        self.host.replace_membership(after.group_id, classic)
        classic.loaded()
        classic.prepare_rebalance("the last member of the consumer protocol has left")

    def _watch(self, before: ConsumerGroup) -> None:
        """Start and cancel timers after a change."""
        for member_id in before.members.keys() - self.group.members.keys():
            self._cancel_timers(member_id)
        for member_id, member in self.group.members.items():
            known = before.members.get(member_id)
            if known is None:
                self.keep_alive(member_id)
            # A timer restarts only for a changed assignment: a heartbeat in between must not extend the time
            # to revoke.
            if known is None or known.current is not member.current:
                self._watch_revocation(member_id)

    def keep_alive(self, member_id: str) -> None:
        """Restart the member's session timeout."""
        # After a downgrade the timer of this key belongs to the classic membership.
        if self._is_over:
            return
        classic = self.group.members[member_id].metadata.classic
        timeout_ms = self.times().session_timeout_ms if classic is None else classic.session_timeout_ms
        action = partial(self._fence, "session", member_id, f"sent no heartbeat for {timeout_ms} ms")
        self.host.timers.set(self._key("session", member_id), self.host.now_ms() + timeout_ms, action)

    def wait_for(self, member_id: str, what: str, timeout_ms: int | None, *, is_kept: bool = False) -> None:
        """Start the timeout for the next JoinGroup or SyncGroup of a classic member.

        Args:
            member_id: of the member.
            what: ``join`` or ``sync``.
            timeout_ms: after which the member is removed; None to cancel, because the request came.
            is_kept: a timeout that runs already is not restarted.
        """
        key, wait = self._key(what, member_id), (what, member_id)
        if timeout_ms is None or self._is_over:
            self._waits.discard(wait)
            self.host.timers.cancel(key)
        elif not (is_kept and wait in self._waits):
            self._waits.add(wait)
            action = partial(self._fence, what, member_id, f"sent no {what} within {timeout_ms} ms")
            self.host.timers.set(key, self.host.now_ms() + timeout_ms, action)

    def _watch_revocation(self, member_id: str) -> None:
        """Start the rebalance timeout of a member that has to revoke partitions."""
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
            reason = f"revoked no partitions within {member.metadata.rebalance_timeout_ms} ms"
            self._fence("revocation", member_id, reason)

    def _fence(self, what: str, member_id: str, reason: str, *, retry_ms: int = _FENCE_RETRY_MS) -> None:
        """Remove a member whose timer has ended; while that cannot be written, the timer runs on."""
        if member_id not in self.group.members:
            return
        # A failed disk refuses this until the broker is restarted, perhaps for thousands of members.
        is_first = retry_ms == _FENCE_RETRY_MS
        group, member = quoted(self.group.group_id), quoted(member_id)
        if is_first:
            _log.info("group %s: member %s is removed: it %s", group, member, reason)
        try:
            self.decide(lambda draft: fence(draft, member_id, self.context()))
            self._note_rebalance(f"member {member} was removed: it {reason}")
        except BrokerResponseError as error:
            if is_first:
                _log.warning("group %s: member %s cannot be removed: %s", group, member, error.message)
            longer_ms = min(2 * retry_ms, _LONGEST_FENCE_RETRY_MS)
            again = partial(self._fence, what, member_id, reason, retry_ms=longer_ms)
            self.host.timers.set(self._key(what, member_id), self.host.now_ms() + retry_ms, again)

    def _cancel_timers(self, member_id: str) -> None:
        for what in ("session", "revocation", "join", "sync"):
            self._waits.discard((what, member_id))
            self.host.timers.cancel(self._key(what, member_id))

    def _key(self, what: str, member_id: str) -> tuple[str, str, str]:
        return self.group.group_id, what, member_id


def _why_rebalanced(before: ConsumerGroup, after: ConsumerGroup) -> str:
    """Return what differs between two epochs of a group."""
    for what, those, others in (("joined", after, before), ("left", before, after)):
        found = [each for each in those.members if each not in others.members]
        if found:
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            return f"member {quoted(found[0])}{more} {what}"
    if before.topics != after.topics:
        return "the topics that it reads have changed"
    return "a member subscribed to other topics"
