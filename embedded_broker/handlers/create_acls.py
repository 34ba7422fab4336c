"""CreateAcls 1–3: add ACLs, with a code for each; 54 where the broker has no authorizer."""

from __future__ import annotations

from splashdam.embedded_broker.execution.turns import CHANGE_UNITS, PARTITIONS_IN_A_UNIT, Steps
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.model.acls import Operation, ResourceType
from splashdam.model.broker_errors import (
    BrokerResponseError,
    ClusterAuthorizationFailedError,
    ErrorCode,
    error_for,
)
from splashdam.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


@handles(CreateAclsRequest, versions=range(1, 4))
def create_acls(request: CreateAclsRequest, context: RequestContext) -> Steps[CreateAclsResponse]:
    """Add the legal ACLs before the answer; none are added if the disk fails."""
    try:
        _check_may_alter(context)
    except BrokerResponseError as error:
        return CreateAclsResponse(results=[_refused(error)] * len(request.creations))
    from splashdam.embedded_broker.security.acls import acl_of, check_acl

    results: list[AclCreationResult] = []
    made = []
    for number, asked in enumerate(request.creations, 1):
        if number % PARTITIONS_IN_A_UNIT == 0:
            yield 1
        try:
            acl = acl_of(asked)
            check_acl(acl)
            made.append(acl)
            results.append(AclCreationResult())
        except BrokerResponseError as error:
            results.append(_refused(error))
    try:
        yield from context.broker.access.acls.add(made)
        yield CHANGE_UNITS
    except BrokerResponseError as error:
        results = [_refused(error) if not each.error_code else each for each in results]
    return CreateAclsResponse(results=results)


def _check_may_alter(context: RequestContext) -> None:
    if not context.authorize(Operation.ALTER, ResourceType.CLUSTER):
        raise ClusterAuthorizationFailedError
    if context.broker.authorizer is None:
        raise error_for(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


def _refused(error: BrokerResponseError) -> AclCreationResult:
    return AclCreationResult(error_code=error.code, error_message=error.message)
