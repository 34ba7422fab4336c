"""The options of ``kafka-local``: those of Spark's ``kafka`` format, checked against each other."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

import attrs

from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.options import MAX_INT
from splashdam.net.cluster.fetch_client import EARLIEST, LATEST
from splashdam.pipeline.clusters import ClusterConfig
from splashdam.pipeline.local_source.planning import Selection, Splitting
from splashdam.pipeline.local_source.positions import (
    AtEdge,
    AtOffsets,
    AtTimestamps,
    Patience,
    Position,
    parse_assignment,
    parse_position,
    parse_timestamp,
    parse_timestamps,
)
from splashdam.pipeline.local_source.subscriptions import (
    Assigned,
    Subscription,
    parse_pattern,
    parse_topics,
)
from splashdam.pipeline.options import Option, OptionParser, Options, boolean, integer, one_of, text, time_ms

logger = logging.getLogger("splashdam.pipeline")

NAME: Final = "kafka-local"

SUBSCRIBE = Option("subscribe", parse_topics, None)
ASSIGN = Option("assign", lambda given: Assigned(parse_assignment(given)), None)
SUBSCRIBE_PATTERN = Option("subscribePattern", parse_pattern, None)
STARTING_TIMESTAMP = Option("startingTimestamp", parse_timestamp, None)
STARTING_BY_TIMESTAMP = Option("startingOffsetsByTimestamp", parse_timestamps, None)
STARTING_OFFSETS = Option("startingOffsets", parse_position, None)
NO_MATCH_STRATEGY = Option("startingOffsetsByTimestampStrategy", one_of("error", "latest"), "error")
ENDING_TIMESTAMP = Option("endingTimestamp", parse_timestamp, None)
ENDING_BY_TIMESTAMP = Option("endingOffsetsByTimestamp", parse_timestamps, None)
ENDING_OFFSETS = Option("endingOffsets", parse_position, None)
MAX_OFFSETS_PER_TRIGGER = Option("maxOffsetsPerTrigger", integer(), None)
MIN_OFFSETS_PER_TRIGGER = Option("minOffsetsPerTrigger", integer(), None)
MAX_TRIGGER_DELAY = Option("maxTriggerDelay", time_ms, 15 * 60_000)
MIN_PARTITIONS = Option("minPartitions", integer(1, MAX_INT), None)
MAX_RECORDS_PER_PARTITION = Option("maxRecordsPerPartition", integer(), None)
FAIL_ON_DATA_LOSS = Option("failOnDataLoss", boolean, True)
INCLUDE_HEADERS = Option("includeHeaders", boolean, False)
GROUP_ID_PREFIX = Option("groupIdPrefix", text, None)
POLL_TIMEOUT_MS = Option("kafkaConsumer.pollTimeoutMs", integer(1, MAX_INT), None)
NUM_RETRIES = Option("fetchOffset.numRetries", integer(1, MAX_INT), 3)
RETRY_INTERVAL_MS = Option("fetchOffset.retryIntervalMs", integer(0, MAX_INT), 10)
INITIAL_OFFSETS_LOCATION = Option("initialOffsetsLocation", text, None)
"""Not an option of Spark's connector: a directory in which a stream keeps its first offsets. Spark tells no
Python source where the checkpoint is."""

SUBSCRIPTIONS: tuple[Option[Any], ...] = (SUBSCRIBE, ASSIGN, SUBSCRIBE_PATTERN)
STARTS: tuple[Option[Any], ...] = (STARTING_TIMESTAMP, STARTING_BY_TIMESTAMP, STARTING_OFFSETS)
ENDS: tuple[Option[Any], ...] = (ENDING_TIMESTAMP, ENDING_BY_TIMESTAMP, ENDING_OFFSETS)
"""In order of precedence."""
_STREAM_ONLY: tuple[Option[Any], ...] = (
    MAX_OFFSETS_PER_TRIGGER,
    MIN_OFFSETS_PER_TRIGGER,
    MAX_TRIGGER_DELAY,
    INITIAL_OFFSETS_LOCATION,
)
_WITHOUT_GROUPS: tuple[Option[Any], ...] = (GROUP_ID_PREFIX,)

_PARSER = OptionParser(
    NAME,
    (
        *SUBSCRIPTIONS,
        *STARTS,
        NO_MATCH_STRATEGY,
        *ENDS,
        *_STREAM_ONLY,
        MIN_PARTITIONS,
        MAX_RECORDS_PER_PARTITION,
        FAIL_ON_DATA_LOSS,
        INCLUDE_HEADERS,
        GROUP_ID_PREFIX,
        POLL_TIMEOUT_MS,
        NUM_RETRIES,
        RETRY_INTERVAL_MS,
    ),
)


@attrs.frozen(kw_only=True)
class SourceOptions:
    """What a query reads, and how.

    Attributes:
        selection: which records.
        reads: the options that name subscription and start, as text.
        max_offsets: approximate limit per trigger; None for no limit.
        min_offsets: a trigger waits for so many new offsets; None for no wait.
        max_trigger_delay_ms: the longest such wait.
        min_partitions: see `Splitting`.
        max_records: see `Splitting`.
        include_headers: whether there is a column ``headers``.
        initial_offsets_location: where a stream keeps its first offsets.
        config: the cluster, and the isolation level.
    """

    selection: Selection
    reads: str
    max_offsets: int | None
    min_offsets: int | None
    max_trigger_delay_ms: int
    min_partitions: int | None
    max_records: int | None
    include_headers: bool
    initial_offsets_location: str | None
    config: ClusterConfig

    def splitting(self, cores: int | None) -> Splitting:
        """Return how ranges become tasks; for ``cores`` see `Splitting`."""
        return Splitting(self.min_partitions, self.max_records, cores)


def includes_headers(given: Mapping[str, str]) -> bool:
    """Whether ``includeHeaders`` is set. Only the names of the other options are checked."""
    return _PARSER.parse(given)[INCLUDE_HEADERS]


def source_options(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Parse and check the options of a query.

    Args:
        given: as ``DataSource.options`` has them.
        streaming: whether the query is a stream.

    Raises:
        KafkaConfigurationError: an option is unknown, missing, illegal, or contradicts another one.
    """
    options = _PARSER.parse(given)
    subscription = _subscription(options)
    start, start_option = first_given(options, STARTS, AtEdge(LATEST if streaming else EARLIEST))
    end, end_option = first_given(options, ENDS, AtEdge(LATEST))
    if streaming:
        _check_stream(options)
    else:
        _check_batch(options, start, end)
    for each in _WITHOUT_GROUPS:
        if options.is_given(each):
            logger.warning("%s has no effect: kafka-local reads without a consumer group", each.name)
    selection = Selection(
        subscription=subscription,
        start=start,
        start_option=start_option,
        end=end,
        end_option=end_option,
        latest_if_no_match=options[NO_MATCH_STRATEGY] == "latest",
        fail_on_data_loss=options[FAIL_ON_DATA_LOSS],
        patience=Patience(options[NUM_RETRIES], options[RETRY_INTERVAL_MS]),
    )
    return SourceOptions(
        selection=selection,
        reads=_reads(given),
        max_offsets=options[MAX_OFFSETS_PER_TRIGGER],
        min_offsets=options[MIN_OFFSETS_PER_TRIGGER],
        max_trigger_delay_ms=options[MAX_TRIGGER_DELAY],
        min_partitions=options[MIN_PARTITIONS],
        max_records=options[MAX_RECORDS_PER_PARTITION],
        include_headers=options[INCLUDE_HEADERS],
        initial_offsets_location=options[INITIAL_OFFSETS_LOCATION],
        config=_config(options),
    )


