"""Where a query begins and ends: an edge of the log, offsets or timestamps, as its options say it, and the
offsets that the cluster resolves them to, with no more requests than needed."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import attrs

from splashdam.client.sending.arguments import check_topic_name
from splashdam.model.errors import KafkaConfigurationError, SettingText
from splashdam.model.options import MAX_INT, MAX_LONG
from splashdam.model.values import TopicPartition
from splashdam.net.cluster.fetch_client import EARLIEST, LATEST
from splashdam.pipeline.local_source.subscriptions import Cluster
from splashdam.pipeline.options import integer, json_object

Offsets: TypeAlias = Mapping[TopicPartition, int]
"""Offsets by partition: the first to read, or the first not to read."""

_PARTITION = re.compile("0|[1-9][0-9]{0,9}", re.ASCII)
"""Without leading zeros: `03` and `3` would name a partition twice."""


@attrs.frozen
class AtEdge:
    """`EARLIEST` or `LATEST` in every partition."""

    edge: int


@attrs.frozen
class AtOffsets:
    """For each partition an offset, `EARLIEST` or `LATEST`; all partitions must be named."""

    offsets: Offsets


@attrs.frozen
class AtTimestamps:
    """In each partition the first record that is not older; all must be named. Milliseconds since the
    epoch."""

    timestamps_ms: Offsets


@attrs.frozen
class AtTimestamp:
    """In every partition the first record that is not older. Milliseconds since the epoch."""

    timestamp_ms: int


Position: TypeAlias = AtEdge | AtOffsets | AtTimestamps | AtTimestamp


def parse_position(text: str) -> AtEdge | AtOffsets:
    """Parse ``earliest``, ``latest``, or JSON with offsets.

    Raises:
        ValueError: the text is something else.
    """
    edges = {"earliest": EARLIEST, "latest": LATEST}
    word = text.strip().lower()
    if word in edges:
        return AtEdge(edges[word])
    if not word.startswith("{"):
        raise ValueError('must be like {"topic":{"0":23,"1":42}}, or be earliest or latest')
    return AtOffsets(parse_offsets(text, least=EARLIEST))


def parse_timestamps(text: str) -> AtTimestamps:
    """Parse JSON with milliseconds since the epoch.

    Raises:
        ValueError: the text is something else.
    """
    return AtTimestamps(parse_offsets(text))


def parse_timestamp(text: str) -> AtTimestamp:
    """Parse milliseconds since the epoch.

    Raises:
        ValueError: the text is not an integer, or below 0.
    """
    return AtTimestamp(integer(0)(text))


def parse_offsets(text: str, *, least: int = 0) -> dict[TopicPartition, int]:
    """Parse a number for each partition, ``{"topic": {"0": 23, "1": 42}}``.

    Args:
        text: JSON.
        least: smaller numbers are refused.

    Raises:
        ValueError: the text is something else.
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
    """Parse partitions, ``{"topic": [0, 1]}``.

    Raises:
        ValueError: the text is something else, or names no partition.
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
    """Return the offsets sorted by topic and partition."""
    return dict(sorted(offsets.items()))


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Return offsets as Spark's own connector lays them out in checkpoints; equal offsets give equal JSON."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(partition)] = offset
    return topics


def from_json(kept: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Return the offsets that ``to_json`` encoded.

    Raises:
        KafkaConfigurationError: the value has another form; the checkpoint belongs to another source.
    """
    try:
        return parse_offsets(json.dumps(kept))
    except ValueError as error:
        raise KafkaConfigurationError(
            f"offsets of kafka-local {error}; found {kept!r}. Is the checkpoint that of another source?"
        ) from None


def check_all_named(option: str, named: Iterable[TopicPartition], read: Iterable[TopicPartition]) -> None:
    """Check that an option names all partitions that are read, and no others.

    Raises:
        KafkaConfigurationError: it does not; the message lists missing and surplus partitions.
    """
    named, read = set(named), set(read)
    problems = [
        f"{word} {', '.join(map(str, sorted(which)))}"
        for word, which in (("does not name", read - named), ("names beside what is read", named - read))
        if which
    ]
    if problems:
        raise KafkaConfigurationError(
            SettingText(
                "{0} {problems}; it has to name every partition that is read"
                " (offset -2 is the earliest, -1 the latest)",
                option,
                problems=" and ".join(problems),
            )
        )


