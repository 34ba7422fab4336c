"""The vocabulary of declarations, over messages made up here: every type, nulls, tags, nesting."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.record.wire_values import structs

from splashdam.model.errors import ProtocolError
from splashdam.model.values import Buffer
from splashdam.wire.codec import decode, encode
from splashdam.wire.fields import (
    Versions,
    array,
    boolean,
    float64,
    int8,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uint16,
    uint32,
    uuid,
)
from splashdam.wire.message import Response, Struct

ID = bytes(range(16))


class Inner(Struct):
    """A structure inside."""

    number: int = int16(default=5)
    late: str = string("2+", tag=0)


class Holder(Struct):
    """A structure that may hold one."""

    inner: Inner | None = struct(Inner, nullable="0+")


class Everything(Response, key=999, versions="0-3", flexible="2+"):
    """Every type there is; nulls from version 1, compact from 2."""

    flag: bool = boolean()
    tiny: int = int8()
    short: int = int16()
    unsigned_short: int = uint16()
    plain: int = int32()
    unsigned: int = uint32()
    big: int = int64()
    ratio: float = float64()
    topic_id: bytes = uuid()
    text: str | None = string(nullable="1+")
    numbers: list[int] | None = array("int16", nullable="1+")
    ids: list[bytes] = array("uuid")
    texts: list[str] = array("string")
    inner: Inner = struct(Inner)
    maybe: Inner | None = struct(Inner, nullable="1+", ignorable=True)
    many: list[Inner] = array(Inner)
    batches: Buffer | None = records(nullable="1+")
    tagged_number: int = int32("2+", tag=1, default=-1)
    tagged_maybe: Inner | None = struct(Inner, "2+", nullable="2+", tag=0)
    tagged_ids: list[bytes] = array("uuid", "3+", tag=7)
    holders: list[Holder] = array(Holder, "3+")


def sample(**changes: Any) -> Everything:
    """A value that every version can carry."""
    values: dict[str, Any] = {
        "flag": True,
        "tiny": -1,
        "short": 2,
        "unsigned_short": 65_535,
        "plain": 3,
        "unsigned": 2**32 - 1,
        "big": 4,
        "ratio": 0.5,
        "topic_id": ID,
        "text": "ä",
        "numbers": [1, 2],
        "ids": [ID],
        "texts": ["t"],
        "maybe": Inner(number=6),
        "many": [Inner(number=7)],
        "batches": b"r",
    }
    return Everything(**(values | changes))


FIXED = b"\1\xff\0\2\xff\xff\0\0\0\3\xff\xff\xff\xff\0\0\0\0\0\0\0\4" + b"\x3f\xe0\0\0\0\0\0\0" + ID


def test_bytes_of_a_version_without_compact_types() -> None:
    """Version 1 by hand: int16 and int32 lengths, a byte before the nullable structure."""
    expected = (
        FIXED + b"\0\2\xc3\xa4" + b"\0\0\0\2\0\1\0\2" + b"\0\0\0\1" + ID
        + b"\0\0\0\1\0\1t" + b"\0\5" + b"\1\0\6" + b"\0\0\0\1\0\7" + b"\0\0\0\1r"
    )  # fmt: skip
    assert b"".join(encode(sample(), 1)) == expected
    assert decode(Everything, expected, 1) == sample()


def test_bytes_of_a_flexible_version() -> None:
    """Version 2 by hand: compact lengths, and a tagged section after every structure, ordered by tag."""
    message = sample(tagged_number=9, tagged_maybe=Inner(late="x"))
    expected = (
        FIXED + b"\3\xc3\xa4" + b"\3\0\1\0\2" + b"\2" + ID + b"\2\2t" + b"\0\5\0"
        + b"\1\0\6\0" + b"\2\0\7\0" + b"\2r" + b"\2" + b"\0\x08\1\0\5\1\0\2\2x" + b"\1\4\0\0\0\x09"
    )  # fmt: skip
    assert b"".join(encode(message, 2)) == expected
    assert decode(Everything, expected, 2) == message


def test_nulls() -> None:
    """Null lengths are -1, compact ones 0, a null structure is a byte of -1."""
    message = sample(text=None, numbers=None, maybe=None, batches=None)
    for version in (1, 2, 3):
        assert decode(Everything, b"".join(encode(message, version)), version) == message
    assert FIXED + b"\xff\xff" + b"\xff\xff\xff\xff" in b"".join(encode(message, 1))
    assert FIXED + b"\0\0" in b"".join(encode(message, 2))


@pytest.mark.parametrize("version", Everything.VERSIONS)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_round_trip(version: int, data: st.DataObject) -> None:
    """Any value that a version can carry comes back equal."""
    message = data.draw(structs(Everything, version))
    if version == 0:
        message.maybe = Inner()
    assert decode(Everything, b"".join(encode(message, version)), version) == message


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("text", None, "null is not allowed"),
        ("numbers", None, "null is not allowed"),
        ("batches", None, "null is not allowed"),
        ("maybe", None, "null is not allowed"),
        ("tiny", 128, "format requires -128 <= number <= 127"),
        ("short", "2", "required argument is not an integer"),
        ("topic_id", b"short", "a uuid has 16 bytes, not 5"),
        ("text", "x" * 40_000, "a string of 40000 bytes is above the limit of 32767"),
        ("text", 7, "has no attribute 'encode'"),
        ("tagged_number", 4, "version 0 has no such field"),
        ("tagged_maybe", Inner(), "version 0 has no such field"),
    ],
)
def test_values_that_do_not_fit(field: str, value: object, reason: str) -> None:
    """The error names message, version and field."""
    with pytest.raises(ProtocolError, match=f"^Everything v0: {field}: .*{reason}"):
        encode(sample(**{field: value}), 0)


def test_values_inside_that_do_not_fit() -> None:
    """The path leads through arrays, structures in place and tagged fields."""
    with pytest.raises(ProtocolError, match=r"^Everything v1: many\[1\]\.number: "):
        encode(sample(many=[Inner(), Inner(number=70_000)]), 1)
    with pytest.raises(ProtocolError, match=r"^Everything v1: inner\.late: version 1 has no such field"):
        encode(sample(inner=Inner(late="too late")), 1)
    with pytest.raises(ProtocolError, match=r"^Everything v2: texts\[0\]: null is not allowed"):
        encode(sample(texts=[None]), 2)
    with pytest.raises(ProtocolError, match=r"^Everything v3: tagged_ids\[1\]: a uuid has 16 bytes"):
        encode(sample(tagged_ids=[ID, b""]), 3)


def test_unknown_tagged_fields_are_skipped() -> None:
    """A newer peer may add some; their size is checked."""
    body = bytearray(b"".join(encode(sample(), 2)))
    assert body[-1] == 0
    body[-1:] = b"\2" + b"\x63\3abc" + b"\x64\0"
    assert decode(Everything, body, 2) == sample()
    body[-1:] = b"\1"
    with pytest.raises(ProtocolError, match=r"tagged fields at byte .*length 1 exceeds the 0 bytes left"):
        decode(Everything, body, 2)


def test_versions_that_are_not_declared() -> None:
    """They are refused in both directions."""
    with pytest.raises(ProtocolError, match="Everything v4 is not declared, only v0 to v3"):
        encode(sample(), 4)
    with pytest.raises(ProtocolError, match="Everything v-1 is not declared"):
        decode(Everything, b"", -1)


def test_messages_are_values() -> None:
    """Equal by fields, shown by fields, not hashable, without a dict, picklable."""
    assert Inner(number=1) == Inner(number=1)
    assert Inner(number=1) != Inner(number=2)
    assert Inner() != 5
    assert repr(Inner(number=1)) == "Inner(number=1, late='')"
    with pytest.raises(TypeError, match="unhashable"):
        hash(Inner())
    with pytest.raises(AttributeError):
        Inner().unknown = 1  # type: ignore[attr-defined]
    assert pickle.loads(pickle.dumps(Inner(number=3))) == Inner(number=3)


def test_constructors_take_keywords_only() -> None:
    """An unknown name or a positional argument is a TypeError, also in the very first call."""

    class Fresh(Struct):
        number: int = int32()

    with pytest.raises(TypeError, match="unexpected keyword argument 'nubmer'"):
        Fresh(nubmer=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional"):
        Fresh(1)  # type: ignore[misc]
    assert Fresh(number=1).number == 1


def test_mutable_defaults_are_not_shared() -> None:
    """Neither between constructed messages nor between decoded ones."""
    Everything().texts.append("x")
    Everything().inner.number = 9
    assert Everything() == Everything()
    assert Everything().texts == []
    body = b"".join(encode(sample(), 1))
    decode(Everything, body, 1).tagged_ids.append(ID)
    assert decode(Everything, body, 1).tagged_ids == []


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("3+", [3, 99], [2]), ("3-5", [3, 5], [2, 6]), ("3", [3], [2, 4]), ("none", [], [0, 1])],
)
def test_version_ranges(text: str, inside: list[int], outside: list[int]) -> None:
    """They read and print as Kafka's schemas write them."""
    versions = Versions.parse(text)
    assert str(versions) == text
    assert all(version in versions for version in inside)
    assert not any(version in versions for version in outside)


