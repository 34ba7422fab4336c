"""JoinGroup: which member is added, which gets an id first, and when it causes a rebalance."""

from __future__ import annotations

from splashdam.embedded_broker.groups.classic.members import (
    ClassicMember,
    JoinReply,
    JoinRequest,
    JoinResult,
)
from splashdam.embedded_broker.groups.classic.membership import ClassicMembership, GroupState
from splashdam.model.broker_errors import BrokerResponseError, ErrorCode
from splashdam.model.log_text import quoted


def join(membership: ClassicMembership, request: JoinRequest, reply: JoinReply) -> None:
    """Handle a JoinGroup; it is answered when all members have joined, or at once if nothing changes."""
    if not _has_room(membership, request.member_id):
        # An id that was handed out would be waited for in each rebalance, until its session ends.
        membership.remove(request.member_id)
        reply(JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, ""))
    elif not _is_supported(membership, request):
        reply(JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
    elif not request.member_id:
        _join_without_id(membership, request, reply)
    elif request.member_id in membership.members.pending and request.instance_id is None:
        _add(membership, request, request.member_id, reply)
    else:
        try:
            member = membership.members.validate(request.member_id, request.instance_id)
        except BrokerResponseError as error:
            reply(JoinResult(error.code, request.member_id))
        else:
            _join_again(membership, member, request, reply)


def _has_room(membership: ClassicMembership, member_id: str) -> bool:
    """Check ``group.max.size``; in a rebalance only those who have joined count, as in Kafka."""
    members, limit = membership.members, membership.host.settings.groups.group_max_size
    if membership.is_empty:
        return True
    if membership.state is GroupState.PREPARING_REBALANCE:
        return member_id in members.joins or len(members.joins) < limit
    return member_id in members.by_id or len(members) < limit


def _is_supported(membership: ClassicMembership, request: JoinRequest) -> bool:
    if membership.is_empty:
        return bool(request.protocol_type and request.protocols)
    if request.protocol_type != membership.protocol_type:
        return False
    return membership.members.is_supported(each.name for each in request.protocols)


def _join_without_id(membership: ClassicMembership, request: JoinRequest, reply: JoinReply) -> None:
    new_id = request.new_member_id(membership.host.new_id())
    if request.instance_id is not None:
        old_id = membership.members.static_id(request.instance_id)
        if old_id is not None:
            _take_place(membership, old_id, new_id, request, reply)
            return
    elif request.asks_for_id:
        # The id is given out before the member counts (KIP-394): a client that loses the answer and joins
        # again would otherwise leave a member behind that delays every rebalance until its session ends.
        membership.members.pending.add(new_id)
        membership.begin_session(new_id, request.session_timeout_ms)
        reply(JoinResult(ErrorCode.MEMBER_ID_REQUIRED, new_id))
        return
    _add(membership, request, new_id, reply)


def _add(membership: ClassicMembership, request: JoinRequest, member_id: str, reply: JoinReply) -> None:
    member = ClassicMember(
        member_id,
        request.instance_id,
        request.client_id,
        request.client_host,
        request.rebalance_timeout_ms,
        request.session_timeout_ms,
        request.protocols,
        is_new=True,
    )
    membership.note_newcomer()
    if not membership.members.by_id:
        membership.protocol_type = request.protocol_type
    membership.members.add(member)
    membership.members.wait_join(member_id, reply)
    membership.keep_alive(member)
    membership.rebalance_or_complete(f"member {quoted(member_id)} is new")


def _join_again(
    membership: ClassicMembership, member: ClassicMember, request: JoinRequest, reply: JoinReply
) -> None:
    """Handle a member that joins again: with unchanged protocols it gets the present generation at once.

    A leader that joins again while the group is stable asks for a rebalance.
    """
    is_same = set(member.protocols) == set(request.protocols)
    may_ask = membership.state is GroupState.STABLE and member.member_id == membership.members.leader
    if is_same and not may_ask and membership.state is not GroupState.PREPARING_REBALANCE:
        reply(membership.joined(member))
        return
    _update(membership, member, request, reply)
    membership.rebalance_or_complete(f"member {quoted(member.member_id)} joins again")


def _update(
    membership: ClassicMembership, member: ClassicMember, request: JoinRequest, reply: JoinReply
) -> None:
    membership.members.update(
        member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms
    )
    membership.members.wait_join(member.member_id, reply)


def _take_place(
    membership: ClassicMembership, old_id: str, new_id: str, request: JoinRequest, reply: JoinReply
) -> None:
    """Let a static member that restarted replace its former id, without a rebalance if it can be avoided."""
    members, before = membership.members, membership.members.by_id[old_id]
    leader_before = members.leader or ""
    previous_request = before.protocols, before.rebalance_timeout_ms, before.session_timeout_ms
    membership.host.timers.cancel(membership.session_timer(old_id))
    member = members.replace(old_id, new_id)
    membership.keep_alive(member)
    _update(membership, member, request, reply)
    if membership.state is not GroupState.STABLE:
        if membership.state is GroupState.COMPLETING_REBALANCE:
            membership.prepare_rebalance(
                f"instance {quoted(request.instance_id)} is back before its assignment"
            )
        else:
            membership.complete_join_if_all_came()
        return
    if members.selected_protocol() != membership.protocol_name:
        membership.prepare_rebalance(f"instance {quoted(request.instance_id)} is back with other assignors")
        return
    try:
        # The new member id must survive a restart, or the restarted member would be fenced by its former id.
        membership.write()
    except BrokerResponseError as error:
        members.answer_join(new_id, JoinResult(error.code, ""))
        membership.host.timers.cancel(membership.session_timer(new_id))
        members.update(member, *previous_request)
        membership.keep_alive(members.replace(new_id, old_id))
        return
    result = membership.joined(member)
    if request.may_skip_assignment:
        result = result._replace(skip_assignment=bool(result.members))
    else:  # an older client would assign anew if told that it is the leader
        result = result._replace(leader=leader_before, members=())
    members.answer_join(new_id, result)
