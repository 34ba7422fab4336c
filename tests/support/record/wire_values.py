"""Hypothesis strategies for every declared message in every version, derived from the declarations."""

from __future__ import annotations

import functools
from typing import Any

from hypothesis import strategies as st

from splashdam.wire.fields import ArrayType, Field, FixedType, StructType, WireType
from splashdam.wire.message import Message, Struct
from splashdam.wire.registry import API_KEYS

MESSAGES = [cls for api in API_KEYS.values() for cls in (api.request, api.response)]
"""Every declared message."""

CASES = [(cls, version) for cls in MESSAGES for version in cls.VERSIONS]
"""Every version of every message."""

NAMES = [cls.NAME for cls in MESSAGES]

_FIXED = {
    "bool": st.booleans(),
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "float64": st.floats(allow_nan=False),
    "uuid": st.binary(min_size=16, max_size=16),
}
_SIZED = {
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    "bytes": st.binary(max_size=50),
    "records": st.binary(max_size=200),
}


RENAMED = {
    "ResponseEntryData": "EntryData",
    "AskedTopic": "TopicData",
    "AskedPartition": "PartitionData",
}
"""Structures that Kafka calls alike in request and response although they differ; here each has its name."""


def kafkas_name(cls: type[Struct]) -> str:
    """What Kafka's schema calls a structure."""
    return RENAMED.get(cls.__name__, cls.__name__)


@functools.cache
def structs(cls: type[Struct], version: int) -> st.SearchStrategy[Any]:
    """Instances whose fields have any value the version can carry, and defaults where it carries none."""
    carried = {field.name: _values(field, version) for field in cls.FIELDS if version in field.versions}
    return st.builds(cls, **carried)


def _values(field: Field, version: int) -> st.SearchStrategy[Any]:
    values = _of_type(field.type, version)
    return st.none() | values if version in field.nullable else values


def _of_type(kind: WireType, version: int) -> st.SearchStrategy[Any]:
    if isinstance(kind, FixedType):
        return _FIXED[kind.name]
    if isinstance(kind, StructType):
        return structs(kind.cls, version)
    if isinstance(kind, ArrayType):
        return st.lists(_of_type(kind.element, version), max_size=3)
    return _SIZED[kind.name]


def full_example(cls: type[Message] | type[Struct], version: int) -> Any:
    """An instance with no field at its default, and two elements in every array."""
    values = {field.name: _example(field.type, version) for field in cls.FIELDS if version in field.versions}
    return cls(**values)


def _example(kind: WireType, version: int) -> Any:
    if isinstance(kind, StructType):
        return full_example(kind.cls, version)
    if isinstance(kind, ArrayType):
        return [_example(kind.element, version) for _ in range(2)]
    simple = {"bool": True, "float64": 1.5, "uuid": bytes(range(16)), "string": "zwölf"}
    return simple.get(kind.name, b"some bytes" if kind.name in ("bytes", "records") else 77)
