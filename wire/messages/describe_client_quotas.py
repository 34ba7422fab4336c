"""DescribeClientQuotas (key 48), versions 0 to 1: which quotas hold for clients."""

from __future__ import annotations

from splashdam.wire.fields import array, boolean, float64, int8, int16, int32, string
from splashdam.wire.message import Request, Response, Struct


class ComponentData(Struct):
    """What one part of an entity has to be."""

    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(nullable="0+")


class DescribeClientQuotasRequest(
    Request["DescribeClientQuotasResponse"], key=48, versions="0-1", flexible="1+"
):
    """A filter over entities."""

    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()


class EntityData(Struct):
    """A part of an entity."""

    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


class ValueData(Struct):
    """One quota."""

    key: str = string()
    value: float = float64()


class EntryData(Struct):
    """One entity and its quotas."""

    entity: list[EntityData] = array(EntityData)
    values: list[ValueData] = array(ValueData)


class DescribeClientQuotasResponse(Response, key=48, versions="0-1", flexible="1+"):
    """The quotas of each entity that matches."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entries: list[EntryData] | None = array(EntryData, nullable="0+")
