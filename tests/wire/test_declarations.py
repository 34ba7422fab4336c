"""Every declaration against Kafka's own schemas, field by field, for the versions declared here."""

from __future__ import annotations

import functools
import json
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.record.wire_values import MESSAGES, kafkas_name
from support.running.oracles import shared

from splashdam.wire.fields import NO_UUID, ArrayType, Field, StructType, Versions, WireType
from splashdam.wire.message import Message, Struct
from splashdam.wire.registry import API_KEYS

EXPECTED_VERSIONS = {
    "Produce": (3, 13),
    "Fetch": (4, 18),
    "ListOffsets": (1, 11),
    "Metadata": (0, 13),
    "OffsetCommit": (2, 10),
    "OffsetFetch": (1, 10),
    "FindCoordinator": (0, 6),
    "JoinGroup": (0, 9),
    "Heartbeat": (0, 4),
    "LeaveGroup": (0, 5),
    "SyncGroup": (0, 5),
    "DescribeGroups": (0, 6),
    "ListGroups": (0, 5),
    "SaslHandshake": (0, 1),
    "ApiVersions": (0, 5),
    "CreateTopics": (2, 7),
    "DeleteTopics": (1, 6),
    "DeleteRecords": (0, 2),
    "InitProducerId": (0, 5),
    "OffsetForLeaderEpoch": (2, 4),
    "AddPartitionsToTxn": (0, 5),
    "AddOffsetsToTxn": (0, 4),
    "EndTxn": (0, 5),
    "WriteTxnMarkers": (1, 2),
    "TxnOffsetCommit": (0, 6),
    "DescribeAcls": (1, 3),
    "CreateAcls": (1, 3),
    "DeleteAcls": (1, 3),
    "DescribeConfigs": (1, 4),
    "AlterConfigs": (0, 2),
    "AlterReplicaLogDirs": (1, 2),
    "DescribeLogDirs": (1, 5),
    "SaslAuthenticate": (0, 2),
    "CreatePartitions": (0, 3),
    "DeleteGroups": (0, 3),
    "ElectLeaders": (0, 2),
    "IncrementalAlterConfigs": (0, 1),
    "AlterPartitionReassignments": (0, 1),
    "ListPartitionReassignments": (0, 0),
    "OffsetDelete": (0, 0),
    "DescribeClientQuotas": (0, 1),
    "AlterClientQuotas": (0, 1),
    "DescribeUserScramCredentials": (0, 0),
    "AlterUserScramCredentials": (0, 0),
    "DescribeQuorum": (0, 2),
    "DescribeCluster": (0, 2),
    "DescribeProducers": (0, 0),
    "DescribeTransactions": (0, 0),
    "ListTransactions": (0, 2),
    "ConsumerGroupHeartbeat": (0, 1),
    "ConsumerGroupDescribe": (0, 1),
    "GetTelemetrySubscriptions": (0, 0),
    "PushTelemetry": (0, 0),
    "ListConfigResources": (0, 1),
    "DescribeTopicPartitions": (0, 0),
}


CLIENTS_JAR = "kafka-clients-4.4.0.jar"
"""Holds the schemas of the newest Kafka that `make kafka` fetches."""


@functools.cache
def schemas_of_the_jar() -> Mapping[str, str]:
    """The schema of each message in Kafka's jar, by file name; empty where the jar is not there."""
    jars = Path(os.environ.get("KAFKA_JARS", Path.home() / ".cache" / "splashdam" / "kafka"))
    jar = jars / "4.4.0" / CLIENTS_JAR
    if not jar.exists():
        return {}
    with zipfile.ZipFile(jar) as archive:
        names = (name for name in archive.namelist() if name.startswith("common/message/"))
        return {Path(name).name: archive.read(name).decode() for name in names if name.endswith(".json")}


def schema_text(name: str) -> str:
    """Kafka's schema of a message: out of its jar, or else from the schemas beside this checkout."""
    file = f"{name}.json"
    return schemas_of_the_jar().get(file) or shared(f"kafka-messages/{file}").read_text()


def schema_of(cls: type[Message]) -> dict[str, Any]:
    """Kafka's schema of a message, without its comments; skips what is older than the declaration."""
    text = re.sub(r"^\s*//.*$", "", schema_text(cls.NAME), flags=re.MULTILINE)
    schema: dict[str, Any] = json.loads(text)
    if cls.VERSIONS[-1] not in Versions.parse(schema["validVersions"]):
        pytest.skip(f"the schemas beside this checkout are older than {cls.NAME} {cls.VERSIONS[-1]}")
    return schema


