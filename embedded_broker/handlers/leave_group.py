"""LeaveGroup 0–5: members leave a group, or are removed by their group instance id."""

from __future__ import annotations

from splashdam.embedded_broker.execution.turns import Steps, in_steps, units_of_names
from splashdam.embedded_broker.groups.routing import ClassicTarget, membership_of
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.model.broker_errors import BrokerResponseError, ErrorCode
from splashdam.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

_FIRST_SEVERAL_VERSION = 3


@handles(LeaveGroupRequest, versions=range(6))
def leave_group(request: LeaveGroupRequest, context: RequestContext) -> Steps[LeaveGroupResponse]:
    """Answer with a code for each member; up to version 2 with that of the only one.

    If a client that names many disconnects before the answer, only the first of them may be removed.
    """
    has_several = context.version >= _FIRST_SEVERAL_VERSION
    asked = request.members if has_several else [MemberIdentity(member_id=request.member_id)]
    codes: list[int] = []
    while True:
        try:
            membership = membership_of(context.broker.groups, request.group_id)
        except BrokerResponseError as error:
            if error.code != ErrorCode.UNKNOWN_MEMBER_ID and not codes:
                return LeaveGroupResponse(error_code=error.code)
            codes += [error.code] * (len(asked) - len(codes))
            break
        some = asked[len(codes) : len(codes) + membership.LEAVE_AT_ONCE]
        codes += _leave(membership, some)
        if len(codes) == len(asked):
            break
        yield membership.leave_units + units_of_names(*(each.member_id for each in some))
    if not has_several:
        return LeaveGroupResponse(error_code=codes[0])
    members = yield from in_steps(zip(asked, codes, strict=True), _answered)
    return LeaveGroupResponse(members=members)


def _leave(membership: ClassicTarget, asked: list[MemberIdentity]) -> list[int]:
    """Remove the members that can be removed, and return a code for each."""
    codes: list[int] = []
    for each in asked:
        try:
            membership.leave(each.member_id, each.group_instance_id)
            codes.append(ErrorCode.NONE)
        except BrokerResponseError as error:
            codes.append(error.code)
    if ErrorCode.NONE in codes:
        membership.left()
    return codes


def _answered(member: tuple[MemberIdentity, int]) -> MemberResponse:
    asked, code = member
    return MemberResponse(
        member_id=asked.member_id, group_instance_id=asked.group_instance_id, error_code=code
    )
