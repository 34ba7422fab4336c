"""ApiVersions (key 18), versions 0 to 5: the APIs and versions that a broker supports.

A broker that does not know the requested version answers in version 0 with error 35. The response header has
version 0 in all versions, flexible ones included (see `wire.header`).
"""

from __future__ import annotations

from splashdam.wire.fields import array, boolean, int16, int32, int64, string
from splashdam.wire.message import Request, Response, Struct


class ApiVersionsRequest(Request["ApiVersionsResponse"], key=18, versions="0-5", flexible="3+"):
    """Names the client's software, in letters, digits, ``-`` and ``.`` (KIP-511).

    From version 5 on it also names the cluster and the broker that the client expects to reach (KIP-1242).
    """

    client_software_name: str = string("3+", ignorable=True)
    client_software_version: str = string("3+", ignorable=True)
    cluster_id: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    node_id: int = int32("5+", default=-1, ignorable=True)


class ApiVersion(Struct):
    """The first and last supported version of one API."""

    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


class SupportedFeatureKey(Struct):
    """A supported feature. Below version 4, one with minimum 0 must be left out (KAFKA-17011)."""

    name: str = string("3+")
    min_version: int = int16("3+")
    max_version: int = int16("3+")


class FinalizedFeatureKey(Struct):
    """A feature that the cluster uses, with its level."""

    name: str = string("3+")
    max_version_level: int = int16("3+")
    min_version_level: int = int16("3+")


class ApiVersionsResponse(Response, key=18, versions="0-5", flexible="3+", throttles="2+"):
    """``finalized_features`` are valid only if ``finalized_features_epoch`` is not -1."""

    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32("1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", tag=0, ignorable=True)
    finalized_features_epoch: int = int64("3+", tag=1, default=-1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tag=2, ignorable=True)
    zk_migration_ready: bool = boolean("3+", tag=3, ignorable=True)
