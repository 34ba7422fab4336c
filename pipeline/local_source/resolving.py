"""From positions to offsets: what a cluster says of edges and times, without more questions than needed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

import attrs

from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.values import TopicPartition
from splashdam.net.cluster.fetch_client import EARLIEST, LATEST
from splashdam.pipeline.local_source.positions import (
    AtEdge,
    AtOffsets,
    AtTimestamp,
    Offsets,
    Position,
    check_all_named,
    in_order,
)
from splashdam.pipeline.local_source.subscriptions import Cluster

logger = logging.getLogger("splashdam.pipeline")

NO_MATCH = -1
"""What a cluster answers where no record is so young."""


def offsets_at(cluster: Cluster, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """By partition the first offset at or after a time of its own; one question per topic and time."""
    asked: dict[tuple[str, int], list[int]] = {}
    for (topic, partition), timestamp in timestamps.items():
        asked.setdefault((topic, timestamp), []).append(partition)
    found = {}
    for (topic, timestamp), numbers in asked.items():
        for partition, offset in cluster.offsets(topic, sorted(numbers), timestamp).items():
            found[TopicPartition(topic, partition)] = offset
    return in_order(found)


def edges(cluster: Cluster, partitions: Sequence[TopicPartition], edge: int) -> dict[TopicPartition, int]:
    """The earliest or latest offsets."""
    return offsets_at(cluster, dict.fromkeys(partitions, edge))


def resolve(
    position: Position,
    partitions: Sequence[TopicPartition],
    cluster: Cluster,
    *,
    option: str,
    latest_if_no_match: bool,
) -> dict[TopicPartition, int]:
    """The offset of each partition that a position means now.

    Args:
        position: the beginning or the end of a query.
        partitions: those that are read.
        cluster: what is asked.
        option: the name of the option, for errors.
        latest_if_no_match: where no record is so young, take the end of the partition.

    Raises:
        KafkaConfigurationError: the position names too few partitions or too many, or a partition has no
            record so young.
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
            f"{option}: no record of {names}."
            " startingOffsetsByTimestampStrategy=latest starts at the end there"
        )
    return {**found, **edges(cluster, unmatched, LATEST)}


def moves(position: Position, *, latest_if_no_match: bool) -> bool:
    """Whether the same position means other offsets once more records have come."""
    if isinstance(position, AtEdge):
        return position.edge == LATEST
    if isinstance(position, AtOffsets):
        return LATEST in position.offsets.values()
    return latest_if_no_match


@attrs.frozen
class Patience:
    """How often ends are asked for that are below what was already read, and the pause between.

    Right after an election a broker may answer with an end that is not the newest.
    """

    attempts: int = 3
    interval_ms: int = 10
    pause: Callable[[float], None] = time.sleep


def latest_from(
    cluster: Cluster, partitions: Sequence[TopicPartition], known: Offsets, patience: Patience
) -> dict[TopicPartition, int]:
    """The ends of partitions, asked for again while one is below a known offset.

    Returns:
        The last answer; an end below a known offset means that records are gone.
    """
    found = edges(cluster, partitions, LATEST)
    for _ in range(patience.attempts - 1):
        behind = [each for each, end in found.items() if end < known.get(each, end)]
        if not behind:
            break
        logger.warning("ends below what was read already, asking again: %s", ", ".join(map(str, behind)))
        patience.pause(patience.interval_ms / 1000)
        found |= edges(cluster, behind, LATEST)
    return in_order(found)


def earliest(cluster: Cluster, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """The first offsets that are still there."""
    return edges(cluster, partitions, EARLIEST)
