"""ApiVersions (key 18), versions 0 to 5: what a broker speaks.

A broker that does not know the version asked for answers in version 0 with error 35. The response header is
version 0 in all versions, flexible ones included (see `wire.header`).
"""

from __future__ import annotations

from splashdam.wire.fields import array, boolean, int16, int32, int64, string
from splashdam.wire.message import Request, Response, Struct


class ApiVersionsRequest(Request["ApiVersionsResponse"], key=18, versions="0-5", flexible="3+"):
    """Names the client's software; letters, digits, ``-`` and ``.`` only.

    From version 5 on also the cluster and the node that the client means to reach (KIP-1242).
    """

    client_software_name: str = string("3+", ignorable=True)
    client_software_version: str = string("3+", ignorable=True)
    cluster_id: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    node_id: int = int32("5+", default=-1, ignorable=True)


class ApiVersion(Struct):
    """The inclusive range of versions of one API."""

    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


class SupportedFeatureKey(Struct):
    """A feature the broker could use. Below version 4, one with minimum 0 must be left out (KAFKA-17011)."""

    name: str = string("3+")
    min_version: int = int16("3+")
    max_version: int = int16("3+")


class FinalizedFeatureKey(Struct):
    """A feature the cluster uses."""

    name: str = string("3+")
    max_version_level: int = int16("3+")
    min_version_level: int = int16("3+")


class ApiVersionsResponse(Response, key=18, versions="0-5", flexible="3+", throttles="2+"):
    """``finalized_features`` count only where the epoch is not -1."""

    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32("1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", tag=0, ignorable=True)
    finalized_features_epoch: int = int64("3+", tag=1, default=-1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tag=2, ignorable=True)
    zk_migration_ready: bool = boolean("3+", tag=3, ignorable=True)
