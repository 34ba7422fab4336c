"""AlterClientQuotas 0–1: sets and removes quotas; each entity is changed as a whole or not at all."""

from __future__ import annotations

from splashdam.embedded_broker.permissions import Operation, ResourceType
from splashdam.embedded_broker.registry import RequestContext, handles
from splashdam.embedded_broker.turns import CHANGE_UNITS, Steps
from splashdam.model.broker_errors import ClusterAuthorizationFailedError, InvalidRequestError
from splashdam.model.errors import BrokerResponseError
from splashdam.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryData,
    ResponseEntryData,
)


@handles(AlterClientQuotasRequest, versions=range(2))
def alter_client_quotas(
    request: AlterClientQuotasRequest, context: RequestContext
) -> Steps[AlterClientQuotasResponse]:
    """One answer for each entity, in order."""
    answer = AlterClientQuotasResponse()
    for asked in request.entries:
        altered = _altered(asked, request.validate_only, context)
        answer.entries.append(altered)
        yield 1 if altered.error_code or request.validate_only else CHANGE_UNITS
    return answer


def _altered(asked: EntryData, validate_only: bool, context: RequestContext) -> ResponseEntryData:
    answer = ResponseEntryData(error_message=None, entity=asked.entity)
    try:
        if not context.authorize(Operation.ALTER_CONFIGS, ResourceType.CLUSTER):
            raise ClusterAuthorizationFailedError
        _alter(asked, validate_only, context)
    except BrokerResponseError as error:
        answer.error_code, answer.error_message = error.code, error.message
    return answer


def _alter(asked: EntryData, validate_only: bool, context: RequestContext) -> None:
    from splashdam.embedded_broker.quotas.entities import check_entity, check_quota

    of = check_entity((each.entity_type, each.entity_name) for each in asked.entity)
    changes: dict[str, float | None] = {}
    for change in asked.ops:
        if change.key in changes:
            raise InvalidRequestError(f"Duplicate quota key {change.key}")
        if not change.remove:
            check_quota(of, change.key, change.value)
        changes[change.key] = None if change.remove else change.value
    if not validate_only:
        context.broker.access.quotas.alter(of, changes)
