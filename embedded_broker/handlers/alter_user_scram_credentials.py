"""AlterUserScramCredentials 0: set and delete SCRAM credentials. Clients hash the passwords.

A change counts at once. As in Kafka a request may name each user only once, and makes all changes of a user
or none; an error for one user does not affect the others.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

from splashdam.embedded_broker.execution.turns import Steps
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.model.acls import Operation, ResourceType
from splashdam.model.broker_errors import (
    BrokerResponseError,
    ClusterAuthorizationFailedError,
    ErrorCode,
    error_for,
)
from splashdam.model.errors import IllegalArgumentError
from splashdam.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

if TYPE_CHECKING:
    from splashdam.net.sasl.mechanisms import ScramCredential

_Changes: TypeAlias = "dict[str, dict[str, ScramCredential | None]]"


@handles(AlterUserScramCredentialsRequest, versions=range(1))
def alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, context: RequestContext
) -> Steps[AlterUserScramCredentialsResponse]:
    """Answer with a result for each user."""
    asked: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [
        *request.deletions,
        *request.upsertions,
    ]
    times = Counter(each.name for each in asked)
    results: list[AlterUserScramCredentialsResult] = []
    changes: _Changes = {}
    for name, change in {each.name: each for each in asked}.items():
        yield 1
        result = AlterUserScramCredentialsResult(user=name, error_message=None)
        try:
            if not context.authorize(Operation.ALTER, ResourceType.CLUSTER):
                raise ClusterAuthorizationFailedError
            if times[name] > 1:
                raise error_for(
                    ErrorCode.DUPLICATE_RESOURCE,
                    "A user credential cannot be altered twice in the same request",
                )
            changes[name] = _change(change, context)
        except BrokerResponseError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    if changes:
        _make(changes, [each for each in results if each.user in changes], context)
    return AlterUserScramCredentialsResponse(results=results)


def _make(changes: _Changes, results: list[AlterUserScramCredentialsResult], context: RequestContext) -> None:
    """Make all changes at once: each write covers the whole file of users."""
    try:
        context.broker.access.users.change(changes)
    except BrokerResponseError as error:
        for result in results:
            result.error_code, result.error_message = error.code, error.message


def _change(
    asked: ScramCredentialDeletion | ScramCredentialUpsertion, context: RequestContext
) -> dict[str, ScramCredential | None]:
    from splashdam.embedded_broker.security.users import MECHANISMS

    users = context.broker.access.users
    if not asked.name:
        raise _unacceptable("Username must not be empty")
    mechanism = MECHANISMS.get(asked.mechanism)
    if mechanism is None:
        raise error_for(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    credential = None
    if isinstance(asked, ScramCredentialUpsertion):
        credential = _credential(asked, mechanism)
    elif mechanism not in users.credentials_of(asked.name):
        raise error_for(
            ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
        )
    try:
        users.check_name(asked.name)
    except IllegalArgumentError as error:
        raise _unacceptable(str(error)) from None
    return {mechanism: credential}


def _credential(asked: ScramCredentialUpsertion, mechanism: str) -> ScramCredential:
    from splashdam.embedded_broker.security.users import MOST_ITERATIONS
    from splashdam.net.sasl.scram import MIN_ITERATIONS, credential_of_salted

    if asked.iterations < MIN_ITERATIONS:
        raise _unacceptable("Too few iterations")
    if asked.iterations > MOST_ITERATIONS:
        raise _unacceptable("Too many iterations")
    if not asked.salt or not asked.salted_password:
        raise _unacceptable("salt and salted password must not be empty")
    return credential_of_salted(mechanism, bytes(asked.salted_password), bytes(asked.salt), asked.iterations)


def _unacceptable(message: str) -> BrokerResponseError:
    return error_for(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
