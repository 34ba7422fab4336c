"""AlterClientQuotas 0–1: set and remove quotas; all changes of an entity are made, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splashdam.embedded_broker.execution.turns import CHANGE_UNITS, Steps, in_steps
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.model.acls import Operation, ResourceType
from splashdam.model.broker_errors import (
    BrokerResponseError,
    ClusterAuthorizationFailedError,
    InvalidRequestError,
)
from splashdam.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryData,
    ResponseEntryData,
)

if TYPE_CHECKING:
    from splashdam.embedded_broker.quotas.entities import Entity


@handles(AlterClientQuotasRequest, versions=range(2))
def alter_client_quotas(
    request: AlterClientQuotasRequest, context: RequestContext
) -> Steps[AlterClientQuotasResponse]:
    """Answer for each entity, in order; all legal changes are written together."""
    may_alter = context.authorize(Operation.ALTER_CONFIGS, ResourceType.CLUSTER)
    changes: dict[Entity, dict[str, float | None]] = {}

    def check(asked: EntryData) -> ResponseEntryData:
        answer = ResponseEntryData(error_message=None, entity=asked.entity)
        try:
            if not may_alter:
                raise ClusterAuthorizationFailedError
            of, wanted = _checked(asked)
            changes.setdefault(of, {}).update(wanted)
        except BrokerResponseError as error:
            _refuse(answer, error)
        return answer

    entries = yield from in_steps(request.entries, check, in_a_unit=2)
    if changes and not request.validate_only:
        try:
            yield from context.broker.access.quotas.alter(changes)
            yield CHANGE_UNITS
        except BrokerResponseError as error:
            for answer in entries:
                if not answer.error_code:
                    _refuse(answer, error)
    return AlterClientQuotasResponse(entries=entries)


def _checked(asked: EntryData) -> tuple[Entity, dict[str, float | None]]:
    from splashdam.embedded_broker.quotas.entities import check_entity, check_quota

    of = check_entity((each.entity_type, each.entity_name) for each in asked.entity)
    changes: dict[str, float | None] = {}
    for change in asked.ops:
        if change.key in changes:
            raise InvalidRequestError(f"Duplicate quota key {change.key}")
        if not change.remove:
            check_quota(of, change.key, change.value)
        changes[change.key] = None if change.remove else change.value
    return of, changes


def _refuse(answer: ResponseEntryData, error: BrokerResponseError) -> None:
    answer.error_code, answer.error_message = error.code, error.message