logger = logging.getLogger("splashdam.pipeline")

NO_MATCH = -1
"""What a cluster answers if no record is as young as a timestamp."""


def offsets_at(cluster: Cluster, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return for each partition the first offset at or after its timestamp; one request per topic and
    timestamp."""
    asked: dict[tuple[str, int], list[int]] = {}
    for (topic, partition), timestamp in timestamps.items():
        asked.setdefault((topic, timestamp), []).append(partition)
    found = {}
    for (topic, timestamp), numbers in asked.items():
        for partition, offset in cluster.offsets(topic, sorted(numbers), timestamp).items():
            found[TopicPartition(topic, partition)] = offset
    return in_order(found)


def edges(cluster: Cluster, partitions: Sequence[TopicPartition], edge: int) -> dict[TopicPartition, int]:
    return offsets_at(cluster, dict.fromkeys(partitions, edge))


def resolve(
    position: Position,
    partitions: Sequence[TopicPartition],
    cluster: Cluster,
    *,
    option: str,
    latest_if_no_match: bool,
) -> dict[TopicPartition, int]:
    """Return the offset of each partition that a position denotes now.

    Args:
        position: the start or the end of a query.
        partitions: the partitions to read.
        cluster: resolves edges and timestamps.
        option: the name of the option, for errors.
        latest_if_no_match: if no record is as young as the timestamp, take the end of the partition.

    Raises:
        KafkaConfigurationError: the position names too few or too many partitions, or a partition has no
            record that is young enough.
    """
    if isinstance(position, AtEdge):
        return edges(cluster, partitions, position.edge)
    if isinstance(position, AtOffsets):
        check_all_named(option, position.offsets, partitions)
        to_ask = {each: offset for each, offset in position.offsets.items() if offset < 0}
        return in_order({**position.offsets, **offsets_at(cluster, to_ask)})
    if isinstance(position, AtTimestamp):
        times: Offsets = dict.fromkeys(partitions, position.timestamp_ms)
    else:
        times = position.timestamps_ms
        check_all_named(option, times, partitions)
    found = offsets_at(cluster, times)
    unmatched = [each for each, offset in found.items() if offset == NO_MATCH]
    if unmatched and not latest_if_no_match:
        names = ", ".join(f"{each} at or after {times[each]}" for each in unmatched)
        raise KafkaConfigurationError(
            SettingText(
                "{0}: no record of {names}. {1}=latest starts at the end there",
                option,
                "startingOffsetsByTimestampStrategy",
                names=names,
            )
        )
    return {**found, **edges(cluster, unmatched, LATEST)}


def moves(position: Position, *, latest_if_no_match: bool) -> bool:
    """Whether the position denotes other offsets after more records have arrived."""
    if isinstance(position, AtEdge):
        return position.edge == LATEST
    if isinstance(position, AtOffsets):
        return LATEST in position.offsets.values()
    return latest_if_no_match


@attrs.frozen
class Patience:
    """How often ends that lie below offsets already read are requested again, and the pause between requests.

    Right after a leader election a broker may answer with an outdated end.
    """

    attempts: int = 3
    interval_ms: int = 10
    pause: Callable[[float], None] = time.sleep


def latest_from(
    cluster: Cluster, partitions: Sequence[TopicPartition], known: Offsets, patience: Patience
) -> dict[TopicPartition, int]:
    """Return the end offsets of partitions, requested again while one is below a known offset.

    Returns:
        The last answer; an end that is still below a known offset means that records are gone.
    """
    found = edges(cluster, partitions, LATEST)
    for _ in range(patience.attempts - 1):
        behind = [each for each, end in found.items() if end < known.get(each, end)]
        if not behind:
            break
        logger.warning(
            "log ends below offsets already read, requested again: %s",
            ", ".join(map(str, behind)),
        )
        patience.pause(patience.interval_ms / 1000)
        found |= edges(cluster, behind, LATEST)
    return in_order(found)


def earliest(cluster: Cluster, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    return edges(cluster, partitions, EARLIEST)
