"""Our bytes are kafka-python's bytes, and each reads the other's, in every version both know."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol import admin, consumer, metadata, producer, sasl
from support.record.wire_values import MESSAGES, full_example, kafkas_name, structs

from splashdam.wire.codec import decode, encode
from splashdam.wire.fields import UUID, ArrayType, Field, StructType
from splashdam.wire.header import encode_request
from splashdam.wire.message import Message, Struct
from splashdam.wire.messages.api_versions import ApiVersionsResponse
from splashdam.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

THEIRS = {
    name: getattr(package, name)
    for package in (producer, consumer, metadata, admin, sasl)
    for name in package.__all__
    if name.endswith(("Request", "Response"))
}

WITHOUT_ORACLE = {
    "ConsumerGroupDescribe",
    "ConsumerGroupHeartbeat",
    "GetTelemetrySubscriptions",
    "PushTelemetry",
}
"""kafka-python sends none of these; Kafka's schemas and librdkafka are what they are held against."""

OLDER_NAMES = {(TxnOffsetCommitRequest, "generation_id_or_member_epoch"): "generation_id"}
"""Kafka 4.4 has renamed these."""

SHARED = {
    cls: [version for version in cls.VERSIONS if version <= THEIRS[cls.NAME].max_version]
    for cls in MESSAGES
    if cls.NAME in THEIRS
}
"""The versions of each message that both know."""


def to_theirs(message: Struct, kind: Any, version: int) -> Any:
    """The same message as kafka-python's class. It writes a tagged field that was given, default or not."""
    values = {}
    for field in message.FIELDS:
        value = getattr(message, field.name)
        given_default = field.tag is not None and value == getattr(type(message)(), field.name)
        if version in field.versions and not given_default:
            name, theirs = _value_to_theirs(field, value, kind, version)
            values[OLDER_NAMES.get((type(message), name), name)] = theirs
    return kind(version=version, **values)


def _value_to_theirs(field: Field, value: Any, kind: Any, version: int) -> tuple[str, Any]:
    name = field.name
    if name.endswith("authorized_operations") and hasattr(kind, "authorized_operations"):  # a set of bits
        return "authorized_operations", {bit for bit in range(32) if value >> bit & 1}
    if value is None:
        return name, None
    if isinstance(field.type, StructType):
        return name, to_theirs(value, getattr(kind, kafkas_name(field.type.cls)), version)
    if isinstance(field.type, ArrayType) and isinstance(field.type.element, StructType):
        inner = getattr(kind, kafkas_name(field.type.element.cls))
        return name, [to_theirs(each, inner, version) for each in value]
    return name, uuid.UUID(bytes=value) if field.type == UUID else value


def check(message: Message, version: int) -> None:
    """Both ways, byte for byte."""
    if isinstance(message, ApiVersionsResponse):
        message.error_code = 0  # kafka-python reads any error in version 0
    theirs = to_theirs(message, THEIRS[message.NAME], version)
    ours = b"".join(encode(message, version))
    assert ours == bytes(theirs.encode(version=version))
    back = THEIRS[message.NAME].decode(ours, version=version)
    back._header = None  # it is missing in what was decoded, but encode() reads it
    assert bytes(back.encode(version=version)) == ours
    assert decode(type(message), bytes(theirs.encode(version=version)), version) == message


@pytest.mark.parametrize("cls", SHARED, ids=lambda cls: cls.NAME)
def test_full_messages_are_the_same_bytes(cls: type[Message]) -> None:
    """A message with every field set, tagged ones included."""
    for version in SHARED[cls]:
        check(full_example(cls, version), version)


@pytest.mark.parametrize("cls", SHARED, ids=lambda cls: cls.NAME)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_any_message_is_the_same_bytes(cls: type[Message], data: st.DataObject) -> None:
    """Any message that a version can carry."""
    version = data.draw(st.sampled_from(SHARED[cls]))
    check(data.draw(structs(cls, version)), version)


@pytest.mark.parametrize(
    "cls", [cls for cls in SHARED if cls.NAME.endswith("Request")], ids=lambda cls: cls.NAME
)
def test_request_frames_are_the_same_bytes(cls: type[Any]) -> None:
    """Size, header version 1 or 2 and body."""
    for version in SHARED[cls]:
        message = full_example(cls, version)
        theirs = to_theirs(message, THEIRS[cls.NAME], version)
        theirs.with_header(correlation_id=7, client_id="ünit")
        frame = b"".join(encode_request(message, version=version, correlation_id=7, client_id="ünit"))
        assert frame == bytes(theirs.encode(version=version, header=True, framed=True)), version


def test_every_message_has_an_oracle() -> None:
    """Nothing is left out silently."""
    missing = {cls.NAME for cls in MESSAGES} - {cls.NAME for cls in SHARED}
    assert missing == {name + kind for name in WITHOUT_ORACLE for kind in ("Request", "Response")}
