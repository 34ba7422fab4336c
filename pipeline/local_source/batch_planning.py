"""What a batch query reads: from its options, the cluster's answers and Spark's filters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from splashdam.model.broker_errors import UnknownTopicOrPartitionError
from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.values import TopicPartition
from splashdam.pipeline.filters import EVERY_ROW, WantedRows
from splashdam.pipeline.local_source.data_loss import DataLoss
from splashdam.pipeline.local_source.planning import OffsetRange, Splitting
from splashdam.pipeline.local_source.positions import AtOffsets, Offsets, Position
from splashdam.pipeline.local_source.resolving import (
    NO_MATCH,
    Patience,
    earliest,
    latest_from,
    offsets_at,
    resolve,
)
from splashdam.pipeline.local_source.subscriptions import Cluster, Subscription, missing


class BatchOptions(Protocol):
    """What planning a batch asks of options. Those of every source are such."""

    @property
    def subscription(self) -> Subscription:
        """Which topics or partitions."""
        ...

    @property
    def start(self) -> Position:
        """Where it begins."""
        ...

    @property
    def start_option(self) -> str:
        """The option that says so, for errors."""
        ...

    @property
    def end(self) -> Position:
        """Where it ends."""
        ...

    @property
    def end_option(self) -> str:
        """The option that says so."""
        ...

    @property
    def latest_if_no_match(self) -> bool:
        """A partition without a record as young as the starting timestamp begins at its end."""
        ...

    @property
    def fail_on_data_loss(self) -> bool:
        """Whether lost records fail the query."""
        ...

    @property
    def patience(self) -> Patience:
        """With ends that a broker does not know yet."""
        ...

    def splitting(self, cores: int | None) -> Splitting:
        """How ranges become tasks."""
        ...


def batch_ranges(
    options: BatchOptions, cluster: Cluster, wanted: WantedRows = EVERY_ROW, cores: int | None = None
) -> list[OffsetRange]:
    """The ranges that tasks read, which are none where nothing can match.

    Args:
        options: of the query.
        cluster: what is asked; a few questions per topic.
        wanted: what is left of the rows by filters.
        cores: see `Splitting`.

    Raises:
        UnknownTopicOrPartitionError: a topic or partition that the options name is not there.
        KafkaConfigurationError: start and end contradict each other or the cluster.
        DataLossError: records between start and end are gone.
    """
    partitions = subscribed(options, cluster)
    starts = resolve(
        options.start,
        partitions,
        cluster,
        option=options.start_option,
        latest_if_no_match=options.latest_if_no_match,
    )
    ends = resolve(options.end, partitions, cluster, option=options.end_option, latest_if_no_match=True)
    ranges = [OffsetRange(each, starts[each], ends[each]) for each in partitions]
    for each in ranges:
        if each.size < 0:
            raise KafkaConfigurationError(f"{each.where}: the start {each.first} is after the end {each.end}")
    ranges = [each for each in ranges if wanted.may_have(*each.where)]
    ranges = [_within(each, wanted) for each in _there(options, ranges, cluster)]
    return options.splitting(cores).split(_since(ranges, cluster, wanted))


def subscribed(options: BatchOptions, cluster: Cluster) -> list[TopicPartition]:
    """The partitions that a query reads.

    Raises:
        UnknownTopicOrPartitionError: one that the options name is not there.
    """
    partitions = options.subscription.partitions(cluster)
    gone = missing(options.subscription, partitions)
    if gone:
        raise UnknownTopicOrPartitionError(f"not in the cluster: {', '.join(gone)}")
    return partitions


def _there(options: BatchOptions, ranges: Sequence[OffsetRange], cluster: Cluster) -> list[OffsetRange]:
    """The ranges without offsets that the log does not have; edges and times cannot name such."""
    loss = DataLoss(options.fail_on_data_loss)
    partitions = [each.where for each in ranges]
    if isinstance(options.start, AtOffsets):
        firsts = earliest(cluster, partitions)
        for each in ranges:
            if each.first < firsts[each.where]:
                loss.report(
                    f"{each.where} was to be read from {each.first}, it starts at {firsts[each.where]}"
                )
        ranges = [OffsetRange(e.where, max(e.first, firsts[e.where]), e.end) for e in ranges]
    if isinstance(options.end, AtOffsets):
        ends = latest_from(cluster, partitions, {e.where: e.end for e in ranges}, options.patience)
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
    """The ranges from the first record on that is young enough.

    Only the beginning is moved. That everything before the answer of a cluster is older than what was asked
    for holds in whatever order timestamps are. What comes after may be older again: producers set timestamps
    as they like, and with ``LogAppendTime`` the clock of a new leader may be behind that of the old one. So
    ``timestamp < T`` moves no end.

    No match says that nothing is young enough up to the end of the log, which is not before that of the
    range, since that was found out before.
    """
    since_ms = wanted.timestamps_ms.first
    if since_ms <= 0:  # of older records, and of those without a timestamp, a cluster cannot be asked
        return list(ranges)
    found: Offsets = offsets_at(cluster, {each.where: since_ms for each in ranges if each.size > 0})
    moved = []
    for each in ranges:
        first = found.get(each.where, NO_MATCH)
        moved.append(
            OffsetRange(each.where, each.end if first == NO_MATCH else max(each.first, first), each.end)
        )
    return moved
