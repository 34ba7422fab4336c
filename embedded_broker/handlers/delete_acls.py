"""DeleteAcls 1–3: deletes what matches filters, and says what that was; 54 where there is no authorizer."""

from __future__ import annotations

from splashdam.embedded_broker.permissions import Operation, ResourceType
from splashdam.embedded_broker.registry import RequestContext, handles
from splashdam.model.error_codes import ErrorCode
from splashdam.model.errors import BrokerResponseError
from splashdam.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


@handles(DeleteAclsRequest, versions=range(1, 4))
def delete_acls(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    """One result for each filter."""
    if not context.authorize(Operation.ALTER, ResourceType.CLUSTER):
        return _all_refused(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
    if context.broker.authorizer is None:
        return _all_refused(request, ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    from splashdam.embedded_broker.security.acl_messages import filter_of

    filters = [filter_of(each) for each in request.filters]
    try:
        found = context.broker.access.acls.delete([each for each in filters if not each.is_unknown])
    except BrokerResponseError as error:
        return _all_refused(request, error.code, error.message)
    deleted = iter(found)
    return DeleteAclsResponse(
        filter_results=[
            _refused(ErrorCode.INVALID_REQUEST, "the filter names something unknown")
            if each.is_unknown
            else DeleteAclsFilterResult(
                error_message=None,
                matching_acls=[
                    DeleteAclsMatchingAcl(
                        error_message=None,
                        resource_type=acl.resource_type,
                        resource_name=acl.resource_name,
                        pattern_type=acl.pattern_type,
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission,
                    )
                    for acl in next(deleted)
                ],
            )
            for each in filters
        ]
    )


def _all_refused(request: DeleteAclsRequest, code: int, message: str | None) -> DeleteAclsResponse:
    return DeleteAclsResponse(filter_results=[_refused(code, message) for _ in request.filters])


def _refused(code: int, message: str | None) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code=code, error_message=message, matching_acls=[])
