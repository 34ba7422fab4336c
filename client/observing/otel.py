"""OpenTelemetry: a span for each record, and producers' metrics (``pip install 'splashdam[otel]'``).

    from splashdam.client.observing.otel import TracingInterceptor, observe

    producer = KafkaProducer(interceptors=[TracingInterceptor()])
    observe(producer)

Without an OpenTelemetry SDK both do nothing and cost little. A record whose span is not sampled still carries
the span's context. Names and attributes follow OpenTelemetry's semantic conventions for messaging.
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
from splashdam.net.reentrant_lock import ReentrantLock

try:
    from opentelemetry import metrics, propagate, trace
    from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation
    from opentelemetry.trace import Span, SpanKind, StatusCode, TracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise ImportError(
        "splashdam.client.observing.otel needs opentelemetry-api: pip install 'splashdam[otel]'"
    ) from error

_NAME = "splashdam"
_TRACEPARENT = "traceparent"
_W3C = TraceContextTextMapPropagator()

OPEN_SPANS_LIMIT = 100_000
"""Beyond it the oldest span ends: a later interceptor may have removed the headers that identify it."""


class TracingInterceptor(ProducerInterceptor):
    """Traces each record with a span of kind PRODUCER, from ``send`` until it is acknowledged or has failed.

    The span's context is put into the record's headers: W3C ``traceparent``, and what the application's
    propagators add.

    Args:
        tracer_provider: default: the global one.
        client_id: the span's attribute ``messaging.client.id``; None for no such attribute.
    """

    def __init__(
        self, tracer_provider: TracerProvider | None = None, *, client_id: str | None = None
    ) -> None:
        self._tracer = trace.get_tracer(_NAME, tracer_provider=tracer_provider)
        self._client_id = client_id
        self._spans: OrderedDict[bytes, Span] = OrderedDict()
        self._guard = ReentrantLock()  # a signal handler may send, too

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record with the context of a new span in its headers, in place of an earlier context."""
        span = self._tracer.start_span(f"send {record.topic}", kind=SpanKind.PRODUCER)
        carrier: dict[str, str] = {}
        context = trace.set_span_in_context(span)
        propagate.inject(carrier, context)
        # Always, whatever the application's propagators are: by this header the span is found again.
        _W3C.inject(carrier, context)
        if not carrier:
            return record  # there is neither an SDK nor a surrounding span
        if span.is_recording():
            span.set_attributes(self._attributes(record))
            self._keep(carrier[_TRACEPARENT].encode(), span)
        kept = [pair for pair in record.headers if pair[0] not in carrier]
        added = [(name, text.encode()) for name, text in carrier.items()]
        return attrs.evolve(record, headers=(*kept, *added))

    def on_acknowledgement(
        self, metadata: RecordMetadata, error: BaseException | None, headers: HeaderPairs = ()
    ) -> None:
        """End the record's span, which the headers identify."""
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
        """End the spans that are still open."""
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

    # The next three run with the guard held, which is re-entrant: a signal handler that sends may run between
    # any two of their statements.

    def _put(self, name: bytes, span: Span) -> Span | None:
        """Keep the span; return the oldest one if there are too many."""
        self._spans[name] = span
        if len(self._spans) > OPEN_SPANS_LIMIT:
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


def observe(*producers: ProducerBase[Any], meter_provider: MeterProvider | None = None) -> WatchedProducers:
    """Export producers' metrics as observable instruments, such as ``kafka.producer.record.send.total``.

    Totals become counters, all others gauges; rates are left out, since monitoring systems compute them. The
    attributes are ``client_id``, and ``node_id`` or ``topic``. Producers are held weakly.

    Args:
        producers: the producers to begin with.
        meter_provider: default: the global one.

    Returns:
        the set of exported producers, to which more can be added.
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
