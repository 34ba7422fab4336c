"""DescribeClientQuotas 0–1: the quotas of the entities that match a filter.

Each component asks for a name, for the default, or for any of a type; ``strict`` leaves out entities with
further types.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.model.acls import Operation, ResourceType
from splashdam.model.broker_errors import (
    BrokerResponseError,
    ClusterAuthorizationFailedError,
    InvalidRequestError,
    UnsupportedVersionError,
)
from splashdam.model.log_text import quoted
from splashdam.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

if TYPE_CHECKING:
    from splashdam.embedded_broker.quotas.entities import Entity

_EXACT, _DEFAULT, _ANY = 0, 1, 2


@handles(DescribeClientQuotasRequest, versions=range(2))
def describe_client_quotas(
    request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    """Answer with every entity that has a quota and matches the filter."""
    try:
        if not context.authorize(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER):
            raise ClusterAuthorizationFailedError
        _check_filter(request.components)
    except BrokerResponseError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    return DescribeClientQuotasResponse(
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in of],
                values=[ValueData(key=key, value=value) for key, value in values.items()],
            )
            for of, values in context.broker.access.quotas.quotas.items()
            if _matches(of, request)
        ],
    )


def _check_filter(components: Collection[ComponentData]) -> None:
    from splashdam.embedded_broker.quotas.entities import CLIENT_ID, IP, USER

    kinds = [each.entity_type for each in components]
    for each in components:
        if not each.entity_type:
            raise InvalidRequestError("Invalid empty entity type.")
        if kinds.count(each.entity_type) > 1:
            raise InvalidRequestError(
                f"Entity type {each.entity_type} cannot appear more than once in the filter."
            )
        if each.entity_type not in (USER, CLIENT_ID, IP):
            raise UnsupportedVersionError(f"Unsupported entity type {each.entity_type}")
        if each.match_type not in (_EXACT, _DEFAULT, _ANY):
            raise InvalidRequestError(f"Unknown match type {each.match_type}")
        if (each.match is None) is (each.match_type == _EXACT):
            raise InvalidRequestError(
                f"match type {each.match_type} and {quoted(each.match)} do not go together"
            )
    if IP in kinds and len(kinds) > 1:
        raise InvalidRequestError(
            "Invalid entity filter component combination. IP filter component should not be used with user"
            " or clientId filter component."
        )


def _matches(of: Entity, request: DescribeClientQuotasRequest) -> bool:
    names = dict(of)
    if request.strict and len(names) != len(request.components):
        return False
    return all(
        each.entity_type in names and (each.match_type == _ANY or names[each.entity_type] == each.match)
        for each in request.components
    )