def _config(options: Options) -> ClusterConfig:
    timeout_ms = options[POLL_TIMEOUT_MS]
    patience = {} if timeout_ms is None else {"default.api.timeout.ms": str(timeout_ms)}
    return ClusterConfig.from_options({**patience, **options.kafka})


def _reads(given: Mapping[str, str]) -> str:
    texts = {name.lower(): value for name, value in given.items()}
    named = [each.name for each in (*SUBSCRIPTIONS, *STARTS) if each.name.lower() in texts]
    return ", ".join(f"{name}={texts[name.lower()]}" for name in named)


def _subscription(options: Options) -> Subscription:
    given = [each for each in SUBSCRIPTIONS if options.is_given(each)]
    names = ", ".join(each.name for each in SUBSCRIPTIONS)
    if not given:
        raise KafkaConfigurationError(
            f"{NAME}: one of the options {names} must be given. CREATE TABLE … USING loses options: create a"
            " temporary view instead, or read with .option(…)"
        )
    if len(given) > 1:
        both = " and ".join(each.name for each in given)
        raise KafkaConfigurationError(f"{NAME}: only one of the options {names} may be given, not {both}")
    found: Subscription = options[given[0]]
    return found


def first_given(options: Options, which: tuple[Option[Any], ...], default: Position) -> tuple[Position, str]:
    """Return the position of the first of several options that is given, and the option's name."""
    for each in which:
        if options.is_given(each):
            return options[each], each.name
    return default, which[-1].name


def _check_stream(options: Options) -> None:
    for each in ENDS:
        if options.is_given(each):
            raise KafkaConfigurationError(f"{NAME}: {each.name} is for batch queries; a stream has no end")
    least, most = options[MIN_OFFSETS_PER_TRIGGER], options[MAX_OFFSETS_PER_TRIGGER]
    if least is not None and most is not None and least > most:
        raise KafkaConfigurationError(
            f"{NAME}: minOffsetsPerTrigger={least} is more than maxOffsetsPerTrigger={most}"
        )


def _check_batch(options: Options, start: Position, end: Position) -> None:
    for each in _STREAM_ONLY:
        if options.is_given(each):
            logger.warning("%s is ignored: it is for streams", each.name)
    check_edges(NAME, start, end)
    _check_order(start, end)


def check_edges(source: str, start: Position, end: Position) -> None:
    """Refuse a batch query that starts at the latest offset, or ends at the earliest.

    Raises:
        KafkaConfigurationError: it does.
    """
    if _names_edge(start, LATEST):
        raise KafkaConfigurationError(f"{source}: a batch query cannot start at the latest offset (-1)")
    if _names_edge(end, EARLIEST):
        raise KafkaConfigurationError(f"{source}: a batch query cannot end at the earliest offset (-2)")


def _names_edge(position: Position, edge: int) -> bool:
    if isinstance(position, AtOffsets):
        return edge in position.offsets.values()
    return position == AtEdge(edge)


def _check_order(start: Position, end: Position) -> None:
    """Compare start and end if both are offsets, or both timestamps by partition: no cluster is needed for
    that."""
    if isinstance(start, AtOffsets) and isinstance(end, AtOffsets):
        firsts, ends = start.offsets, end.offsets
    elif isinstance(start, AtTimestamps) and isinstance(end, AtTimestamps):
        firsts, ends = start.timestamps_ms, end.timestamps_ms
    else:
        return
    if firsts.keys() != ends.keys():
        differ = ", ".join(map(str, sorted(firsts.keys() ^ ends.keys())))
        raise KafkaConfigurationError(f"{NAME}: start and end name different partitions: {differ}")
    for where, first in firsts.items():
        if 0 <= ends[where] < first:
            raise KafkaConfigurationError(
                f"{NAME}: {where} starts at {first}, which is after its end {ends[where]}"
            )
