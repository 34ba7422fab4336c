"""Where a query begins and ends, as its options say it: an edge of the log, offsets, or times."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import attrs

from splashdam.client.sending.arguments import check_topic_name
from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.options import MAX_INT, MAX_LONG
from splashdam.model.values import TopicPartition
from splashdam.net.cluster.fetch_client import EARLIEST, LATEST
from splashdam.pipeline.options import integer, json_object

Offsets: TypeAlias = Mapping[TopicPartition, int]
"""An offset of each partition: the first that is read, or the first that is not."""

_PARTITION = re.compile("0|[1-9][0-9]{0,9}", re.ASCII)
"""One way to write each number: `03` and `3` would name a partition twice."""


@attrs.frozen
class AtEdge:
    """`EARLIEST` or `LATEST` in every partition."""

    edge: int


@attrs.frozen
class AtOffsets:
    """An offset of each partition, or `EARLIEST` or `LATEST` there; all partitions have to be named."""

    offsets: Offsets


@attrs.frozen
class AtTimestamps:
    """In each partition the first record that is not older; all have to be named. Milliseconds."""

    timestamps_ms: Offsets


@attrs.frozen
class AtTimestamp:
    """In every partition the first record that is not older than this, in milliseconds since the epoch."""

    timestamp_ms: int


Position: TypeAlias = AtEdge | AtOffsets | AtTimestamps | AtTimestamp


def parse_position(text: str) -> AtEdge | AtOffsets:
    """``earliest``, ``latest``, or JSON with offsets.

    Raises:
        ValueError: it is none of them.
    """
    edges = {"earliest": EARLIEST, "latest": LATEST}
    word = text.strip().lower()
    return AtEdge(edges[word]) if word in edges else AtOffsets(parse_offsets(text, least=EARLIEST))


def parse_timestamps(text: str) -> AtTimestamps:
    """JSON with milliseconds since the epoch.

    Raises:
        ValueError: it is something else.
    """
    return AtTimestamps(parse_offsets(text))


def parse_timestamp(text: str) -> AtTimestamp:
    """Milliseconds since the epoch.

    Raises:
        ValueError: it is no whole number, or below 0.
    """
    return AtTimestamp(integer(0)(text))


def parse_offsets(text: str, *, least: int = 0) -> dict[TopicPartition, int]:
    """Numbers of partitions, ``{"topic": {"0": 23, "1": 42}}``.

    Args:
        text: JSON.
        least: smaller numbers are refused.

    Raises:
        ValueError: it is something else.
    """
    expected = f'must be like {{"topic":{{"0":23,"1":42}}}}, with numbers of at least {least}'
    found = {}
    for topic, numbers in json_object(text).items():
        if not isinstance(numbers, dict):
            raise ValueError(expected)  # noqa: TRY004
        for partition, number in numbers.items():
            if _PARTITION.fullmatch(partition) is None or int(partition) > MAX_INT:
                raise ValueError(expected)
            if type(number) is not int or not least <= number <= MAX_LONG:
                raise ValueError(expected)
            found[TopicPartition(check_topic_name(topic), int(partition))] = number
    return in_order(found)


def parse_assignment(text: str) -> tuple[TopicPartition, ...]:
    """Partitions, ``{"topic": [0, 1]}``.

    Raises:
        ValueError: it is something else, or empty.
    """
    expected = 'must be like {"topic":[0,1]}, and name a partition'
    found = set()
    for topic, numbers in json_object(text).items():
        if not isinstance(numbers, list):
            raise ValueError(expected)  # noqa: TRY004
        for number in numbers:
            if type(number) is not int or not 0 <= number <= MAX_INT:
                raise ValueError(expected)
            found.add(TopicPartition(check_topic_name(topic), number))
    if not found:
        raise ValueError(expected)
    return tuple(sorted(found))


def in_order(offsets: Offsets) -> dict[TopicPartition, int]:
    """The same, by topic and partition."""
    return dict(sorted(offsets.items()))


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """What Spark keeps in a checkpoint, laid out as by its own connector; equal offsets give equal text."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(partition)] = offset
    return topics


def from_json(kept: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """The offsets that ``to_json`` laid out.

    Raises:
        KafkaConfigurationError: these are not such offsets; the checkpoint is another source's.
    """
    try:
        return parse_offsets(json.dumps(kept))
    except ValueError as error:
        raise KafkaConfigurationError(
            f"offsets of kafka-local {error}; found {kept!r}. Is the checkpoint that of another source?"
        ) from None


def check_all_named(option: str, named: Iterable[TopicPartition], read: Iterable[TopicPartition]) -> None:
    """An option that names partitions names all that are read, and no others.

    Raises:
        KafkaConfigurationError: it does not; the text says which are missing and which too many.
    """
    named, read = set(named), set(read)
    problems = [
        f"{word} {', '.join(map(str, sorted(which)))}"
        for word, which in (("does not name", read - named), ("names beside what is read", named - read))
        if which
    ]
    if problems:
        raise KafkaConfigurationError(
            f"{option} {' and '.join(problems)}; it has to name every partition that is read"
            " (offset -2 is the earliest, -1 the latest)"
        )
