"""ApiVersions 0–5: which API keys the broker serves, computed from the registered handlers.

An unknown version is answered in version 0 with error 35 and the same list, so that the client can try again.
Features are announced: at level 2 of ``transaction.version`` clients use transactions of KIP-890, at level 1
of ``group.version`` there are groups of KIP-848. A client of version 5 names the cluster and node that it
means to reach; any other broker tells it to bootstrap again (KIP-1242).
"""

from __future__ import annotations

import re
from collections.abc import Container

from splashdam.embedded_broker.serving.registry import RequestContext, handles, registered_apis
from splashdam.model.broker_errors import ErrorCode
from splashdam.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_TELEMETRY = frozenset({71, 72})
"""Advertised only while there is a subscription to client metrics (KIP-714)."""

_FIRST_ZERO_MINIMUM_VERSION = 4
_NO_NODE = -1
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def _unsupported_version() -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_ranges(without=_TELEMETRY))


@handles(ApiVersionsRequest, versions=range(6), unknown_version=_unsupported_version)
def api_versions(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    """Answer with every registered key and its versions; 42 for an illegal client software name."""
    context.client.client_id = context.client_id or ""
    if context.version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    context.client.software = f"{request.client_software_name} {request.client_software_version}".strip()
    if (request.cluster_id is None) != (request.node_id == _NO_NODE):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    here = (context.broker.cluster_id, context.broker.node_id)
    if request.cluster_id is not None and (request.cluster_id, request.node_id) != here:
        return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    if context.session is not None:
        context.session.inform()
    offered = _ranges(without=frozenset() if context.broker.telemetry.offered else _TELEMETRY)
    return _with_features(ApiVersionsResponse(api_keys=offered), context)


def _with_features(answer: ApiVersionsResponse, context: RequestContext) -> ApiVersionsResponse:
    """Add supported and finalized features; clients below version 4 cannot read a lowest level of 0."""
    if context.version >= _FIRST_ZERO_MINIMUM_VERSION:
        answer.supported_features = [
            SupportedFeatureKey(name=name, min_version=0, max_version=highest)
            for name, highest in (("group.version", 1), ("transaction.version", 2))
        ]
    answer.finalized_features_epoch = 1
    settings = context.broker.settings
    answer.finalized_features = [
        FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
        for name, level in (
            ("group.version", settings.groups.group_version),
            ("transaction.version", settings.transactions.transaction_version),
        )
        if level
    ]
    return answer


def _ranges(without: Container[int]) -> list[ApiVersion]:
    return [
        ApiVersion(api_key=key, min_version=api.advertised_from, max_version=api.versions[-1])
        for key, api in sorted(registered_apis().items())
        if key not in without
    ]
