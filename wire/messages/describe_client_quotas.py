"""DescribeClientQuotas (key 48), versions 0 to 1: the quotas of the clients that match a filter."""

from __future__ import annotations

from splashdam.wire.fields import array, boolean, float64, int8, int16, int32, string
from splashdam.wire.message import Request, Response, Struct


class ComponentData(Struct):
    """The filter for one part of an entity."""

    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(nullable="0+")


class DescribeClientQuotasRequest(
    Request["DescribeClientQuotasResponse"], key=48, versions="0-1", flexible="1+"
):
    """With ``strict`` entities with further parts do not match."""

    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()


class EntityData(Struct):
    """One part of an entity, for example a user; a null name is the default entity of its type."""

    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


class ValueData(Struct):
    key: str = string()
    value: float = float64()


class EntryData(Struct):
    entity: list[EntityData] = array(EntityData)
    values: list[ValueData] = array(ValueData)


class DescribeClientQuotasResponse(Response, key=48, versions="0-1", flexible="1+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entries: list[EntryData] | None = array(EntryData, nullable="0+")
