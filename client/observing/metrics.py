"""``metrics()``: the counts of sender, connections, accumulator and callers, by Kafka's names and groups."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import attrs

from splashdam.client.observing.metric_table import COUNT, NODE, OWN, PRODUCER, TOPIC, Kind, Metric
from splashdam.model.counters import Readings, WindowedCounters

if TYPE_CHECKING:
    from splashdam.accumulator.accumulator import RecordAccumulator
    from splashdam.client.observing.timings import HasCallerCounters
    from splashdam.client.settings.producer_settings import ProducerSettings
    from splashdam.net.clock import Clock
    from splashdam.net.reentrant_lock import ReentrantLock
    from splashdam.sender.metadata import Metadata
    from splashdam.sender.sender import Sender


@attrs.frozen
class MetricName:
    """Identifies a metric. Two are equal if name, group and tags are equal.

    Attributes:
        name: for example ``record-send-rate``.
        group: for example ``producer-metrics``.
        description: meaning and unit.
    """

    name: str
    group: str
    description: str = attrs.field(eq=False)
    _tags: tuple[tuple[str, str], ...]

    @property
    def tags(self) -> dict[str, str]:
        """``client-id``, and ``node-id`` or ``topic`` for the groups of brokers and topics. A copy."""
        return dict(self._tags)


class KafkaMetric:
    """A metric that can be read at any time.

    Attributes:
        metric_name: its name, group and tags.
    """

    __slots__ = ("_read", "metric_name")

    def __init__(self, metric_name: MetricName, read: Callable[[], float]) -> None:
        self.metric_name = metric_name
        self._read = read

    def value(self, time_ms: float | None = None) -> float:
        """Return the present value.

        ``time_ms`` is kafka-python's and has no effect: the producer's clock counts.
        """
        return self._read()

    def __repr__(self) -> str:
        return f"<KafkaMetric {self.metric_name.group} {self.metric_name.name}>"


class MetricsReporter(Protocol):
    """The methods that ``metric_reporters`` needs: those of kafka-python's ``AbstractMetricsReporter``."""

    def init(self, metrics: list[KafkaMetric], /) -> None:
        """Called with all metrics when the producer starts."""

    def metric_change(self, metric: KafkaMetric, /) -> None:
        """Called for a new metric: a topic or broker was used for the first time."""

    def metric_removal(self, metric: KafkaMetric, /) -> None:
        """Called for a removed metric: its broker has left the cluster."""

    def close(self) -> None:
        """Called after the producer has ended."""


Metrics: TypeAlias = dict[str, dict[str, float]]
"""Group -> name -> value."""

_COUNT_GROUP = "kafka-metrics-count"


class Scope(NamedTuple):
    """The metrics of one group.

    Attributes:
        group: kafka-python's name of the group, for example ``producer-node-metrics.node-1``.
        kind: Kafka's name of the group, for example ``producer-node-metrics``.
        tags: ``node-id`` or ``topic``; empty for the group of the whole producer.
        rows: the metrics of the group.
        parts: the counters, by ``Metric.part``.
        gauges: the values that are read and not counted, by metric name.
    """

    group: str
    kind: str
    tags: Mapping[str, str]
    rows: Sequence[Metric]
    parts: Mapping[str, Readings]
    gauges: Mapping[str, float]

    def value(self, row: Metric) -> float:
        """Return the present value of one of the metrics."""
        if row.kind is Kind.GAUGE or row.part == "now":
            return float(self.gauges[row.counters[0]])
        readings = self.parts[row.part]
        if row.kind is Kind.TOTAL:
            return readings.total(row.counters[0])
        if row.kind is Kind.RATE:
            return readings.rate(row.counters[0])
        if row.kind is Kind.SHARE:
            return readings.rate(row.counters[0]) / 1e9
        if row.kind is Kind.AVERAGE:
            return readings.average(*row.counters)
        return readings.largest(row.counters[0])


class Measured(Protocol):
    """The parts of a producer's core that have something to report."""

    @property
    def settings(self) -> ProducerSettings: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def guard(self) -> ReentrantLock: ...
    @property
    def accumulator(self) -> RecordAccumulator: ...
    @property
    def metadata(self) -> Metadata: ...
    @property
    def sender(self) -> Sender: ...
    @property
    def intake(self) -> HasCallerCounters: ...


