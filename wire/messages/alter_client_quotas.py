"""AlterClientQuotas (key 49), versions 0 to 1: sets and removes quotas of clients."""

from __future__ import annotations

from splashdam.wire.fields import array, boolean, float64, int16, int32, string
from splashdam.wire.message import Request, Response, Struct


class EntityData(Struct):
    """One part of an entity, for example a user; a null name is the default entity of its type."""

    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


class OpData(Struct):
    """Sets one quota, or removes it with ``remove``."""

    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class EntryData(Struct):
    entity: list[EntityData] = array(EntityData)
    ops: list[OpData] = array(OpData)


class AlterClientQuotasRequest(Request["AlterClientQuotasResponse"], key=49, versions="0-1", flexible="1+"):
    """Changes of quotas by entity; with ``validate_only`` nothing is changed."""

    entries: list[EntryData] = array(EntryData)
    validate_only: bool = boolean()


class ResponseEntryData(Struct):
    """The result for one entity. Kafka calls it ``EntryData``, like the request's structure."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entity: list[EntityData] = array(EntityData)


class AlterClientQuotasResponse(Response, key=49, versions="0-1", flexible="1+"):
    throttle_time_ms: int = int32()
    entries: list[ResponseEntryData] = array(ResponseEntryData)
