"""AlterConfigs (key 33), versions 0 to 2: replaces all settings of resources."""

from __future__ import annotations

from splashdam.wire.fields import array, boolean, int8, int16, int32, string
from splashdam.wire.message import Request, Response, Struct


class AlterableConfig(Struct):
    """One setting."""

    name: str = string()
    value: str | None = string(nullable="0+")


class AlterConfigsResource(Struct):
    """One resource and all it shall have."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class AlterConfigsRequest(Request["AlterConfigsResponse"], key=33, versions="0-2", flexible="2+"):
    """What is not named goes back to its default."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Struct):
    """Whether the settings hold now."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()


class AlterConfigsResponse(Response, key=33, versions="0-2", flexible="2+", throttles="1+"):
    """One answer per resource."""

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
