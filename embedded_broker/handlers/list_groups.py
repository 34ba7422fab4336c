"""ListGroups 0–5: the groups this broker keeps, of the states (4) and types (5) that are asked for."""

from __future__ import annotations

from splashdam.embedded_broker.registry import RequestContext, handles
from splashdam.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


@handles(ListGroupsRequest, versions=range(6))
def list_groups(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    """All that pass both filters, of which an empty one lets everything pass; neither knows case."""
    states = {each.lower() for each in request.states_filter}
    types = {each.lower() for each in request.types_filter}
    return ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=group_id,
                protocol_type=group.protocol_type,
                group_state=group.state_name,
                group_type=group.group_type,
            )
            for _, group_id, group in context.broker.groups.all_groups()
            if (not states or group.state_name.lower() in states) and (not types or group.group_type in types)
        ]
    )
