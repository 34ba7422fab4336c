"""``kafka-local`` as a stream: where a trigger begins and ends, and what its tasks read.

A stream's first offsets are kept in a file of our own (`InitialOffsets`), so that every answer about them is
the same: Spark asks a source for its first offsets twice before the first trigger, takes the second answer,
and asks again when a query is restarted before that trigger was committed. It tells no Python source where
the checkpoint is, so the file's place is an option.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import attrs
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from splashdam.model.errors import KafkaConfigurationError, SettingText, WrongSettingError
from splashdam.model.values import TopicPartition
from splashdam.net.clock import Clock, SystemClock
from splashdam.pipeline.local_source.options import INITIAL_OFFSETS_LOCATION, SourceOptions
from splashdam.pipeline.local_source.planning import (
    DataLoss,
    OffsetRange,
    TopicIds,
    backlog_of,
    for_topics,
    made_anew,
    rate_limited,
    topic_ids,
)
from splashdam.pipeline.local_source.positions import (
    Offsets,
    earliest,
    from_json,
    in_order,
    latest_from,
    moves,
    to_json,
)
from splashdam.pipeline.local_source.reading import Reading
from splashdam.pipeline.local_source.subscriptions import Cluster, Subscription
from splashdam.pipeline.schema import Columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileSystem


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark's reader of a stream.

    Nothing depends on ``commit``, which Spark never calls for the last trigger, nor on ``stop``, which it
    does not call at all.

    Args:
        options: of the query.
        columns: the columns to read.
        clock: for ``maxTriggerDelay``.
        output: what a task yields of the records it reads; by default the records themselves. It travels to
            the workers.

    Raises:
        KafkaConfigurationError: the stream begins at a position that moves, and has no place to keep its
            first offsets.
    """

    def __init__(
        self,
        options: SourceOptions,
        columns: Columns,
        clock: Clock | None = None,
        output: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]] = iter,
    ) -> None:
        selection = options.selection
        self._moves = moves(selection.start, latest_if_no_match=selection.latest_if_no_match)
        if self._moves and options.initial_offsets_location is None:
            raise KafkaConfigurationError(
                "a stream that starts at the latest offsets needs a place to keep them: set the option"
                " initialOffsetsLocation to a directory of this query's own, beside its checkpoint, or"
                f" {selection.start_option} to earliest or to offsets. Spark asks more than once where a"
                " stream begins, and records that come in between would be skipped"
            )
        self._options = options
        self._reading = Reading.of(options, columns)
        self._output = output
        self._waiting = Waiting(clock or SystemClock(), options.min_offsets, options.max_trigger_delay_ms)
        self._initial: Offsets | None = None
        self._target: Offsets | None = None
        self._latest: Offsets | None = None
        self._topic_ids: TopicIds = {}

    def initialOffset(self) -> dict[str, Any]:
        """Return where the stream begins, the same at every call."""
        if self._initial is None:
            location = self._options.initial_offsets_location
            if location is None:
                self._initial = self._find_initial()
            else:
                self._initial = InitialOffsets(location, self._options.reads).kept(self._find_initial)
        return to_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return ``maxOffsetsPerTrigger``, else ``minOffsetsPerTrigger``. Spark has no limit with both, so
        ``latestOffset`` applies the minimum and its delay."""
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where a trigger that begins at ``start`` ends: ``start`` itself if it waits for more
        records."""
        begin = from_json(start)
        # A target without partitions counts: topics created after AvailableNow began are left to the next
        # run.
        self._latest = latest = self._find_latest(begin) if self._target is None else self._target
        if not isinstance(limit, ReadMaxRows | ReadMinRows):
            return to_json(latest)
        begin = with_new_partitions(begin, latest, self._reading.cluster())
        # With AvailableNow no records are added to the target, and a trigger that waited would end the query.
        if self._target is None and not self._waiting.is_over(begin, latest):
            return start
        return to_json(
            rate_limited(limit.max_rows, begin, latest) if isinstance(limit, ReadMaxRows) else latest
        )

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end offsets: later records are left to the next run."""
        self._target = self._find_latest({})

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the end offsets as of the last trigger, for progress reports."""
        return None if self._latest is None else to_json(self._latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of a trigger.

        Raises:
            DataLossError: records between start and end are gone, or an end is below its start, and
                ``failOnDataLoss`` is set.
        """
        begin, until = from_json(start), from_json(end)
        subscription, cluster = self._options.selection.subscription, self._reading.cluster()
        ids = topic_ids((each.topic for each in until), cluster)
        # Spark may have asked for the first offsets again after the end was fixed.
        if begin == self._initial:
            begin = known_to(until, begin, subscription, cluster)
        # Between triggers of one run: Spark's checkpoint has offsets, but no topic ids.
        anew = made_anew(self._topic_ids, ids)
        ranges = ranges_between(begin, until, subscription, cluster, self._reading.loss, anew=anew)
        self._topic_ids = {**self._topic_ids, **ids}
        # By default one task per partition, so that a stream into another topic keeps the order.
        pieces = self._options.splitting(None).split(ranges)
        return [InputPartition(each) for each in for_topics(pieces, ids)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task, or what ``output`` makes of them."""
        return iter(()) if partition.value is None else self._output(self._reading.read(partition.value))

    def _find_initial(self) -> Offsets:
        selection, cluster = self._options.selection, self._reading.cluster()
        found = selection.starts(selection.partitions(cluster), cluster)
        if self._moves and self._target is not None:
            # AvailableNow fixes the ends first, and the log may have grown since.
            return {each: min(offset, self._target.get(each, offset)) for each, offset in found.items()}
        return found

    def _find_latest(self, known: Offsets) -> Offsets:
        cluster = self._reading.cluster()
        partitions = self._options.selection.subscription.partitions(cluster)
        return latest_from(cluster, partitions, known, self._options.selection.patience)


_LOCATION = INITIAL_OFFSETS_LOCATION.name
_FILE = "initial-offsets.json"
_VERSION = 1


@attrs.frozen
class InitialOffsets:
    """The file with the first offsets of one query.

    Attributes:
        location: a directory, by path or URI (``s3://…``); one per query, like its checkpoint.
        reads: the options that say what the query reads; the file of another query is refused.
    """

    location: str
    reads: str

    def kept(self, find: Callable[[], Offsets]) -> Offsets:
        """Return the offsets in the file; if there is no file, find the offsets and write it.

        Args:
            find: asks the cluster.

        Raises:
            KafkaConfigurationError: the file belongs to another query, or has another format.
            OSError: the file cannot be read or written.
        """
        kept = self.found()
        if kept is not None:
            return kept
        files, directory = _opened(self.location)
        path = f"{directory}/{_FILE}"
        offsets = find()
        files.create_dir(directory, recursive=True)
        text = json.dumps({"version": _VERSION, "reads": self.reads, "offsets": to_json(offsets)})
        new = f"{path}.{os.getpid()}.new"
        with files.open_output_stream(new) as stream:
            stream.write(text.encode())
        files.move(new, path)  # atomic: a crash leaves no partial file
        return offsets

    def found(self) -> Offsets | None:
        """Return the offsets in the file, None if there is no file.

        Raises:
            KafkaConfigurationError: the file belongs to another query, or has another format; or its place
                cannot be looked into.
            OSError: the file cannot be read.
        """
        from pyarrow import ArrowException

        files, directory = _opened(self.location)
        path = f"{directory}/{_FILE}"
        try:
            is_there = _is_there(files, path)
        except (ArrowException, OSError) as error:
            raise _unreachable(self.location, error) from error
        return self._read(files, path) if is_there else None

    def _read(self, files: FileSystem, path: str) -> Offsets:
        with files.open_input_stream(path) as stream:
            text = stream.read()
        try:
            kept: dict[str, Any] = json.loads(text)
            version, reads, offsets = kept["version"], kept["reads"], kept["offsets"]
        except (ValueError, KeyError, TypeError):
            raise KafkaConfigurationError(
                f"{path} is not a file of initial offsets: delete it if the query has no checkpoint yet"
            ) from None
        if version != _VERSION:
            raise KafkaConfigurationError(f"{path} has format version {version}; {_VERSION} is supported")
        if reads != self.reads:
            raise KafkaConfigurationError(
                SettingText(
                    "{path} belongs to a query that reads {reads}, this one reads {now}:"
                    " give each query its own {0}",
                    _LOCATION,
                    path=path,
                    reads=reads,
                    now=self.reads,
                )
            )
        return from_json(offsets)


def _opened(location: str) -> tuple[FileSystem, str]:
    from pyarrow import ArrowException
    from pyarrow.fs import FileSystem, FSSpecHandler, LocalFileSystem, PyFileSystem

    if "://" not in location:
        return LocalFileSystem(), os.path.abspath(location)
    try:
        files, path = FileSystem.from_uri(location)
    except (ArrowException, ValueError, OSError) as by_arrow:  # of Azure's store an ArrowException alone
        # Not a scheme of Arrow's own, or a store that it cannot reach: fsspec's packages have settings of
        # their own, such as another endpoint.
        try:
            from fsspec.core import url_to_fs

            other, path = url_to_fs(location)
        except (ImportError, ValueError, OSError) as error:
            if not isinstance(by_arrow, ValueError):
                raise _unreachable(location, by_arrow) from by_arrow
            raise WrongSettingError(_LOCATION, str(error), given=repr(location)) from error
        files = PyFileSystem(FSSpecHandler(other))
    return files, path.rstrip("/")


def _unreachable(location: str, error: Exception) -> WrongSettingError:
    said = " ".join(str(error).split()).rstrip(".")
    problem = (
        f"cannot be looked into: {said}. What to do: check its name, the network, and region and keys in the"
        " environment"
    )
    return WrongSettingError(_LOCATION, problem, given=repr(location))


def _is_there(files: FileSystem, path: str) -> bool:
    from pyarrow.fs import FileType

    return files.get_file_info(path).type is FileType.File


@attrs.define
class Waiting:
    """``minOffsetsPerTrigger`` and ``maxTriggerDelay``: a trigger waits for enough records, but not too long.

    Attributes:
        clock: measures the delay.
        min_offsets: how many new offsets are enough; None if any number is.
        max_delay_ms: the longest wait since the last trigger that went ahead.
    """

    clock: Clock
    min_offsets: int | None
    max_delay_ms: float
    _last_ms: float | None = attrs.field(default=None, init=False)

    def is_over(self, start: Offsets, latest: Offsets) -> bool:
        """Whether the trigger goes ahead; the first one always does.

        Args:
            start: where it begins, new partitions included.
            latest: the end offsets.
        """
        now_ms = self.clock.now_ms()
        is_early = self._last_ms is not None and now_ms - self._last_ms < self.max_delay_ms
        if is_early and backlog_of(start, latest) < (self.min_offsets or 0):
            return False
        self._last_ms = now_ms
        return True


def with_new_partitions(start: Offsets, latest: Offsets, cluster: Cluster) -> dict[TopicPartition, int]:
    """Return where a trigger begins: new partitions begin at their first offset."""
    return in_order({**earliest(cluster, [each for each in latest if each not in start]), **start})


def known_to(
    end: Offsets, initial: Offsets, subscription: Subscription, cluster: Cluster
) -> dict[TopicPartition, int]:
    """Return a stream's first offsets without partitions that were added after the first trigger's end was
    fixed.

    When Spark asks again before the first trigger is committed, the answer may have partitions that the
    trigger's end lacks. They are not lost: the next trigger treats them as new.
    """
    added = {each for each in initial if each not in end}
    added &= set(subscription.partitions(cluster)) if added else added
    return {each: offset for each, offset in initial.items() if each not in added}


def ranges_between(
    start: Offsets,
    end: Offsets,
    subscription: Subscription,
    cluster: Cluster,
    loss: DataLoss,
    *,
    anew: Collection[str] = (),
) -> list[OffsetRange]:
    """Return the ranges between the ends of two triggers.

    Partitions that only the second has are new, and are read from their first offset. Those that only the
    first has, or that do not exist any more, are gone.

    Args:
        start: the end of the previous trigger.
        end: the end of this trigger.
        subscription: of the query.
        cluster: tells which partitions exist, and their first offsets.
        loss: what to do when records are gone.
        anew: topics that were deleted and created again since the previous trigger; their partitions are new.

    Raises:
        DataLossError: records are gone, or an end is below its start, and ``loss`` fails the query.
    """
    replaced = sorted({each.topic for each in start}.intersection(anew))
    if replaced:
        loss.report(f"deleted and created again since they were last read: {', '.join(replaced)}")
        start = {each: offset for each, offset in start.items() if each.topic not in replaced}
    gone = [each for each in start if each not in end]
    new = [each for each in end if each not in start]
    firsts = _firsts(new, subscription, cluster)
    gone += [each for each in new if each not in firsts]
    if gone:
        loss.report(f"no longer there: {', '.join(map(str, sorted(gone)))}")
    for where, first in firsts.items():
        if first > 0:
            loss.report(f"{where} is new and starts at {first} instead of 0")
    begins = {**start, **firsts}
    ranges = [OffsetRange(each, begins[each], offset) for each, offset in end.items() if each in begins]
    for each in ranges:
        if each.size < 0:
            loss.report(f"{each.where} was read up to {each.first} and now ends at {each.end}")
    return [each for each in ranges if each.size > 0]


def _firsts(
    new: Sequence[TopicPartition], subscription: Subscription, cluster: Cluster
) -> dict[TopicPartition, int]:
    if not new:
        return {}
    there = set(subscription.partitions(cluster))
    return earliest(cluster, [each for each in new if each in there])
