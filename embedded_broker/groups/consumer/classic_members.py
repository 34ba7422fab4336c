"""Requests of members that speak the classic protocol in a consumer group (KIP-848's online migration).

Such a member rejoins to get a new assignment. Its JoinGroup is handled as a full heartbeat, its generation is
its member epoch, and the broker assigns, whichever member is the leader.
"""

from __future__ import annotations

from functools import partial

from splashdam.embedded_broker.groups.classic.members import (
    JoinReply,
    JoinRequest,
    JoinResult,
    SyncReply,
    SyncResult,
)
from splashdam.embedded_broker.groups.classic.records import CONSUMER_PROTOCOL_TYPE
from splashdam.embedded_broker.groups.consumer.assignors import refresh, update_target
from splashdam.embedded_broker.groups.consumer.consumer_protocol import (
    Subscription,
    decode_subscription,
    encode_assignment,
    named_share,
)
from splashdam.embedded_broker.groups.consumer.group import ConsumerGroup, Draft, MetadataChange
from splashdam.embedded_broker.groups.consumer.heartbeat import check_size, fence, replace_static, step
from splashdam.embedded_broker.groups.consumer.member import (
    ClassicSide,
    ConsumerMember,
    MemberMetadata,
    MemberState,
)
from splashdam.embedded_broker.groups.consumer.membership import ConsumerMembership
from splashdam.embedded_broker.groups.consumer.migration import side_of
from splashdam.model.broker_errors import BrokerResponseError, ErrorCode, error_for
from splashdam.model.errors import ProtocolError
from splashdam.model.log_text import quoted