def test_a_bad_version_range() -> None:
    """A typing error in a declaration is an error at import."""
    with pytest.raises(ValueError, match="x"):
        Versions.parse("x+")


def test_compact_strings_are_as_short_as_others() -> None:
    """Kafka refuses strings above 32,767 bytes in every version, whatever their length could say."""
    longest = "ä" * 16_383 + "x"
    for version in (0, 2):
        assert decode(Everything, b"".join(encode(sample(text=longest), version)), version).text == longest
        with pytest.raises(ProtocolError, match="text: a string of 32768 bytes is above the limit of 32767"):
            encode(sample(text=longest + "x"), version)
    body = b"".join(encode(sample(text="T"), 2))
    assert body.count(b"\2T") == 1
    with pytest.raises(ProtocolError, match=r"text at byte \d+: a string of 32768 bytes is above"):
        decode(Everything, body.replace(b"\2T", b"\x81\x80\x02" + b"T" * 32_768), 2)


def test_records_below_a_tagged_field() -> None:
    """They would stand before the size of their field, so the declaration is refused."""

    class Holder(Struct):
        batches: Buffer | None = records()

    class Outer(Struct):
        holders: list[Holder] = array(Holder)

    for declare in (struct, array):
        with pytest.raises(TypeError, match="tag 3: records cannot be a tagged field"):
            declare(Outer, "2+", tag=3)
    struct(Outer, "2+")
