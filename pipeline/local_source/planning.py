"""The ranges of offsets that tasks read, from a query's options, the cluster's answers and Spark's filters.

Free of Spark.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import attrs

from splashdam.model.broker_errors import UnknownTopicOrPartitionError
from splashdam.model.errors import KafkaConfigurationError, KafkaError
from splashdam.model.values import TopicPartition
from splashdam.pipeline.filters import EVERY_ROW, WantedRows
from splashdam.pipeline.local_source.positions import (
    NO_MATCH,
    AtOffsets,
    Offsets,
    Patience,
    Position,
    earliest,
    latest_from,
    offsets_at,
    resolve,
)
from splashdam.pipeline.local_source.subscriptions import Cluster, Subscription, missing
from splashdam.wire.fields import NO_UUID


@attrs.frozen(kw_only=True)
class Selection:
    """Which records a query reads, as the options of a source name them.

    Attributes:
        subscription: the topics or partitions.
        start: where the query begins.
        start_option: the name of the option that says so, for errors.
        end: where a batch query ends.
        end_option: the name of the option that says so.
        latest_if_no_match: a partition without a record as young as the starting timestamp begins at its end.
        fail_on_data_loss: whether lost records fail the query.
        patience: how often log ends that a broker does not know yet are requested again.
    """

    subscription: Subscription
    start: Position
    start_option: str
    end: Position
    end_option: str
    latest_if_no_match: bool
    fail_on_data_loss: bool
    patience: Patience

    def partitions(self, cluster: Cluster) -> list[TopicPartition]:
        """Return the partitions that the query reads.

        Raises:
            UnknownTopicOrPartitionError: a topic or partition that the options name does not exist.
        """
        partitions = self.subscription.partitions(cluster)
        gone = missing(self.subscription, partitions)
        if gone:
            raise UnknownTopicOrPartitionError(f"not in the cluster: {', '.join(gone)}")
        return partitions

    def starts(self, partitions: Sequence[TopicPartition], cluster: Cluster) -> dict[TopicPartition, int]:
        """Return the offset at which each partition begins now.

        Raises:
            KafkaConfigurationError: see `resolve`.
        """
        return resolve(
            self.start,
            partitions,
            cluster,
            option=self.start_option,
            latest_if_no_match=self.latest_if_no_match,
        )


def batch_ranges(selection: Selection, cluster: Cluster, wanted: WantedRows = EVERY_ROW) -> list[OffsetRange]:
    """Return the ranges that a batch query reads, one for each partition that may have matching records.

    Args:
        selection: of the query.
        cluster: gets a few requests per topic.
        wanted: what Spark's filters leave of the rows.

    Raises:
        UnknownTopicOrPartitionError: a topic or partition that the options name does not exist.
        KafkaConfigurationError: start and end contradict each other or the cluster.
        DataLossError: records between start and end are gone.
    """
    partitions = selection.partitions(cluster)
    starts = selection.starts(partitions, cluster)
    ends = resolve(selection.end, partitions, cluster, option=selection.end_option, latest_if_no_match=True)
    ranges = [OffsetRange(each, starts[each], ends[each]) for each in partitions]
    for each in ranges:
        if each.size < 0:
            raise KafkaConfigurationError(f"{each.where}: the start {each.first} is after the end {each.end}")
    ranges = [each for each in ranges if wanted.may_have(*each.where)]
    ranges = [_within(each, wanted) for each in _there(selection, ranges, cluster)]
    return [each for each in _since(ranges, cluster, wanted) if each.size > 0]


def _there(selection: Selection, ranges: Sequence[OffsetRange], cluster: Cluster) -> list[OffsetRange]:
    """Clip the ranges to the log. Only offsets can name what it does not have, edges and timestamps
    cannot."""
    loss = DataLoss(selection.fail_on_data_loss)
    partitions = [each.where for each in ranges]
    if isinstance(selection.start, AtOffsets):
        firsts = earliest(cluster, partitions)
        for each in ranges:
            if each.first < firsts[each.where]:
                loss.report(
                    f"{each.where} was to be read from {each.first}, it starts at {firsts[each.where]}"
                )
        ranges = [OffsetRange(e.where, max(e.first, firsts[e.where]), e.end) for e in ranges]
    if isinstance(selection.end, AtOffsets):
        ends = latest_from(cluster, partitions, {e.where: e.end for e in ranges}, selection.patience)
        for each in ranges:
            if each.end > ends[each.where]:
                loss.report(f"{each.where} was to be read up to {each.end}, it ends at {ends[each.where]}")
        ranges = [OffsetRange(e.where, e.first, min(e.end, ends[e.where])) for e in ranges]
    return list(ranges)


def _within(whole: OffsetRange, wanted: WantedRows) -> OffsetRange:
    return OffsetRange(
        whole.where, max(whole.first, wanted.offsets.first), min(whole.end, wanted.offsets.end)
    )


def _since(ranges: Sequence[OffsetRange], cluster: Cluster, wanted: WantedRows) -> list[OffsetRange]:
    """Move the start of each range to its first record that is young enough for the filters.

    Only the start is moved. ListOffsets guarantees that all records before its answer are older than the
    timestamp, in whatever order timestamps are. Records after it may be older again: producers set timestamps
    freely, and with ``LogAppendTime`` the clock of a new leader may lag behind the old one's. So
    ``timestamp < T`` moves no end.
    """
    since_ms = wanted.timestamps_ms.first
    if since_ms <= 0:  # ListOffsets takes negative timestamps for edges
        return list(ranges)
    found: Offsets = offsets_at(cluster, {each.where: since_ms for each in ranges if each.size > 0})
    moved = []
    for each in ranges:
        # No record up to the end of the log is young enough then, and the log has grown at most since the
        # range's end was resolved.
        first = found.get(each.where, NO_MATCH)
        moved.append(
            OffsetRange(each.where, each.end if first == NO_MATCH else max(each.first, first), each.end)
        )
    return moved


WORTH_A_TASK = 250_000
"""Records. With fewer, starting a task costs more than another core gains."""

PIECES_PER_CORE = 2
"""More than one, so that a core that finishes early takes work from the others."""


@attrs.frozen(order=True)
class OffsetRange:
    """A range of offsets of one partition.

    Attributes:
        where: the partition.
        first: the first offset.
        end: the offset after the last.
        topic_id: of the topic that the range was planned for; zeros if unknown.
    """

    where: TopicPartition
    first: int
    end: int
    topic_id: bytes = NO_UUID

    @property
    def size(self) -> int:
        """Number of offsets; a compacted log, or one with transactions, has fewer records."""
        return self.end - self.first


@attrs.frozen
class Splitting:
    """How ranges become tasks.

    Attributes:
        min_partitions: the desired number of tasks, reached approximately; None if any will do.
        max_records: the most records of a task; None for no limit.
        cores: if both are None, large ranges are split so that this many cores have work; None for one task
            per partition.
    """

    min_partitions: int | None = None
    max_records: int | None = None
    cores: int | None = None

    def split(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """Return the non-empty pieces of the ranges, in order.

        ``max_records`` is applied first, then ``min_partitions``, as in Spark's connector.
        """
        filled = [each for each in ranges if each.size > 0]
        if self.min_partitions is None and self.max_records is None:
            return filled if self.cores is None else _split_for_cores(filled, self.cores)
        if self.max_records is not None:
            most = self.max_records
            filled = [piece for each in filled for piece in _divide(each, -(-each.size // most))]
        if self.min_partitions is not None and len(filled) < self.min_partitions:
            filled = _split_to(filled, self.min_partitions)
        return filled


def _split_for_cores(ranges: Sequence[OffsetRange], cores: int) -> list[OffsetRange]:
    """Return pieces of about the same size, each large enough to be worth a task."""
    total = sum(each.size for each in ranges)
    size = max(WORTH_A_TASK, -(-total // (cores * PIECES_PER_CORE)))
    return [piece for each in ranges for piece in _divide(each, max(1, round(each.size / size)))]


def _split_to(ranges: Sequence[OffsetRange], wanted: int) -> list[OffsetRange]:
    """Distribute the wanted number of pieces by size; ranges too small to be split get one each first."""
    total = sum(each.size for each in ranges)
    whole = {each for each in ranges if _share(each.size, total, wanted) == 1}
    large = total - sum(each.size for each in whole)
    left = max(wanted - len(whole), 1)
    return [
        piece
        for each in ranges
        for piece in _divide(each, 1 if each in whole else _share(each.size, large, left))
    ]


def _share(size: int, total: int, wanted: int) -> int:
    return max(math.floor(size / total * wanted + 0.5), 1)  # halves go up, as in Java


def _divide(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    """Return pieces whose sizes differ by one offset at most, larger ones last."""
    pieces, first = [], whole.first
    for left in range(min(parts, whole.size), 0, -1):  # never more pieces than offsets
        end = first + (whole.end - first) // left
        pieces.append(OffsetRange(whole.where, first, end))
        first = end
    return pieces


def rate_limited(limit: int, start: Offsets, latest: Offsets) -> dict[TopicPartition, int]:
    """Return where a trigger of about ``limit`` records ends, with shares in proportion to the backlogs.

    Shares are rounded as in Spark's connector: down, but never to 0, so that a small partition does not
    starve. A trigger may thus take a few records more than the limit.

    Args:
        limit: approximate number of records.
        start: where the trigger begins; a partition that is missing here is taken whole.
        latest: the end offsets.
    """
    backlogs = {each: end - start[each] for each, end in latest.items() if start.get(each, end) < end}
    total = float(sum(backlogs.values()))
    ends = dict(latest)
    for each, backlog in backlogs.items():
        share = limit * (backlog / total)
        taken = math.ceil(share) if share < 1 else math.floor(share)
        ends[each] = min(latest[each], start[each] + taken)
    return ends


def backlog_of(start: Offsets, latest: Offsets) -> int:
    """Return the number of new offsets; partitions whose end went backwards count as 0."""
    return sum(max(0, end - start.get(each, end)) for each, end in latest.items())


TopicIds = Mapping[str, bytes]
"""Ids by topic name. Brokers before Kafka 2.8 have none: a topic then counts as the same for ever."""


class KnowsTopics(Protocol):
    """What planning needs of a cluster; `splashdam.pipeline.clusters.ClusterReader` implements it."""

    def topic_id(self, topic: str) -> bytes:
        """Return the id of an existing topic, ``NO_UUID`` if the broker has no ids."""
        ...


def topic_ids(topics: Iterable[str], cluster: KnowsTopics) -> dict[str, bytes]:
    """Return the ids of the topics that exist; reading one of the others fails by itself."""
    found = {}
    for topic in dict.fromkeys(topics):
        try:
            found[topic] = cluster.topic_id(topic)
        except UnknownTopicOrPartitionError:
            continue
    return found


def made_anew(before: TopicIds, now: TopicIds) -> set[str]:
    """Return the topics that were deleted and created again between two points in time."""
    return {
        topic
        for topic, topic_id in now.items()
        if NO_UUID not in (topic_id, before.get(topic, NO_UUID)) and topic_id != before[topic]
    }


def for_topics(ranges: Sequence[OffsetRange], ids: TopicIds) -> list[OffsetRange]:
    """Return the ranges with the topics' ids, so that a topic that is created again is noticed."""
    return [attrs.evolve(each, topic_id=ids.get(each.where.topic, NO_UUID)) for each in ranges]


logger = logging.getLogger("splashdam.pipeline")


class DataLossError(KafkaError):
    """Records that a query should read are gone: deleted by retention, with their topic, or truncated."""

    remedy = "set the option failOnDataLoss to false to continue with the remaining records"


@attrs.frozen
class DataLoss:
    """What a query does when records are gone: fail, or warn and continue.

    Attributes:
        fails: the option ``failOnDataLoss``.
    """

    fails: bool

    def report(self, what: str) -> None:
        """Report records that are, or may be, gone.

        Raises:
            DataLossError: ``fails`` is set.
        """
        if self.fails:
            raise DataLossError(what)
        logger.warning("%s; continuing because failOnDataLoss is false", what)
