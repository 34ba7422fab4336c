"""Guards of requests about groups and their offsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from splashdam.embedded_broker.authorization.refusals import (
    CODES,
    add_refused,
    element_of,
    may,
    refused,
    split,
    then,
)
from splashdam.embedded_broker.execution.answers import Answer
from splashdam.embedded_broker.execution.turns import Steps, in_steps, parted
from splashdam.embedded_broker.groups.routing import lacks_protocol
from splashdam.embedded_broker.serving.registry import PlainHandler, RequestContext, guards
from splashdam.model.acls import Operation, ResourceType
from splashdam.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from splashdam.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from splashdam.wire.messages.heartbeat import HeartbeatRequest
from splashdam.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from splashdam.wire.messages.leave_group import LeaveGroupRequest
from splashdam.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from splashdam.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from splashdam.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from splashdam.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from splashdam.wire.messages.sync_group import SyncGroupRequest
from splashdam.wire.registry import api_for

_GROUP, _TOPIC = CODES[ResourceType.GROUP], CODES[ResourceType.TOPIC]
_FIRST_GROUPS_VERSION, _FIRST_ERROR_VERSION = 8, 2
_FIRST_NULL_PROTOCOL = 7
"""JoinGroup version from which a refusal has a null protocol; before, an empty one."""


def _may(operation: Operation, context: RequestContext) -> Callable[[str], bool]:
    return lambda group: context.authorize(operation, ResourceType.GROUP, group)


@guards(JoinGroupRequest, SyncGroupRequest, HeartbeatRequest, LeaveGroupRequest)
def member(request: Any, context: RequestContext, handler: PlainHandler) -> Answer:
    """READ on the group; a missing protocol is refused by the handler before."""
    lacks = isinstance(request, SyncGroupRequest) and lacks_protocol(request, context.version)
    if lacks or _may(Operation.READ, context)(request.group_id):
        return handler(request, context)
    answer = api_for(request.API_KEY).response(error_code=_GROUP)
    if isinstance(answer, JoinGroupResponse) and context.version >= _FIRST_NULL_PROTOCOL:
        answer.protocol_name = None
    return answer


@guards(DescribeGroupsRequest)
def describe(request: DescribeGroupsRequest, context: RequestContext, handler: PlainHandler) -> Steps[Answer]:
    """DESCRIBE on each group; authorized operations are added for groups that exist."""
    request.groups, others = split(request.groups, _may(Operation.DESCRIBE, context))

    def change(answer: DescribeGroupsResponse) -> Steps[None]:
        if request.include_authorized_operations:
            for group in answer.groups:
                if not group.error_code:
                    group.authorized_operations = context.authorized_operations(
                        ResourceType.GROUP, group.group_id
                    )
                    yield 1
        answer.groups += yield from in_steps(
            others, lambda group: DescribedGroup(group_id=group, error_code=_GROUP)
        )

    return (yield from then(handler(request, context), change, context))


@guards(ListGroupsRequest)
def list_groups(request: ListGroupsRequest, context: RequestContext, handler: PlainHandler) -> Steps[Answer]:
    """DESCRIBE on the cluster lists all groups; otherwise those with DESCRIBE are listed."""
    if context.authorize(Operation.DESCRIBE, ResourceType.CLUSTER):
        return handler(request, context)
    may_describe = _may(Operation.DESCRIBE, context)

    def change(answer: ListGroupsResponse) -> Steps[None]:
        answer.groups, _ = yield from parted(answer.groups, lambda group: may_describe(group.group_id))

    return (yield from then(handler(request, context), change, context))


@guards(DeleteGroupsRequest)
def delete_groups(
    request: DeleteGroupsRequest, context: RequestContext, handler: PlainHandler
) -> Steps[Answer]:
    """DELETE on each group."""
    request.groups_names, others = split(request.groups_names, _may(Operation.DELETE, context))

    def change(answer: DeleteGroupsResponse) -> Steps[None]:
        answer.results += yield from in_steps(
            others, lambda group: DeletableGroupResult(group_id=group, error_code=_GROUP)
        )

    return (yield from then(handler(request, context), change, context))


@guards(OffsetCommitRequest)
def offset_commit(
    request: OffsetCommitRequest, context: RequestContext, handler: PlainHandler
) -> Steps[Answer]:
    """READ on the group, and on each topic."""
    if not _may(Operation.READ, context)(request.group_id):
        answer = OffsetCommitResponse()
        yield from add_refused(request.topics, _GROUP, "topics")(answer)
        return answer
    request.topics, others = split(request.topics, may(Operation.READ, context))
    return (yield from then(handler(request, context), add_refused(others, _TOPIC, "topics"), context))


@guards(OffsetDeleteRequest)
def offset_delete(
    request: OffsetDeleteRequest, context: RequestContext, handler: PlainHandler
) -> Steps[Answer]:
    """DELETE on the group, READ on each topic."""
    if not _may(Operation.DELETE, context)(request.group_id):
        return OffsetDeleteResponse(error_code=_GROUP)
    request.topics, others = split(request.topics, may(Operation.READ, context))
    return (yield from then(handler(request, context), add_refused(others, _TOPIC, "topics"), context))


@guards(OffsetFetchRequest)
def offset_fetch(
    request: OffsetFetchRequest, context: RequestContext, handler: PlainHandler
) -> Steps[Answer]:
    """DESCRIBE on each group, and on each topic; of all topics, those that are allowed."""
    if context.version < _FIRST_GROUPS_VERSION:
        return (yield from _offsets_of_one(request, context, handler))
    groups, refused_groups = split(
        request.groups, lambda group: _may(Operation.DESCRIBE, context)(group.group_id)
    )
    request.groups = groups
    may_describe = may(Operation.DESCRIBE, context)
    others: dict[str, list[Any]] = {}
    for group in groups:
        if group.topics is not None:
            group.topics, others[group.group_id] = split(group.topics, may_describe)

    def change(answer: OffsetFetchResponse) -> Steps[None]:
        for group in answer.groups:
            group.topics, _ = yield from parted(group.topics, may_describe)
            of = element_of(type(group), "topics")
            left_out: list[Any] = others.get(group.group_id, [])
            if not group.error_code:
                group.topics += yield from refused(of, left_out, _TOPIC)
            yield 1
        answer.groups += yield from in_steps(
            refused_groups,
            lambda group: OffsetFetchResponseGroup(group_id=group.group_id, error_code=_GROUP),
        )

    return (yield from then(handler(request, context), change, context))


def _offsets_of_one(
    request: OffsetFetchRequest, context: RequestContext, handler: PlainHandler
) -> Steps[Answer]:
    if not _may(Operation.DESCRIBE, context)(request.group_id):
        answer = OffsetFetchResponse(error_code=_GROUP)
        if context.version < _FIRST_ERROR_VERSION:
            yield from add_refused(request.topics or (), _GROUP, "topics")(answer)
        return answer
    may_describe = may(Operation.DESCRIBE, context)
    others: list[Any] = []
    if request.topics is not None:
        request.topics, others = split(request.topics, may_describe)

    def change(answer: OffsetFetchResponse) -> Steps[None]:
        answer.topics, _ = yield from parted(answer.topics, may_describe)
        if not answer.error_code:
            yield from add_refused(others, _TOPIC, "topics")(answer)

    return (yield from then(handler(request, context), change, context))
