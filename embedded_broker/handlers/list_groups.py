"""ListGroups 0–5: the groups that this broker coordinates, filtered by state (4) and type (5)."""

from __future__ import annotations

from splashdam.embedded_broker.execution.turns import PARTITIONS_IN_A_UNIT, Steps
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


@handles(ListGroupsRequest, versions=range(6))
def list_groups(request: ListGroupsRequest, context: RequestContext) -> Steps[ListGroupsResponse]:
    """Answer with the groups that pass both filters; empty filters pass all, and case does not matter."""
    states = {each.lower() for each in request.states_filter}
    types = {each.lower() for each in request.types_filter}
    answer = ListGroupsResponse()
    for number, (_, group_id, group) in enumerate(context.broker.groups.all_groups(), 1):
        if number % PARTITIONS_IN_A_UNIT == 0:
            yield 1
        if states and group.state_name.lower() not in states:
            continue
        if types and group.group_type not in types:
            continue
        answer.groups.append(
            ListedGroup(
                group_id=group_id,
                protocol_type=group.protocol_type,
                group_state=group.state_name,
                group_type=group.group_type,
            )
        )
    return answer
