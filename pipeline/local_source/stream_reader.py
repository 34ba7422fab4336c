"""``kafka-local`` as a stream: where a trigger begins and ends, and what its tasks read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from splashdam.model.errors import KafkaConfigurationError
from splashdam.net.clock import Clock, SystemClock
from splashdam.pipeline.local_source.batch_planning import subscribed
from splashdam.pipeline.local_source.initial_offsets import InitialOffsets
from splashdam.pipeline.local_source.options import SourceOptions
from splashdam.pipeline.local_source.planning import rate_limited
from splashdam.pipeline.local_source.positions import Offsets, from_json, to_json
from splashdam.pipeline.local_source.reading import Reading
from splashdam.pipeline.local_source.resolving import latest_from, moves, resolve
from splashdam.pipeline.local_source.stream_planning import (
    Waiting,
    known_to,
    ranges_between,
    with_new_partitions,
)
from splashdam.pipeline.local_source.topic_ids import TopicIds, for_topics, made_anew, topic_ids
from splashdam.pipeline.schema import Columns

if TYPE_CHECKING:
    import pyarrow as pa


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Answers Spark's questions about a stream.

    Nothing depends on ``commit``, which Spark never calls for the last trigger, nor on ``stop``, which it
    does not call at all.

    Args:
        options: of the query.
        columns: those that are read.
        clock: for the wait for enough records.

    Raises:
        KafkaConfigurationError: the stream begins where the answer moves, and has no place to keep it.
    """

    def __init__(self, options: SourceOptions, columns: Columns, clock: Clock | None = None) -> None:
        self._moves = moves(options.start, latest_if_no_match=options.latest_if_no_match)
        if self._moves and options.initial_offsets_location is None:
            raise KafkaConfigurationError(
                "a stream that starts at the latest offsets needs a place to keep them: set the option"
                " initialOffsetsLocation to a directory of this query's own, beside its checkpoint, or"
                f" {options.start_option} to earliest or to offsets. Spark asks more than once where a stream"
                " begins, and records that come in between would be skipped"
            )
        self._options = options
        self._reading = Reading.of(options, columns)
        self._waiting = Waiting(clock or SystemClock(), options.min_offsets, options.max_trigger_delay_ms)
        self._initial: Offsets | None = None
        self._target: Offsets | None = None
        self._latest: Offsets | None = None
        self._topic_ids: TopicIds = {}

    def initialOffset(self) -> dict[str, Any]:
        """Where the stream begins; the same whenever it is asked."""
        if self._initial is None:
            location = self._options.initial_offsets_location
            if location is None:
                self._initial = self._find_initial()
            else:
                self._initial = InitialOffsets(location, self._options.reads).kept(self._find_initial)
        return to_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        """``maxOffsetsPerTrigger``; the least and its delay are seen to in ``latestOffset``, since Spark has
        no limit of both."""
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where a trigger ends that begins at ``start``; ``start`` itself if it waits for more."""
        begin = from_json(start)
        # No partitions are an end, too: topics that come after AvailableNow began are for the next run.
        self._latest = latest = self._find_latest(begin) if self._target is None else self._target
        if not isinstance(limit, ReadMaxRows | ReadMinRows):
            return to_json(latest)
        begin = with_new_partitions(begin, latest, self._reading.cluster())
        # With AvailableNow nothing more comes, and a trigger that waited would end the query.
        if self._target is None and not self._waiting.is_over(begin, latest):
            return start
        return to_json(
            rate_limited(limit.max_rows, begin, latest) if isinstance(limit, ReadMaxRows) else latest
        )

    def prepareForTriggerAvailableNow(self) -> None:
        """Fixes the ends: what comes from now on is left to the next run."""
        self._target = self._find_latest({})

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The ends of the partitions, as far as they are known; for progress reports."""
        return None if self._latest is None else to_json(self._latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """One for each task of a trigger.

        Raises:
            DataLossError: records between start and end are gone, or an end is below its start, and the
                query is to fail then.
        """
        begin, until = from_json(start), from_json(end)
        subscription, cluster = self._options.subscription, self._reading.cluster()
        ids = topic_ids((each.topic for each in until), cluster)
        if begin == self._initial:
            begin = known_to(until, begin, subscription, cluster)
        anew = made_anew(self._topic_ids, ids)
        ranges = ranges_between(begin, until, subscription, cluster, self._reading.loss, anew=anew)
        self._topic_ids = {**self._topic_ids, **ids}
        # One task per partition unless asked otherwise, so that a stream into another topic keeps the order.
        pieces = self._options.splitting(None).split(ranges)
        return [InputPartition(each) for each in for_topics(pieces, ids)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one task."""
        return iter(()) if partition.value is None else self._reading.read(partition.value)

    def _find_initial(self) -> Offsets:
        options, cluster = self._options, self._reading.cluster()
        found = resolve(
            options.start,
            subscribed(options, cluster),
            cluster,
            option=options.start_option,
            latest_if_no_match=options.latest_if_no_match,
        )
        if self._moves and self._target is not None:
            # With AvailableNow the ends are fixed first; the log may have grown since.
            return {each: min(offset, self._target.get(each, offset)) for each, offset in found.items()}
        return found

    def _find_latest(self, known: Offsets) -> Offsets:
        cluster = self._reading.cluster()
        partitions = self._options.subscription.partitions(cluster)
        return latest_from(cluster, partitions, known, self._options.patience)
