"""DescribeUserScramCredentials 0: the SCRAM mechanisms of users, and their iterations."""

from __future__ import annotations

from collections import Counter

from splashdam.embedded_broker.execution.turns import Steps, in_steps
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.model.acls import Operation, ResourceType
from splashdam.model.broker_errors import ErrorCode
from splashdam.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


@handles(DescribeUserScramCredentialsRequest, versions=range(1))
def describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> Steps[DescribeUserScramCredentialsResponse]:
    """Answer for the users asked for, or all; 91 for an unknown user, 92 for one that is named twice."""
    if not context.authorize(Operation.DESCRIBE, ResourceType.CLUSTER):
        return (yield from _refused(request))
    users = context.broker.access.users
    asked = Counter(each.name for each in request.users or ()) or Counter(users.names())
    results = yield from in_steps(asked.items(), lambda each: _described(*each, context))
    return DescribeUserScramCredentialsResponse(results=results)


def _refused(request: DescribeUserScramCredentialsRequest) -> Steps[DescribeUserScramCredentialsResponse]:
    """Refuse every user asked for; as in Kafka the results carry no names."""
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    def refuse(_: object) -> DescribeUserScramCredentialsResult:
        return DescribeUserScramCredentialsResult(error_code=code, error_message=None)

    results = yield from in_steps(request.users or (), refuse)
    return DescribeUserScramCredentialsResponse(error_code=code, error_message=None, results=results)


def _described(name: str, count: int, context: RequestContext) -> DescribeUserScramCredentialsResult:
    from splashdam.embedded_broker.security.users import CODES

    if count > 1:
        return DescribeUserScramCredentialsResult(
            user=name,
            error_code=ErrorCode.DUPLICATE_RESOURCE,
            error_message=f"Cannot describe SCRAM credentials for the same user twice in one request: {name}",
        )
    credentials = context.broker.access.users.credentials_of(name)
    if not credentials:
        return DescribeUserScramCredentialsResult(
            user=name,
            error_code=ErrorCode.RESOURCE_NOT_FOUND,
            error_message=f"Attempt to describe a user credential that does not exist: {name}",
        )
    return DescribeUserScramCredentialsResult(
        user=name,
        credential_infos=[
            CredentialInfo(mechanism=CODES[mechanism], iterations=credential.iterations)
            for mechanism, credential in sorted(credentials.items())
        ],
    )
