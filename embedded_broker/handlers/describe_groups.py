"""DescribeGroups 0–6: state and members of classic groups.

A missing group is described as ``Dead``, from version 6 on with error 69. So is a group of KIP-848, which
ConsumerGroupDescribe describes.
"""

from __future__ import annotations

from splashdam.embedded_broker.execution.turns import (
    ANSWER_BYTES,
    ANSWER_TOO_LARGE,
    UNIT_BYTES,
    Steps,
    units_of_names,
)
from splashdam.embedded_broker.groups.classic.members import ClassicMember
from splashdam.embedded_broker.groups.classic.membership import ClassicMembership, GroupState
from splashdam.embedded_broker.groups.group import Group
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.model.broker_errors import BrokerResponseError, ErrorCode
from splashdam.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

_FIRST_NOT_FOUND_VERSION = _FIRST_MESSAGE_VERSION = 6


@handles(DescribeGroupsRequest, versions=range(7))
def describe_groups(request: DescribeGroupsRequest, context: RequestContext) -> Steps[DescribeGroupsResponse]:
    """Answer for each group."""
    answer, left_bytes = DescribeGroupsResponse(), ANSWER_BYTES
    for group_id in request.groups:
        described = _described(group_id, context) if left_bytes > 0 else _left_out(group_id, context.version)
        answer.groups.append(described)
        left_bytes -= len(group_id) + sum(map(_bytes, described.members))
        yield units_of_names(group_id) + sum(map(_units, described.members))
    return answer


def _left_out(group_id: str, version: int) -> DescribedGroup:
    answer = DescribedGroup(group_id=group_id, error_code=ErrorCode.INVALID_REQUEST)
    if version >= _FIRST_MESSAGE_VERSION:
        answer.error_message = ANSWER_TOO_LARGE
    return answer


def _bytes(member: DescribedGroupMember) -> int:
    names = (member.member_id, member.group_instance_id or "", member.client_id, member.client_host)
    return sum(map(len, names)) + len(member.member_metadata) + len(member.member_assignment)


def _units(member: DescribedGroupMember) -> int:
    size_bytes = len(member.member_metadata) + len(member.member_assignment)
    names = (member.member_id, member.group_instance_id or "", member.client_id)
    return units_of_names(*names) + size_bytes // UNIT_BYTES


def _described(group_id: str, context: RequestContext) -> DescribedGroup:
    try:
        group = context.broker.groups.find(group_id)
    except BrokerResponseError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code)
    if group is None:
        return _not_found(group_id, f"Group {group_id} not found.", context.version)
    if group.membership is not None and not isinstance(group.membership, ClassicMembership):
        return _not_found(group_id, f"Group {group_id} is not a classic group.", context.version)
    return _of(group_id, group, group.membership)


def _not_found(group_id: str, message: str, version: int) -> DescribedGroup:
    answer = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
    if version >= _FIRST_NOT_FOUND_VERSION:
        answer.error_code, answer.error_message = ErrorCode.GROUP_ID_NOT_FOUND, message
    return answer


def _of(group_id: str, group: Group, membership: ClassicMembership | None) -> DescribedGroup:
    if membership is None:
        return DescribedGroup(group_id=group_id, group_state=group.state_name)
    is_stable = membership.state is GroupState.STABLE
    protocol = membership.protocol_name if is_stable else None
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        protocol_type=membership.protocol_type,
        protocol_data=protocol or "",
        members=[_member(each, protocol) for each in membership.members.by_id.values()],
    )


def _member(member: ClassicMember, protocol: str | None) -> DescribedGroupMember:
    """Describe a member; without subscription and assignment while the group rebalances."""
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(protocol) if protocol is not None else b"",
        member_assignment=member.assignment if protocol is not None else b"",
    )
