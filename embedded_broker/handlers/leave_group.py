"""LeaveGroup 0–5: members leave a group, or are sent away by the id of their instance (facts section 5.1)."""

from __future__ import annotations

from splashdam.embedded_broker.groups.classic.requests import membership_of
from splashdam.embedded_broker.registry import RequestContext, handles
from splashdam.model.error_codes import ErrorCode
from splashdam.model.errors import BrokerResponseError
from splashdam.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

_FIRST_SEVERAL_VERSION = 3


@handles(LeaveGroupRequest, versions=range(6))
def leave_group(request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
    """Each member has its own code; up to version 2 there is one, whose code is the answer's."""
    has_several = context.version >= _FIRST_SEVERAL_VERSION
    asked = request.members if has_several else [MemberIdentity(member_id=request.member_id)]
    try:
        codes = _leave(request.group_id, asked, context)
    except BrokerResponseError as error:
        return LeaveGroupResponse(error_code=error.code)
    if not has_several:
        return LeaveGroupResponse(error_code=codes[0])
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=code
            )
            for each, code in zip(asked, codes, strict=True)
        ]
    )


def _leave(group_id: str, asked: list[MemberIdentity], context: RequestContext) -> list[int]:
    """Removes who can be; the codes.

    Raises:
        BrokerResponseError: this broker does not keep the group.
    """
    try:
        membership = membership_of(context.broker.groups, group_id)
    except BrokerResponseError as error:
        if error.code != ErrorCode.UNKNOWN_MEMBER_ID:
            raise
        return [error.code] * len(asked)
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
