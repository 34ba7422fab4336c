"""What a stream reads of topics: ranges of offsets, by the cluster and the checkpoint, with their sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import attrs

from splashdam.model.broker_errors import BrokerResponseError
from splashdam.model.errors import KafkaConfigurationError, WrongSettingError
from splashdam.model.values import TopicPartition
from splashdam.net.admin.log_dirs import describe_log_dirs
from splashdam.net.cluster.fetch_client import EARLIEST, LATEST
from splashdam.pipeline.clusters import Clients, ClusterReader, reader_for
from splashdam.pipeline.local_source.options import SourceOptions
from splashdam.pipeline.local_source.planning import DataLoss, OffsetRange
from splashdam.pipeline.local_source.positions import (
    AtEdge,
    AtOffsets,
    Offsets,
    earliest,
    edges,
    from_json,
    in_order,
    latest_from,
)
from splashdam.pipeline.local_source.stream_reader import InitialOffsets, StreamReader
from splashdam.pipeline.local_source.subscriptions import Cluster
from splashdam.pipeline.plans.checkpoints import Progress
from splashdam.pipeline.plans.plan import Entry, counted, shown_size, table_of
from splashdam.pipeline.schema import all_columns


class SizedCluster(Cluster, Protocol):
    """What a plan asks of a cluster."""

    def sizes(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int] | None:
        """Return the bytes of each partition's segments on its largest replica; None if the cluster does not
        tell this client."""
        ...


class AskedCluster:
    """The cluster of a query's options.

    Args:
        reader: this process's connections.
    """

    def __init__(self, reader: ClusterReader) -> None:
        self._reader = reader

    def topics(self) -> list[str]:
        return self._reader.topics()

    def partitions(self, topic: str) -> list[int]:
        return self._reader.partitions(topic)

    def offsets(self, topic: str, partitions: Sequence[int], timestamp: int) -> dict[int, int]:
        return self._reader.offsets(topic, partitions, timestamp)

    def sizes(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int] | None:
        async def ask(clients: Clients) -> dict[TopicPartition, int]:
            found: dict[TopicPartition, int] = {}
            for directory in await describe_log_dirs(clients.cluster, partitions):
                for replica in directory.replicas:
                    where = replica.topic_partition
                    if not replica.is_future:
                        found[where] = max(found.get(where, 0), replica.size_bytes)
            return found

        try:
            return self._reader.ask(ask)
        except BrokerResponseError:  # DESCRIBE on the cluster is a right of its own
            return None


@attrs.frozen
class Backlog:
    """What a stream has to read now.

    Attributes:
        ranges: of every partition, the empty ones as well.
        size_bytes: of each partition's range, about; None if the cluster does not tell.
        begins: where a new query begins, in words; "" if it continues.
    """

    ranges: Sequence[OffsetRange]
    size_bytes: Mapping[TopicPartition, int] | None
    begins: str

    @property
    def records(self) -> int:
        return sum(each.size for each in self.ranges)

    @property
    def total_bytes(self) -> int | None:
        return None if self.size_bytes is None else sum(self.size_bytes.values())

    def batches(self, max_records: int | None) -> int:
        """Return how many micro-batches read it, about."""
        return -(-self.records // (max_records or max(self.records, 1)))

    def entries(self) -> list[Entry]:
        """The lines of a plan: one for each topic, with its partitions."""
        by_topic: dict[str, list[OffsetRange]] = {}
        for each in self.ranges:
            by_topic.setdefault(each.where.topic, []).append(each)
        return [self._entry(topic, ranges) for topic, ranges in by_topic.items()]

    def _entry(self, topic: str, ranges: Sequence[OffsetRange]) -> Entry:
        total = (
            None if self.size_bytes is None else sum(self.size_bytes.get(each.where, 0) for each in ranges)
        )
        rows = [
            (
                str(each.where),
                f"{each.first:,} to {each.end:,}",
                counted(each.size, "offset"),
                *(() if self.size_bytes is None else (shown_size(self.size_bytes.get(each.where, 0)),)),
            )
            for each in ranges
        ]
        return Entry(
            f"topic {topic}: {counted(sum(each.size for each in ranges), 'offset')} in "
            f"{counted(len(ranges), 'partition')}, about {shown_size(total)}{self.begins}",
            table_of(rows),
        )


def backlog(options: SourceOptions, progress: Progress, cluster: SizedCluster | None = None) -> Backlog:
    """Return what a stream would read, after the checks that it would fail by later.

    Args:
        options: of the query.
        progress: in its checkpoint.
        cluster: to ask; by default that of the options.

    Raises:
        UnknownTopicOrPartitionError: a topic does not exist.
        KafkaConfigurationError: the checkpoint is of a query that reads other topics, or the start does not
            fit the cluster.
        DataLossError: records that the query would read next are gone.
    """
    StreamReader(options, all_columns(options.include_headers))  # a start that moves needs a place to be kept
    if cluster is None:
        cluster = AskedCluster(reader_for(options.config, options.config.isolation_level))
    selection = options.selection
    partitions = selection.partitions(cluster)
    firsts = earliest(cluster, partitions)
    known, begins = _begin(options, progress, partitions, firsts, cluster)
    until = from_json(progress.until) if progress.until is not None else {}
    ends = latest_from(cluster, partitions, {**known, **until}, selection.patience)
    begin = in_order({**firsts, **known})
    _check_loss(DataLoss(selection.fail_on_data_loss), known, firsts, ends)
    ranges = [OffsetRange(each, begin[each], max(begin[each], ends[each])) for each in partitions]
    return Backlog(ranges, _share(ranges, firsts, ends, cluster.sizes(partitions)), begins)


def _begin(
    options: SourceOptions,
    progress: Progress,
    partitions: Sequence[TopicPartition],
    firsts: Offsets,
    cluster: Cluster,
) -> tuple[Offsets, str]:
    """Return where the query begins, and that in words."""
    if progress.begin is not None:
        kept = from_json(progress.begin)
        read, now = sorted({each.topic for each in kept}), sorted({each.topic for each in partitions})
        if strange := set(read) - set(now):
            raise KafkaConfigurationError(
                f"checkpoint {progress.place} is of a query that reads {', '.join(read)}, and this one reads "
                f"{', '.join(now)}: give each query a checkpoint of its own"
                + (f", or name {', '.join(sorted(strange))} as well" if set(read) & set(now) else "")
            )
        return kept, ""
    location = options.initial_offsets_location
    kept_first = None if location is None else InitialOffsets(location, options.reads).found()
    if kept_first is not None:
        return kept_first, ", from the first offsets that are kept"
    selection, start = options.selection, options.selection.start
    where = selection.start_option
    if isinstance(start, AtEdge):
        where = "the earliest offsets" if start.edge == EARLIEST else "the latest offsets"
    elif isinstance(start, AtOffsets) and selection.fail_on_data_loss:
        _check_start(start, firsts, edges(cluster, partitions, LATEST))
    provided = " if the checkpoint is new" if progress.is_unseen else ""
    return selection.starts(partitions, cluster), f", from {where}{provided}"


def _check_start(start: AtOffsets, firsts: Offsets, ends: Offsets) -> None:
    """Refuse a start outside of a log, which a stream would take for lost records."""
    for where, offset in start.offsets.items():
        if offset > ends.get(where, offset):
            end = ends[where]
            problem = f"its log ends at {end}. Give {end} or less, or -1, which is the end"
            raise WrongSettingError("startingOffsets", problem, given=f"{offset} for {where}")
        if 0 <= offset < firsts.get(where, offset):
            first = firsts[where]
            problem = f"its log begins at {first}. Give {first} or more, or -2, which is the beginning"
            raise WrongSettingError("startingOffsets", problem, given=f"{offset} for {where}")


def _check_loss(loss: DataLoss, known: Offsets, firsts: Offsets, ends: Offsets) -> None:
    for where, offset in known.items():
        if where not in ends:
            loss.report(f"{where} does not exist any more")
        elif offset > ends[where]:
            loss.report(f"{where} was read up to {offset} and now ends at {ends[where]}")
        elif offset < firsts[where]:
            loss.report(f"{where} was read up to {offset} and now begins at {firsts[where]}")


def _share(
    ranges: Sequence[OffsetRange], firsts: Offsets, ends: Offsets, sizes: Mapping[TopicPartition, int] | None
) -> dict[TopicPartition, int] | None:
    """Return the bytes of each range, as if all records of a partition had one size."""
    if sizes is None:
        return None
    return {
        each.where: sizes.get(each.where, 0) * each.size // max(ends[each.where] - firsts[each.where], 1)
        for each in ranges
    }