class ClassicRequests:
    """A consumer group with the methods of a `ClassicMembership` that handlers of classic requests call.

    Args:
        membership: of the group.
    """

    LEAVE_AT_ONCE = 1
    """Each removal writes records, and is decided on a copy of the group."""

    def __init__(self, membership: ConsumerMembership) -> None:
        self._membership = membership

    @property
    def _group(self) -> ConsumerGroup:
        return self._membership.group

    def join(self, request: JoinRequest, reply: JoinReply) -> None:
        """Handle a JoinGroup; it is answered at once."""
        host = self._membership.host
        try:
            self._check_protocols(request)
            if not request.member_id and request.asks_for_id and request.instance_id is None:
                reply(JoinResult(ErrorCode.MEMBER_ID_REQUIRED, request.new_member_id(host.new_id())))
                return
            subscription = decode_subscription(request.protocols[0].metadata)
            member_id = request.member_id or request.new_member_id(host.new_id())
            self._membership.decide(lambda draft: self._join(draft, member_id, request, subscription))
        except BrokerResponseError as error:
            reply(JoinResult(error.code, request.member_id))
            return
        except ProtocolError:
            reply(JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
            return
        self._membership.keep_alive(member_id)
        self._membership.wait_for(member_id, "join", None)
        self._membership.wait_for(member_id, "sync", request.rebalance_timeout_ms)
        epoch = self._group.members[member_id].current.member_epoch
        name = request.protocols[0].name
        reply(JoinResult(ErrorCode.NONE, member_id, epoch, CONSUMER_PROTOCOL_TYPE, name))

    def _join(self, draft: Draft, member_id: str, request: JoinRequest, subscription: Subscription) -> None:
        context = self._membership.context()
        check_size(draft, member_id, context)
        before = self._joining(draft, member_id, request)
        metadata = MemberMetadata(
            instance_id=request.instance_id,
            rack_id=subscription.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            topic_names=frozenset(subscription.topics),
            classic=ClassicSide(request.session_timeout_ms, request.protocols),
        )
        is_new = member_id not in draft.group.members
        if is_new or metadata != before.metadata:
            draft.change(MetadataChange(member_id, metadata))
        wants = metadata.topic_names != before.metadata.topic_names or bool(before.metadata.topic_regex)
        refresh(draft, context, has_changed=is_new or wants)
        update_target(draft, context)
        step(draft, member_id, named_share(subscription.owned_partitions, context.topics))

    def _joining(self, draft: Draft, member_id: str, request: JoinRequest) -> ConsumerMember:
        """Return the member that joins; a static one without a member id replaces its former self."""
        if request.instance_id is None:
            return draft.group.members.get(member_id) or ConsumerMember(member_id)
        if request.member_id:
            return self._known(draft.group, request.member_id, request.instance_id)
        previous = draft.group.static_member(request.instance_id)
        if previous is None:
            return ConsumerMember(member_id)
        return replace_static(draft, previous, member_id, is_released=True)

    def _check_protocols(self, request: JoinRequest) -> None:
        """Check protocol type and assignors: all classic members need an assignor in common, as in Kafka.

        Raises:
            BrokerResponseError: INCONSISTENT_GROUP_PROTOCOL (23), also if migration is disabled.
        """
        known = [
            {each.name for each in side_of(member).supported_protocols}
            for member in self._group.members.values()
            if member.is_classic
        ]
        is_common = any(all(each.name in names for names in known) for each in request.protocols)
        is_allowed = self._membership.host.settings.groups.group_consumer_migration_policy != "disabled"
        if not (is_allowed and is_common and request.protocol_type == CONSUMER_PROTOCOL_TYPE):
            raise error_for(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"group {quoted(self._group.group_id)} uses the consumer protocol; "
                "this member's protocols do not fit",
            )

    # --- members --------------------------------------------------------------------------------------------

    def validate(self, generation_id: int, member_id: str, instance_id: str | None) -> ConsumerMember:
        """Return the member that sent a request.

        Raises:
            BrokerResponseError: UNKNOWN_MEMBER_ID (25), FENCED_INSTANCE_ID (82), ILLEGAL_GENERATION (22).
        """
        member = self._known(self._group, member_id, instance_id)
        if generation_id != member.current.member_epoch:
            raise error_for(
                ErrorCode.ILLEGAL_GENERATION,
                f"member {quoted(member_id)} comes with generation {generation_id} and is at "
                f"{member.current.member_epoch}",
            )
        return member

    def _known(self, group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
        if instance_id is not None:
            current = group.static_members.get(instance_id)
            if current is not None and current != member_id:
                raise error_for(
                    ErrorCode.FENCED_INSTANCE_ID,
                    f"instance {quoted(instance_id)} is member {quoted(current)} now",
                )
        member = group.member(member_id)
        if not member.is_classic:
            raise error_for(
                ErrorCode.UNKNOWN_MEMBER_ID, f"member {quoted(member_id)} does not speak the classic protocol"
            )
        return member

    def heartbeat(self, generation_id: int, member_id: str, instance_id: str | None) -> None:
        """Handle a heartbeat.

        Raises:
            BrokerResponseError: as ``validate``; REBALANCE_IN_PROGRESS (27): the member has to rejoin.
        """
        self.validate(generation_id, member_id, instance_id)
        self._membership.keep_alive(member_id)
        self._membership.decide(lambda draft: refresh(draft, self._membership.context()))
        member = self._group.members[member_id]
        if self._should_rejoin(member):
            self._rejoin(member)

    def _should_rejoin(self, member: ConsumerMember) -> bool:
        current, group = member.current, self._group
        # Until other members have revoked what it waits for, joining again would bring it nothing.
        if current.state is MemberState.UNRELEASED_PARTITIONS:
            missing = group.share_of(member.member_id) - current.assigned.keys()
            return not any(group.is_held(each) for each in missing) or current.member_epoch < group.epoch
        return current.member_epoch < group.epoch or current.state is MemberState.UNREVOKED_PARTITIONS

    def _rejoin(self, member: ConsumerMember) -> None:
        timeout_ms = member.metadata.rebalance_timeout_ms
        self._membership.wait_for(member.member_id, "join", timeout_ms, is_kept=True)
        raise error_for(ErrorCode.REBALANCE_IN_PROGRESS, "the group has a new assignment")

    def check_protocol(self, member_id: str, protocol_type: str | None, protocol_name: str | None) -> None:
        """Check that a SyncGroup names the protocol of the member's JoinGroup.

        Raises:
            BrokerResponseError: INCONSISTENT_GROUP_PROTOCOL (23).
        """
        first = side_of(self._group.members[member_id]).supported_protocols[0].name
        if protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or protocol_name not in (None, first):
            raise error_for(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the member joined with {quoted(first)}")

    def sync(self, member_id: str, _: dict[str, bytes], reply: SyncReply) -> None:
        """Answer the SyncGroup of a validated member with its assignment.

        Raises:
            BrokerResponseError: REBALANCE_IN_PROGRESS (27): there is a newer one.
        """
        member = self._group.members[member_id]
        # One that has to revoke learns by this answer what it keeps, and joins again afterwards.
        is_revoking = member.current.state is MemberState.UNREVOKED_PARTITIONS
        if member.current.member_epoch < self._group.epoch and not is_revoking:
            self._rejoin(member)
        self._membership.wait_for(member_id, "sync", None)
        self._membership.keep_alive(member_id)
        protocol = side_of(member).supported_protocols[0]
        names = {shape.topic_id: name for name, shape in self._group.topics.items()}
        share = encode_assignment(member.current.assigned, names.get, protocol.metadata)
        reply(SyncResult(ErrorCode.NONE, CONSUMER_PROTOCOL_TYPE, protocol.name, share))

    @property
    def leave_units(self) -> int:
        """Cost of the next removal."""
        return 12 + self._membership.decision_units()

    def leave(self, member_id: str, instance_id: str | None) -> None:
        """Remove a member, by member id or by instance id alone.

        Raises:
            BrokerResponseError: UNKNOWN_MEMBER_ID (25), FENCED_INSTANCE_ID (82).
        """
        if not member_id and instance_id is not None:
            member_id = self._group.static_members.get(instance_id, "")
        member = self._known(self._group, member_id, instance_id)
        self._membership.decide(
            partial(fence, member_id=member.member_id, context=self._membership.context())
        )

    def left(self) -> None:
        """Do nothing: other members learn of it by their heartbeats."""
