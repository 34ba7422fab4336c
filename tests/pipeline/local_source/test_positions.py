"""Where queries begin and end: JSON in, JSON out, and what is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.values import TopicPartition
from splashdam.net.cluster.fetch_client import EARLIEST, LATEST
from splashdam.pipeline.local_source.positions import (
    AtEdge,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    check_all_named,
    from_json,
    parse_assignment,
    parse_offsets,
    parse_position,
    parse_timestamp,
    parse_timestamps,
    to_json,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
PARTITIONS = st.builds(TopicPartition, st.text("aB-_9", min_size=1, max_size=3), st.integers(0, 20))


@given(st.dictionaries(PARTITIONS, st.integers(0, 2**63 - 1)))
def test_offsets_survive_a_checkpoint(offsets: dict[TopicPartition, int]) -> None:
    """Spark keeps them as JSON; equal offsets have equal text, in whatever order they were found."""
    text = json.dumps(to_json(offsets))
    assert from_json(json.loads(text)) == offsets
    assert json.dumps(to_json(dict(reversed(offsets.items())))) == text


def test_offsets_look_as_those_of_sparks_own_connector() -> None:
    """Numbers of partitions are in the order of numbers."""
    offsets = {TopicPartition("t", 10): 7, T0: 123, TopicPartition("a", 1): 5}
    assert json.dumps(to_json(offsets), separators=(",", ":")) == '{"a":{"1":5},"t":{"0":123,"10":7}}'


@pytest.mark.parametrize("kept", [{"offset": 3}, {"t": {"x": 3}}, {"t": {"0": -1}}, {"t": {"0": True}}])
def test_a_checkpoint_of_another_source(kept: dict[str, dict[str, int]]) -> None:
    """Is refused, and named as the likely reason."""
    with pytest.raises(KafkaConfigurationError, match="Is the checkpoint that of another source"):
        from_json(kept)


def test_positions_as_options_say_them() -> None:
    """Words in any case, JSON with -1 and -2, milliseconds."""
    assert parse_position(" Earliest") == AtEdge(EARLIEST)
    assert parse_position("latest") == AtEdge(LATEST)
    assert parse_position('{"t":{"0":23,"1":-2}}') == AtOffsets({T0: 23, T1: EARLIEST})
    assert parse_position('{"t":{"0":-1}}') == AtOffsets({T0: LATEST})
    assert parse_timestamps('{"t":{"1":1000}}') == AtTimestamps({T1: 1000})
    assert parse_timestamp("1000") == AtTimestamp(1000)


@pytest.mark.parametrize(
    "text",
    ["newest", "[]", '{"t":5}', '{"t":{"0":"5"}}', '{"t":{"0":-3}}', '{"t":{"0":1.5}}', '{"t":{"-1":5}}'],
)
def test_invalid_positions(text: str) -> None:
    """The message shows how offsets are written, or that it is no JSON."""
    with pytest.raises(ValueError, match=r'must be like \{"topic":|must be a? ?JSON'):
        parse_position(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"t":{"3":1,"03":2}}',
        '{"t":{"3":1,"\u0663":2}}',
        '{"t":{"2147483648":1}}',
        '{"t":{"0":9223372036854775808}}',
        '{"t":{"0":NaN}}',
        '{"t":{"0":true}}',
        '{"no topic":{"0":1}}',
        '{"\ud800":{"0":1}}',
        '{"t":' * 100_000,
    ],
)
def test_text_that_only_looks_like_offsets(text: str) -> None:
    """A partition named twice in two spellings, numbers that no Kafka has, names that no topic has."""
    with pytest.raises(ValueError, match=r"must be|no legal topic name"):
        parse_position(text)


@pytest.mark.parametrize("text", ['{"t":{"0":-1}}', '{"t":{"0":-2}}'])
def test_a_timestamp_is_no_offset(text: str) -> None:
    """The earliest and the latest have no meaning among times."""
    with pytest.raises(ValueError, match="at least 0"):
        parse_timestamps(text)


def test_assignments() -> None:
    """Partitions in order, each once."""
    assert parse_assignment('{"t":[1,0,1]}') == (T0, T1)
    for text in ("{}", '{"t":[]}', '{"t":0}', '{"t":["0"]}', '{"t":[-1]}', '{"t":[2147483648]}', "t-0"):
        with pytest.raises(ValueError, match=r"must be"):
            parse_assignment(text)


def test_every_partition_has_to_be_named() -> None:
    """Which are missing and which are too many is said."""
    check_all_named("startingOffsets", parse_offsets('{"t":{"0":1,"1":1}}'), [T1, T0])
    with pytest.raises(KafkaConfigurationError, match="does not name t-0 and names beside what is read t-2"):
        check_all_named("startingOffsets", {T1: 0, TopicPartition("t", 2): 0}, [T0, T1])
