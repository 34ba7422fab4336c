"""AlterClientQuotas (key 49), versions 0 to 1: sets and removes quotas of clients."""

from __future__ import annotations

from splashdam.wire.fields import array, boolean, float64, int16, int32, string
from splashdam.wire.message import Request, Response, Struct


class EntityData(Struct):
    """A part of an entity."""

    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


class OpData(Struct):
    """One quota to set or, with ``remove``, to remove."""

    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class EntryData(Struct):
    """One entity and its changes."""

    entity: list[EntityData] = array(EntityData)
    ops: list[OpData] = array(OpData)


class AlterClientQuotasRequest(Request["AlterClientQuotasResponse"], key=49, versions="0-1", flexible="1+"):
    """Quotas to set or remove, by entity."""

    entries: list[EntryData] = array(EntryData)
    validate_only: bool = boolean()


class ResponseEntryData(Struct):
    """What came of one entity's changes; Kafka calls it ``EntryData``, as the request's."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entity: list[EntityData] = array(EntityData)


class AlterClientQuotasResponse(Response, key=49, versions="0-1", flexible="1+"):
    """One answer per entity."""

    throttle_time_ms: int = int32()
    entries: list[ResponseEntryData] = array(ResponseEntryData)
