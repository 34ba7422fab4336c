"""OpenTelemetry: a span for each record, and producers' metrics (``pip install splashdam[otel]``).

    from splashdam.client.observing.otel import TracingInterceptor, observe

    producer = KafkaProducer(interceptors=[TracingInterceptor()])
    observe(producer)

Without an SDK the API does nothing, and this costs little; a record whose span is not sampled still carries
its context. Names and attributes are those of the semantic conventions for messaging.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import attrs

from splashdam.client.base import ProducerBase
from splashdam.client.interceptors import ProducerInterceptor, ProducerRecord
from splashdam.client.observing.exporting import EXPORTED, WatchedProducers
from splashdam.client.observing.metric_table import NODE, OWN, PRODUCER, TOPIC, Kind, Metric
from splashdam.model.values import HeaderPairs, RecordMetadata
from splashdam.net.guard import Guard

try:
    from opentelemetry import metrics, propagate, trace
    from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation
    from opentelemetry.trace import Span, SpanKind, StatusCode, TracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise ImportError(
        "splashdam.client.observing.otel needs opentelemetry-api: pip install splashdam[otel]"
    ) from error

_NAME = "splashdam"
_TRACEPARENT = "traceparent"
_W3C = TraceContextTextMapPropagator()

MOST_OPEN_SPANS = 100_000
"""An interceptor behind this one may take headers away, and spans are not found again: the oldest ends."""


class TracingInterceptor(ProducerInterceptor):
    """Starts a PRODUCER span for each record, puts its context into the headers (W3C ``traceparent``, and
    what the application's propagators add), and ends it when the record is acknowledged or has failed.

    Args:
        tracer_provider: default: the global one.
        client_id: for ``messaging.client.id``.
    """

    def __init__(
        self, tracer_provider: TracerProvider | None = None, *, client_id: str | None = None
    ) -> None:
        self._tracer = trace.get_tracer(_NAME, tracer_provider=tracer_provider)
        self._client_id = client_id
        self._spans: OrderedDict[bytes, Span] = OrderedDict()
        self._guard = Guard()  # a signal handler may send, too

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """The record with the context of a new span in its headers, which replaces one from elsewhere."""
        span = self._tracer.start_span(f"send {record.topic}", kind=SpanKind.PRODUCER)
        carrier: dict[str, str] = {}
        context = trace.set_span_in_context(span)
        propagate.inject(carrier, context)
        _W3C.inject(carrier, context)
        if not carrier:
            return record  # no SDK, and no span around
        if span.is_recording():
            span.set_attributes(self._attributes(record))
            self._keep(carrier[_TRACEPARENT].encode(), span)
        kept = [pair for pair in record.headers if pair[0] not in carrier]
        added = [(name, text.encode()) for name, text in carrier.items()]
        return attrs.evolve(record, headers=(*kept, *added))

    def on_acknowledgement(
        self, metadata: RecordMetadata, error: BaseException | None, headers: HeaderPairs = ()
    ) -> None:
        """Ends the span that these headers name."""
        span = self._find(headers)
        if span is None:
            return
        if error is not None:
            span.record_exception(error)
            span.set_attribute("error.type", type(error).__qualname__)
            span.set_status(StatusCode.ERROR, str(error))
        else:
            span.set_attribute("messaging.destination.partition.id", str(metadata.partition))
            span.set_attribute("messaging.kafka.offset", metadata.offset)
        span.end()

    def close(self) -> None:
        """Ends what is left."""
        for span in self._guard.run(self._take_all):
            span.end()

    def _attributes(self, record: ProducerRecord) -> dict[str, str | int | bool]:
        found: dict[str, str | int | bool] = {
            "messaging.system": "kafka",
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.destination.name": record.topic,
        }
        if self._client_id is not None:
            found["messaging.client.id"] = self._client_id
        if record.value is None:
            found["messaging.kafka.message.tombstone"] = True
        elif isinstance(record.value, bytes | bytearray):
            found["messaging.message.body.size"] = len(record.value)
        if isinstance(record.key, str):
            found["messaging.kafka.message.key"] = record.key
        elif isinstance(record.key, bytes):
            found["messaging.kafka.message.key"] = record.key.decode(errors="replace")
        return found

    def _keep(self, name: bytes, span: Span) -> None:
        oldest = self._guard.run(self._put, name, span)
        if oldest is not None:
            oldest.end()

    def _find(self, headers: HeaderPairs) -> Span | None:
        return self._guard.run(self._pop, headers)

    # What follows runs in the guard. A signal handler that interrupts it may come between any two steps.

    def _put(self, name: bytes, span: Span) -> Span | None:
        """The oldest, if it has to go."""
        self._spans[name] = span
        if len(self._spans) > MOST_OPEN_SPANS:
            return self._spans.popitem(last=False)[1]
        return None

    def _pop(self, headers: HeaderPairs) -> Span | None:
        for name, value in headers:
            if name == _TRACEPARENT and value is not None and value in self._spans:
                return self._spans.pop(bytes(value), None)
        return None

    def _take_all(self) -> list[Span]:
        spans, self._spans = self._spans, OrderedDict()
        return list(spans.values())


_GROUPS = {
    "producer-metrics": (*PRODUCER, *OWN),
    "producer-node-metrics": NODE,
    "producer-topic-metrics": TOPIC,
}


def observe(*producers: ProducerBase, meter_provider: MeterProvider | None = None) -> WatchedProducers:
    """Makes observable instruments of producers' metrics: ``kafka.producer.record.send.total``, ….

    Totals are counters, all else are gauges; rates are left out. Attributes are ``client_id``, and
    ``node_id`` or ``topic``. Producers are held weakly.

    Args:
        producers: which.
        meter_provider: default: the global one.

    Returns:
        what is watched; more producers can be added.
    """
    watched = WatchedProducers()
    for producer in producers:
        watched.add(producer)
    meter = metrics.get_meter(_NAME, meter_provider=meter_provider)
    for kind, rows in _GROUPS.items():
        for row in rows:
            if row.kind in EXPORTED:
                _instrument(meter, watched, kind, row)
    return watched


def _instrument(meter: Meter, watched: WatchedProducers, kind: str, row: Metric) -> None:
    make: Callable[..., Any] = (
        meter.create_observable_counter if row.kind is Kind.TOTAL else meter.create_observable_gauge
    )
    name = f"kafka.{kind.removesuffix('-metrics')}.{row.name}".replace("-", ".")
    make(name, callbacks=[partial(_observations, watched, kind, row)], unit=row.unit, description=row.doc)


def _observations(
    watched: WatchedProducers, kind: str, row: Metric, _options: CallbackOptions
) -> Iterable[Observation]:
    return list(_values(watched, kind, row))


def _values(watched: WatchedProducers, kind: str, row: Metric) -> Iterator[Observation]:
    for client_id, scope in watched.scopes():
        if scope.kind == kind:
            tags = {tag.replace("-", "_"): text for tag, text in scope.tags.items()}
            yield Observation(scope.value(row), {"client_id": client_id, **tags})
