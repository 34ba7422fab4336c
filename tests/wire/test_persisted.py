"""Structures that stand in the broker's own topics: a version in front, no API key."""

from __future__ import annotations

import pytest

from splashdam.model.errors import ProtocolError
from splashdam.wire.fields import int64, string
from splashdam.wire.persisted import Persisted, decode_persisted, encode_persisted, version_of


class Example(Persisted, versions="0-1", flexible="1+"):
    """One field in all versions, a tagged one in the last."""

    name: str = string()
    number: int = int64("1+", tag=0, default=-1, ignorable=True)


@pytest.mark.parametrize(
    ("version", "data"),
    [(0, b"\0\0" + b"\0\2ab"), (1, b"\0\1" + b"\3ab" + b"\1" + b"\0\x08" + b"\0\0\0\0\0\0\0\7")],
)
def test_version_goes_in_front(version: int, data: bytes) -> None:
    """Strings are compact and fields tagged in flexible versions alone."""
    assert encode_persisted(Example(name="ab", number=7), version) == data
    assert version_of(data) == version
    assert decode_persisted(Example, data) == Example(name="ab", number=7 if version else -1)


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\2\0\0", b"\0\0\0", b"\0\0\0\0x"])
def test_what_is_none_is_refused(data: bytes) -> None:
    """No version, one not declared, cut off, or too long."""
    with pytest.raises(ProtocolError):
        decode_persisted(Example, data)
