"""What is encoded is decoded as it was, in every version of every message."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.record.wire_values import MESSAGES, NAMES, full_example, structs

from splashdam.wire.codec import decode, encode
from splashdam.wire.message import Message


@pytest.mark.parametrize("cls", MESSAGES, ids=NAMES)
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_any_value_survives(cls: type[Message], data: st.DataObject) -> None:
    """Any value that a version can carry comes back equal, and re-encodes to the same bytes."""
    for version in cls.VERSIONS:
        message = data.draw(structs(cls, version), label=f"version {version}")
        body = b"".join(encode(message, version))
        decoded = decode(cls, body, version)
        assert decoded == message, version
        assert b"".join(encode(decoded, version)) == body, version


@pytest.mark.parametrize("cls", MESSAGES, ids=NAMES)
def test_defaults_survive(cls: type[Message]) -> None:
    """A message of defaults comes back as such; fields the version lacks have their defaults."""
    for version in cls.VERSIONS:
        assert decode(cls, b"".join(encode(cls(), version)), version) == cls(), version


@pytest.mark.parametrize("cls", MESSAGES, ids=NAMES)
def test_full_messages_survive(cls: type[Message]) -> None:
    """A message without a single default, tagged fields included, comes back equal."""
    for version in cls.VERSIONS:
        message = full_example(cls, version)
        assert decode(cls, bytearray(b"".join(encode(message, version))), version) == message, version
