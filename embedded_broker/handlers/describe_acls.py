"""DescribeAcls 1–3: the ACLs that match a filter, by resource; 54 where the broker has no authorizer."""

from __future__ import annotations

from itertools import groupby

from splashdam.embedded_broker.permissions import Operation, ResourceType
from splashdam.embedded_broker.registry import RequestContext, handles
from splashdam.model.error_codes import ErrorCode
from splashdam.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


@handles(DescribeAclsRequest, versions=range(1, 4))
def describe_acls(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    """Every ACL of a resource stands with it."""
    if not context.authorize(Operation.DESCRIBE, ResourceType.CLUSTER):
        return DescribeAclsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if context.broker.authorizer is None:
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
        )
    from splashdam.embedded_broker.security.acl_messages import filter_of

    wanted = filter_of(request)
    if wanted.is_unknown:
        return DescribeAclsResponse(
            error_code=ErrorCode.INVALID_REQUEST, error_message="the filter names something unknown"
        )
    by_resource = groupby(
        context.broker.access.acls.matching(wanted),
        key=lambda acl: (acl.resource_type, acl.resource_name, acl.pattern_type),
    )
    return DescribeAclsResponse(
        resources=[
            DescribeAclsResource(
                resource_type=kind,
                resource_name=name,
                pattern_type=pattern,
                acls=[
                    AclDescription(
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission,
                    )
                    for acl in acls
                ],
            )
            for (kind, name, pattern), acls in by_resource
        ]
    )
