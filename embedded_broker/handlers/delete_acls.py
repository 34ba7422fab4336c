"""DeleteAcls 1–3: delete the ACLs that match filters, and return them; 54 where there is no authorizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splashdam.embedded_broker.execution.turns import CHANGE_UNITS, Steps, in_steps, parted
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.model.acls import Operation, ResourceType
from splashdam.model.broker_errors import BrokerResponseError, ErrorCode
from splashdam.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

if TYPE_CHECKING:
    from splashdam.embedded_broker.security.acls import Acl


@handles(DeleteAclsRequest, versions=range(1, 4))
def delete_acls(request: DeleteAclsRequest, context: RequestContext) -> Steps[DeleteAclsResponse]:
    """Answer with a result for each filter; all filters see the ACLs before the request."""
    if not context.authorize(Operation.ALTER, ResourceType.CLUSTER):
        return (
            yield from _all_refused(
                request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."
            )
        )
    if context.broker.authorizer is None:
        return (yield from _all_refused(request, ErrorCode.SECURITY_DISABLED, "No Authorizer is configured."))
    from splashdam.embedded_broker.security.acls import filter_of

    answer, deleted = DeleteAclsResponse(), []
    acls = context.broker.access.acls.all
    for asked in request.filters:
        yield 1
        wanted = filter_of(asked)
        if wanted.is_unknown:
            answer.filter_results.append(
                _refused(ErrorCode.INVALID_REQUEST, "the filter names something unknown")
            )
            continue
        found, _ = yield from parted(acls, wanted.matches)
        deleted += found
        matching = yield from in_steps(found, _matching)
        answer.filter_results.append(DeleteAclsFilterResult(error_message=None, matching_acls=matching))
    try:
        context.broker.access.acls.delete(deleted)
        yield CHANGE_UNITS
    except BrokerResponseError as error:
        return (yield from _all_refused(request, error.code, error.message))
    return answer


def _matching(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _all_refused(request: DeleteAclsRequest, code: int, message: str | None) -> Steps[DeleteAclsResponse]:
    results = yield from in_steps(request.filters, lambda _: _refused(code, message))
    return DeleteAclsResponse(filter_results=results)


def _refused(code: int, message: str | None) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code=code, error_message=message, matching_acls=[])
