"""ListConfigResources (key 74), versions 0 to 1: the resources with configurations of their own."""

from __future__ import annotations

from splashdam.wire.fields import array, int8, int16, int32, string
from splashdam.wire.message import Request, Response, Struct


class ListConfigResourcesRequest(
    Request["ListConfigResourcesResponse"], key=74, versions="0-1", flexible="0+"
):
    """An empty list means all resource types of the version."""

    resource_types: list[int] = array("int8", "1+")


class ConfigResource(Struct):
    resource_name: str = string()
    resource_type: int = int8("1+", default=16, ignorable=True)


class ListConfigResourcesResponse(Response, key=74, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)
