"""``metrics()``: the figures of sender, connections, accumulator and callers, by Kafka's names and groups."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import attrs

from splashdam.client.observing.metric_table import COUNT, NODE, OWN, PRODUCER, TOPIC, Kind, Metric
from splashdam.model.tally import Readings, Tally

if TYPE_CHECKING:
    from splashdam.accumulator.accumulator import RecordAccumulator
    from splashdam.client.observing.timings import HasTally
    from splashdam.client.settings.producer_settings import ProducerSettings
    from splashdam.net.clock import Clock
    from splashdam.net.guard import Guard
    from splashdam.sender.metadata import Metadata
    from splashdam.sender.sender import Sender


@attrs.frozen
class MetricName:
    """What a metric is called; equal where name, group and tags are.

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
        """``client-id``, and ``node-id`` or ``topic`` where the group is of one. A copy."""
        return dict(self._tags)


class KafkaMetric:
    """A metric that can be read at any time.

    Attributes:
        metric_name: what it is called.
    """

    __slots__ = ("_read", "metric_name")

    def __init__(self, metric_name: MetricName, read: Callable[[], float]) -> None:
        self.metric_name = metric_name
        self._read = read

    def value(self, time_ms: float | None = None) -> float:
        """The value now. ``time_ms`` is kafka-python's, and has no effect: time is the producer's clock."""
        return self._read()

    def __repr__(self) -> str:
        return f"<KafkaMetric {self.metric_name.group} {self.metric_name.name}>"


class MetricsReporter(Protocol):
    """What ``metric_reporters`` takes: kafka-python's ``AbstractMetricsReporter``, by shape."""

    def init(self, metrics: list[KafkaMetric], /) -> None:
        """Called with all metrics when the producer starts."""

    def metric_change(self, metric: KafkaMetric, /) -> None:
        """Called for a new metric: a topic or broker was used for the first time."""

    def metric_removal(self, metric: KafkaMetric, /) -> None:
        """Called for a removed metric: its broker has left."""

    def close(self) -> None:
        """Called after the producer has ended."""


Metrics: TypeAlias = dict[str, dict[str, float]]
"""Group -> name -> value."""

_COUNT_GROUP = "kafka-metrics-count"


class Scope(NamedTuple):
    """The metrics of one group.

    Attributes:
        group: kafka-python's, for example ``producer-node-metrics.node-1``.
        kind: Kafka's, for example ``producer-node-metrics``.
        tags: ``node-id`` or ``topic``; empty for the producer's own.
        rows: its metrics.
        parts: where their figures are.
        gauges: values of this moment.
    """

    group: str
    kind: str
    tags: Mapping[str, str]
    rows: Sequence[Metric]
    parts: Mapping[str, Readings]
    gauges: Mapping[str, float]

    def value(self, row: Metric) -> float:
        """The value of one of its metrics now."""
        if row.kind is Kind.GAUGE or row.part == "now":
            return float(self.gauges[row.figures[0]])
        readings = self.parts[row.part]
        if row.kind is Kind.TOTAL:
            return readings.total(row.figures[0])
        if row.kind is Kind.RATE:
            return readings.rate(row.figures[0])
        if row.kind is Kind.SHARE:
            return readings.rate(row.figures[0]) / 1e9
        if row.kind is Kind.AVERAGE:
            return readings.average(*row.figures)
        return readings.largest(row.figures[0])


class Measured(Protocol):
    """A producer's core, as far as its figures are concerned."""

    @property
    def settings(self) -> ProducerSettings: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def guard(self) -> Guard: ...
    @property
    def accumulator(self) -> RecordAccumulator: ...
    @property
    def metadata(self) -> Metadata: ...
    @property
    def sender(self) -> Sender: ...
    @property
    def intake(self) -> HasTally: ...


class ProducerMetrics:
    """The metrics of one producer; from any thread.

    Args:
        core: the producer's.
    """

    def __init__(self, core: Measured) -> None:
        self._core = core
        self.client_id = str(core.settings.client_id)

    def scopes(self) -> list[Scope]:
        """All groups with their values of this moment."""
        scopes = self._core.guard.run(self._read)
        count = 1.0 + sum(len(scope.rows) for scope in scopes)
        return [*scopes, Scope(_COUNT_GROUP, _COUNT_GROUP, {}, [COUNT], {}, {"count": count})]

    def _read(self) -> list[Scope]:
        now_ms = self._core.clock.now_ms()
        windows = self._core.sender.counters.windows
        windows.roll(now_ms)
        read = partial(Readings, elapsed_s=windows.elapsed_s(now_ms))
        return [self._producer(read, now_ms), *self._nodes(read), *self._topics(read)]

    def as_dict(self) -> Metrics:
        """kafka-python's shape."""
        return {scope.group: {row.name: scope.value(row) for row in scope.rows} for scope in self.scopes()}

    def objects(self) -> dict[MetricName, KafkaMetric]:
        """kafka-python's ``metrics(raw=True)``."""
        return {
            name: KafkaMetric(name, partial(self._value, scope.group, row))
            for scope in self.scopes()
            for name, row in self.names(scope)
        }

    def names(self, scope: Scope) -> Iterator[tuple[MetricName, Metric]]:
        """The names of a group's metrics with their rows."""
        tags = (("client-id", self.client_id), *scope.tags.items())
        for row in scope.rows:
            yield MetricName(row.name, scope.group, f"{row.doc} ({row.unit})", tags), row

    def _value(self, group: str, row: Metric) -> float:
        for scope in self.scopes():
            if scope.group == group:
                return scope.value(row)
        return 0.0  # the broker has left

    def _producer(self, read: Callable[[Sequence[Tally]], Readings], now_ms: float) -> Scope:
        core = self._core
        counters = core.sender.counters
        parts = {
            "sender": read([counters]),
            "traffic": read(list(counters.brokers.values())),
            "callers": read([core.intake.tally]),
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

    def _nodes(self, read: Callable[[Sequence[Tally]], Readings]) -> Iterable[Scope]:
        kind = "producer-node-metrics"
        for link in self._core.sender.links():
            tags = {"node-id": str(link.node.node_id)}
            group = f"{kind}.node-{link.node.node_id}"
            yield Scope(group, kind, tags, NODE, {"traffic": read([link.traffic])}, {})

    def _topics(self, read: Callable[[Sequence[Tally]], Readings]) -> Iterable[Scope]:
        kind = "producer-topic-metrics"
        for topic, tally in list(self._core.sender.counters.topics.items()):
            yield Scope(f"{kind}.{topic}", kind, {"topic": topic}, TOPIC, {"topic": read([tally])}, {})


logger = logging.getLogger("splashdam.client")


class Reporters:
    """The metric reporters of one producer. Their errors are logged, except in ``init``.

    Args:
        given: objects, or classes to be called without arguments.
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