def snake(name: str) -> str:
    """Kafka's field name as Python writes it."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def clipped(text: str | None, valid: range) -> list[int]:
    """The versions of a schema's range that are declared here."""
    versions = Versions.parse(text or "none")
    return [version for version in valid if version in versions]


def schema_default(field: dict[str, Any], structs: dict[str, Any]) -> object:
    """A field's default as `Field.default` holds it, by the rules of Kafka's message generator."""
    kind, default = field["type"], field.get("default")
    if default == "null" or (kind == "records" and default is None):
        return None
    if kind.startswith("[]"):
        return []
    if kind in structs:
        return "a new instance"
    zero = {"bool": False, "string": "", "bytes": b"", "uuid": NO_UUID}.get(kind, 0)
    if default is None or kind in ("string", "uuid"):
        return default or zero
    return default in (True, "true") if kind == "bool" else int(str(default), 0)


def type_text(kind: WireType) -> str:
    """A declared type as the schema writes it."""
    if isinstance(kind, ArrayType):
        return "[]" + type_text(kind.element)
    return kafkas_name(kind.cls) if isinstance(kind, StructType) else kind.name


def inner_struct(kind: WireType) -> type[Struct] | None:
    """The structure inside a declared type."""
    element = kind.element if isinstance(kind, ArrayType) else kind
    return element.cls if isinstance(element, StructType) else None


def pairs(
    declared: type[Struct], fields: list[dict[str, Any]], valid: range, structs: dict[str, Any], where: str
) -> Iterator[tuple[str, Field, dict[str, Any]]]:
    """Declared and schema fields side by side, all levels; fails where one has no partner."""
    schema_fields = [field for field in fields if clipped(field["versions"], valid)]
    names = [snake(field["name"]) for field in schema_fields]
    assert [field.name for field in declared.FIELDS] == names, where
    for ours, theirs in zip(declared.FIELDS, schema_fields, strict=True):
        yield f"{where}.{ours.name}", ours, theirs
        inner = inner_struct(ours.type)
        if inner is not None:
            below = theirs.get("fields") or structs[theirs["type"].removeprefix("[]")]
            yield from pairs(inner, below, valid, structs, f"{where}.{ours.name}")


def struct_fields(schema: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The fields of every structure that a schema defines, by its name."""
    found = {each["name"]: each["fields"] for each in schema.get("commonStructs", [])}
    waiting = [*schema["fields"], *(field for fields in found.values() for field in fields)]
    while waiting:
        field = waiting.pop()
        if "fields" in field:
            found[field["type"].removeprefix("[]")] = field["fields"]
            waiting += field["fields"]
    return found


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.NAME)
def test_declaration_is_kafkas(cls: type[Message]) -> None:
    """Name, order, type, versions, nullability, tag, default, ignorable: all as in Kafka's schema."""
    schema = schema_of(cls)
    structs = struct_fields(schema)
    assert schema["apiKey"] == cls.API_KEY
    assert list(cls.VERSIONS) == clipped(schema["validVersions"], cls.VERSIONS)
    for where, ours, theirs in pairs(cls, schema["fields"], cls.VERSIONS, structs, cls.NAME):
        assert type_text(ours.type) == theirs["type"], where
        carried = clipped(theirs["versions"], cls.VERSIONS)
        assert clipped(str(ours.versions), cls.VERSIONS) == carried, where
        nullable = clipped(theirs.get("nullableVersions"), cls.VERSIONS)
        assert clipped(str(ours.nullable), cls.VERSIONS) == nullable, where
        assert ours.tag == theirs.get("tag"), where
        assert theirs.get("taggedVersions", theirs["versions"]) == theirs["versions"], where
        assert ours.ignorable == (str(theirs.get("ignorable", False)).lower() == "true"), where
        default = "a new instance" if isinstance(ours.default, type) else ours.default
        assert default == schema_default(theirs, structs), where


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.NAME)
def test_flexible_versions_are_kafkas(cls: type[Message]) -> None:
    """Compact types and tagged fields begin in Kafka's version."""
    flexible = clipped(schema_of(cls)["flexibleVersions"], cls.VERSIONS)
    assert [version for version in cls.VERSIONS if cls.is_flexible(version)] == flexible


def test_declared_versions() -> None:
    """Each API is declared in the versions that were promised."""
    declared = {api.name: (api.versions[0], api.versions[-1]) for api in API_KEYS.values()}
    assert declared == EXPECTED_VERSIONS
