"""IncrementalAlterConfigs (key 44), versions 0 to 1: changes single configurations of resources."""

from __future__ import annotations

from splashdam.wire.fields import array, boolean, int8, int16, int32, string
from splashdam.wire.message import Request, Response, Struct


class AlterableConfig(Struct):
    """``config_operation``: 0 set, 1 delete, 2 append, 3 subtract."""

    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable="0+")


class AlterConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class IncrementalAlterConfigsRequest(
    Request["IncrementalAlterConfigsResponse"], key=44, versions="0-1", flexible="1+"
):
    """Configurations that are not listed stay as they are."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Struct):
    """Error code 0: the changes are in effect."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()


class IncrementalAlterConfigsResponse(Response, key=44, versions="0-1", flexible="1+", throttles="0+"):
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
