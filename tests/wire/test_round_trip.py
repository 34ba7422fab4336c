"""What is encoded is decoded as it was, in every version of every message."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.record.wire_values import CASE_IDS, CASES, full_example, structs

from splashdam.wire.codec import decode, encode
from splashdam.wire.message import Message


@pytest.mark.parametrize(("cls", "version"), CASES, ids=CASE_IDS)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_value_survives(cls: type[Message], version: int, data: st.DataObject) -> None:
    """Any value that a version can carry comes back equal, and re-encodes to the same bytes."""
    message = data.draw(structs(cls, version))
    body = b"".join(encode(message, version))
    decoded = decode(cls, body, version)
    assert decoded == message
    assert b"".join(encode(decoded, version)) == body


@pytest.mark.parametrize(("cls", "version"), CASES, ids=CASE_IDS)
def test_defaults_survive(cls: type[Message], version: int) -> None:
    """A message of defaults comes back as such; fields the version lacks have their defaults."""
    assert decode(cls, b"".join(encode(cls(), version)), version) == cls()


@pytest.mark.parametrize(("cls", "version"), CASES, ids=CASE_IDS)
def test_full_messages_survive(cls: type[Message], version: int) -> None:
    """A message without a single default, tagged fields included, comes back equal."""
    message = full_example(cls, version)
    assert decode(cls, bytearray(b"".join(encode(message, version))), version) == message
