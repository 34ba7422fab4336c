"""Keys and values of ``__consumer_offsets``: what Kafka wrote, every version, and damage."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashdam.embedded_broker.groups.offset_records import (
    CommittedOffset,
    GroupKey,
    OffsetKey,
    parse_key,
    parse_value,
)
from splashdam.model.broker_errors import CorruptMessageError
from splashdam.model.values import TopicPartition

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
int64 = st.integers(-(2**63), 2**63 - 1)
keys = st.builds(OffsetKey, texts, st.builds(TopicPartition, texts, st.integers(0, 2**31 - 1)))
values = st.builds(
    CommittedOffset, int64, texts, st.integers(-1, 2**31 - 1), int64, st.none() | st.integers(0, 2**63 - 1)
)


@given(keys)
def test_keys_come_back(key: OffsetKey) -> None:
    """Encoded records are parsed."""
    assert parse_key(key.encoded()) == key


@given(values)
def test_values_come_back(value: CommittedOffset) -> None:
    """With an expiry of its own a value is of version 1, which has no leader epoch, as Kafka writes it."""
    data = value.encoded()
    is_expiring = value.expire_timestamp_ms is not None
    assert data[:2] == (b"\0\1" if is_expiring else b"\0\3")
    assert parse_value(data) == (value._replace(leader_epoch=-1) if is_expiring else value)


@given(keys, values, st.data())
def test_whatever_is_cut_off_is_damage(key: OffsetKey, value: CommittedOffset, data: st.DataObject) -> None:
    """The decoder raises no other error."""
    encoded_key, encoded_value = key.encoded(), value.encoded()
    with pytest.raises(CorruptMessageError):
        parse_key(encoded_key[: data.draw(st.integers(0, len(encoded_key) - 1))])
    with pytest.raises(CorruptMessageError):
        parse_value(encoded_value[: data.draw(st.integers(0, len(encoded_value) - 1))])


@given(st.binary(max_size=60))
def test_any_bytes(data: bytes) -> None:
    """They mean something, or are damage."""
    for parse in (parse_key, parse_value):
        try:
            parse(data)
        except CorruptMessageError:
            continue


def test_older_and_newer_versions() -> None:
    """Keys of version 0; values without an expiry (0, 2), and with tagged fields (4)."""
    key = OffsetKey("g", TopicPartition("t", 7))
    assert parse_key(b"\0\0" + key.encoded()[2:]) == key
    body = struct.pack(">qh1sq", 5, 1, b"m", 9)
    for version in (0, 2):
        assert parse_value(struct.pack(">h", version) + body) == CommittedOffset(5, "m", -1, 9)
    newer = struct.pack(">hqi", 4, 5, 3) + b"\x02m" + struct.pack(">q", 9) + b"\1\0\x10" + b"\xab" * 16
    assert parse_value(newer) == CommittedOffset(5, "m", 3, 9)
    with pytest.raises(CorruptMessageError, match="unknown version 5"):
        parse_value(b"\0\5" + newer[2:])


def test_other_records() -> None:
    """Records of a group name it, whichever protocol it uses; those of share groups are not touched."""
    assert parse_key(b"\0\2\0\1g") == GroupKey(2, "g", b"\0\2\0\1g")
    assert parse_key(b"\0\5\0\1g\0\1m") == GroupKey(5, "g", b"\0\5\0\1g\0\1m")
    assert parse_key(b"\0\x0b\0\1g") is None
