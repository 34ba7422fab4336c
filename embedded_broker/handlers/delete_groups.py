"""DeleteGroups 0–3: delete groups without members, and their offsets.

Version 3 has a field for an error message, which stays null here as in Kafka 4.4.
"""

from __future__ import annotations

from splashdam.embedded_broker.execution.answers import Answer
from splashdam.embedded_broker.execution.turns import Steps, units_of_names
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.embedded_broker.topics.internal_topics import Appended
from splashdam.model.broker_errors import BrokerResponseError, ErrorCode, error_for
from splashdam.model.log_text import quoted
from splashdam.storage.log import Log
from splashdam.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

_DELETION_UNITS = 4
"""Units of a deletion: it appends a batch."""


@handles(DeleteGroupsRequest, versions=range(4))
def delete_groups(request: DeleteGroupsRequest, context: RequestContext) -> Steps[Answer]:
    """Answer with a code for each group: 69 if it does not exist, 68 if it has members."""
    answer, appended = DeleteGroupsResponse(), Appended()
    for group_id in dict.fromkeys(request.groups_names):
        yield units_of_names(group_id)
        code: int = ErrorCode.NONE
        try:
            appended.add(_delete(group_id, context))
            yield _DELETION_UNITS
        except BrokerResponseError as error:
            code = error.code
        answer.results.append(DeletableGroupResult(group_id=group_id, error_code=code))
    return appended.answer(answer, lambda _: _not_kept(answer))


def _delete(group_id: str, context: RequestContext) -> Log:
    groups = context.broker.groups
    group = groups.find(group_id)
    if group is None:
        raise error_for(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {quoted(group_id)}")
    if not group.is_empty:
        raise error_for(ErrorCode.NON_EMPTY_GROUP, f"group {quoted(group_id)} has members")
    context.broker.offsets.delete_group(group_id)
    return groups.log_of(group_id)


def _not_kept(answer: DeleteGroupsResponse) -> DeleteGroupsResponse:
    for result in answer.results:
        result.error_code = result.error_code or ErrorCode.NOT_COORDINATOR
    return answer
