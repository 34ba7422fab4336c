"""DescribeAcls 1–3: the ACLs that match a filter, by resource; 54 where the broker has no authorizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splashdam.embedded_broker.execution.turns import PARTITIONS_IN_A_UNIT, Steps, parted
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.model.acls import Operation, ResourceType
from splashdam.model.broker_errors import ErrorCode
from splashdam.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

if TYPE_CHECKING:
    from splashdam.embedded_broker.security.acls import Acl


@handles(DescribeAclsRequest, versions=range(1, 4))
def describe_acls(request: DescribeAclsRequest, context: RequestContext) -> Steps[DescribeAclsResponse]:
    """Answer with the matching ACLs, grouped by resource."""
    if not context.authorize(Operation.DESCRIBE, ResourceType.CLUSTER):
        return DescribeAclsResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message="Cluster authorization failed."
        )
    if context.broker.authorizer is None:
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
        )
    from splashdam.embedded_broker.security.acls import filter_of

    wanted = filter_of(request)
    if wanted.is_unknown:
        return DescribeAclsResponse(
            error_code=ErrorCode.INVALID_REQUEST, error_message="the filter names something unknown"
        )
    found, _ = yield from parted(context.broker.access.acls.all, wanted.matches)
    by_resource: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for number, acl in enumerate(found, 1):
        if number % PARTITIONS_IN_A_UNIT == 0:
            yield 1
        resource = (acl.resource_type, acl.resource_name, acl.pattern_type)
        described = by_resource.get(resource)
        if described is None:
            kind, name, pattern = resource
            described = by_resource[resource] = DescribeAclsResource(
                resource_type=kind, resource_name=name, pattern_type=pattern
            )
        described.acls.append(_described(acl))
    return DescribeAclsResponse(resources=list(by_resource.values()))


def _described(acl: Acl) -> AclDescription:
    return AclDescription(
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