class ProducerMetrics:
    """The metrics of one producer; from any thread.

    Args:
        core: the producer's.
    """

    def __init__(self, core: Measured) -> None:
        self._core = core
        self.client_id = str(core.settings.client_id)

    def scopes(self) -> list[Scope]:
        """Return all groups with their present values."""
        scopes = self._core.guard.run(self._read)
        count = 1.0 + sum(len(scope.rows) for scope in scopes)
        return [*scopes, Scope(_COUNT_GROUP, _COUNT_GROUP, {}, [COUNT], {}, {"count": count})]

    def _read(self) -> list[Scope]:
        now_ms = self._core.clock.now_ms()
        windows = self._core.sender.counters.windows
        # An idle sender takes no turn that would end the window.
        windows.roll(now_ms)
        read = partial(Readings, elapsed_s=windows.elapsed_s(now_ms))
        return [self._producer(read, now_ms), *self._nodes(read), *self._topics(read)]

    def as_dict(self) -> Metrics:
        """Return values by group and name, as kafka-python's ``metrics()``."""
        return {scope.group: {row.name: scope.value(row) for row in scope.rows} for scope in self.scopes()}

    def objects(self) -> dict[MetricName, KafkaMetric]:
        """Return readable objects by name, as kafka-python's ``metrics(raw=True)``."""
        return {
            name: KafkaMetric(name, partial(self._value, scope.group, row))
            for scope in self.scopes()
            for name, row in self.names(scope)
        }

    def names(self, scope: Scope) -> Iterator[tuple[MetricName, Metric]]:
        """Yield each metric of a group with its name."""
        tags = (("client-id", self.client_id), *scope.tags.items())
        for row in scope.rows:
            yield MetricName(row.name, scope.group, f"{row.doc} ({row.unit})", tags), row

    def _value(self, group: str, row: Metric) -> float:
        for scope in self.scopes():
            if scope.group == group:
                return scope.value(row)
        return 0.0  # the broker has left the cluster, but the application still holds the metric

    def _producer(self, read: Callable[[Sequence[WindowedCounters]], Readings], now_ms: float) -> Scope:
        core = self._core
        counters = core.sender.counters
        parts = {
            "sender": read([counters]),
            "traffic": read(list(counters.brokers.values())),
            "callers": read([core.intake.caller_counters]),
        }
        group = "producer-metrics"
        return Scope(group, group, {}, (*PRODUCER, *OWN), parts, self._gauges(now_ms))

    def _gauges(self, now_ms: float) -> dict[str, float]:
        core = self._core
        sender, accumulator = core.sender.statistics(), core.accumulator.statistics()
        age_ms = now_ms - core.metadata.updated_at_ms
        return {
            "requests-in-flight": sender.in_flight_requests,
            "connection-count": sender.connections,
            "epoch-bump-total": sender.epoch_bumps,
            "metadata-age": 0.0 if math.isinf(age_ms) else age_ms / 1000,
            "buffer-total-bytes": accumulator.buffer_memory,
            "buffer-available-bytes": accumulator.free_bytes,
            "waiting-threads": accumulator.waiting,
            "batches-queued": accumulator.queued_batches,
            "batches-incomplete": accumulator.incomplete_batches,
        }

    def _nodes(self, read: Callable[[Sequence[WindowedCounters]], Readings]) -> Iterable[Scope]:
        kind = "producer-node-metrics"
        for link in self._core.sender.links():
            tags = {"node-id": str(link.node.node_id)}
            group = f"{kind}.node-{link.node.node_id}"
            yield Scope(group, kind, tags, NODE, {"traffic": read([link.traffic])}, {})

    def _topics(self, read: Callable[[Sequence[WindowedCounters]], Readings]) -> Iterable[Scope]:
        kind = "producer-topic-metrics"
        # A copy: the sender's thread adds topics without the guard.
        for topic, counters in list(self._core.sender.counters.topics.items()):
            yield Scope(f"{kind}.{topic}", kind, {"topic": topic}, TOPIC, {"topic": read([counters])}, {})


logger = logging.getLogger("splashdam.client")


class Reporters:
    """The metric reporters of one producer. Their errors are logged, except in ``init``.

    Args:
        given: reporters, or classes that make one when called without arguments.
        metrics: the producer's metrics.
    """

    def __init__(self, given: Sequence[Any], metrics: ProducerMetrics) -> None:
        self._metrics = metrics
        self._reporters = [each() if isinstance(each, type) else each for each in given]
        self._known: dict[MetricName, KafkaMetric] = metrics.objects()
        for reporter in self._reporters:
            reporter.init(list(self._known.values()))

    def refresh(self) -> None:
        """Report new and removed metrics."""
        found = self._metrics.objects()
        new = [metric for name, metric in found.items() if name not in self._known]
        gone = [metric for name, metric in self._known.items() if name not in found]
        self._known = {name: self._known.get(name, metric) for name, metric in found.items()}
        for metric in new:
            self._tell("metric_change", metric)
        for metric in gone:
            self._tell("metric_removal", metric)

    def close(self) -> None:
        """Called after the producer has ended."""
        self._tell("close")

    def _tell(self, what: str, *arguments: KafkaMetric) -> None:
        for reporter in self._reporters:
            try:
                getattr(reporter, what)(*arguments)
            except Exception:
                logger.exception("a metric reporter raised in %s", what)
