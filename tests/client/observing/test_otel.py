"""Spans and instruments, as an OpenTelemetry SDK sees them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from splashdam import EmbeddedBroker, KafkaProducer, ProducerInterceptor, ProducerRecord
from splashdam.client.observing import otel
from splashdam.client.observing.otel import TracingInterceptor, observe
from splashdam.model.errors import KafkaError


class Sent(ProducerInterceptor):
    """Keeps the headers of what is sent; stands behind the tracing one."""

    def __init__(self) -> None:
        self.headers: list[tuple[tuple[str, bytes | None], ...]] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.headers.append(record.headers)
        return record


class Rig:
    """A provider whose spans can be looked at."""

    def __init__(self, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(**options)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.sent = Sent()
        self.tracing = TracingInterceptor(self.provider, client_id="me")

    def options(self, broker: EmbeddedBroker) -> dict[str, Any]:
        interceptors = [self.tracing, self.sent]
        return {"bootstrap_servers": broker.bootstrap_servers, "interceptors": interceptors}

    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path, fsync=False) as broker:
        yield broker


def context_of(headers: Any) -> trace.SpanContext:
    carrier = {name: value.decode() for name, value in headers}
    return trace.get_current_span(TraceContextTextMapPropagator().extract(carrier)).get_span_context()


def test_a_record_is_a_span_and_carries_its_context(broker: EmbeddedBroker) -> None:
    """A child of the span around it, of kind PRODUCER, which ends with the acknowledgement."""
    rig = Rig()
    with KafkaProducer(**rig.options(broker)) as producer:
        with rig.provider.get_tracer("test").start_as_current_span("around") as around:
            metadata = producer.send("t", b"value", key=b"anna", headers=[("traceparent", b"old")]).get(300)
        producer.flush()
    (span,) = [span for span in rig.spans() if span.name != "around"]
    assert (span.name, span.kind, span.status.status_code) == ("send t", SpanKind.PRODUCER, StatusCode.UNSET)
    assert span.parent is not None
    assert span.parent.span_id == around.get_span_context().span_id
    assert dict(span.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "t",
        "messaging.destination.partition.id": str(metadata.partition),
        "messaging.kafka.offset": metadata.offset,
        "messaging.kafka.message.key": "anna",
        "messaging.message.body.size": 5,
        "messaging.client.id": "me",
    }
    (headers,) = rig.sent.headers
    assert [name for name, _ in headers].count("traceparent") == 1
    assert context_of(headers).span_id == span.get_span_context().span_id


@pytest.mark.parametrize("partition", [99, None])
def test_a_record_that_fails_is_a_span_with_an_error(broker: EmbeddedBroker, partition: int | None) -> None:
    """Whether ``send`` itself refuses it or the broker does."""
    rig = Rig()
    value = b"x" if partition else bytes(3_000_000)
    with KafkaProducer(**rig.options(broker), max_request_size=10_000_000) as producer:
        with pytest.raises(KafkaError) as raised:
            producer.send("t", value, partition=partition).get(300)
        producer.flush()
    (span,) = rig.spans()
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes is not None
    assert span.attributes["error.type"] == type(raised.value).__name__
    assert [event.name for event in span.events] == ["exception"]


def test_what_is_not_sampled_carries_its_context_and_is_not_kept(broker: EmbeddedBroker) -> None:
    rig = Rig(sampler=ALWAYS_OFF)
    with KafkaProducer(**rig.options(broker)) as producer:
        producer.send("t", b"value").get(300)
    assert not rig.spans()
    assert not rig.tracing._spans
    assert not context_of(rig.sent.headers[0]).trace_flags.sampled
    assert context_of(rig.sent.headers[0]).is_valid


def test_without_an_sdk_records_are_as_they_were(broker: EmbeddedBroker) -> None:
    """The API's own tracer does nothing."""
    sent = Sent()
    tracing = TracingInterceptor(trace.NoOpTracerProvider())
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, interceptors=[tracing, sent]) as producer:
        producer.send("t", b"value", headers=[("a", b"b")]).get(300)
    assert sent.headers == [(("a", b"b"),)]


def test_spans_whose_headers_were_taken_away_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otel, "OPEN_SPANS_LIMIT", 2)
    rig = Rig()
    for number in range(5):
        rig.tracing.on_send(ProducerRecord("t", b"%d" % number))
    assert len(rig.spans()) == 3
    rig.tracing.close()
    assert len(rig.spans()) == 5


def test_spans_of_many_threads_all_end(broker: EmbeddedBroker) -> None:
    rig = Rig()
    with KafkaProducer(**rig.options(broker)) as producer:

        def send() -> None:
            for _ in range(50):
                producer.send("t", b"value")

        threads = [threading.Thread(target=send) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(rig.spans()) == 200
    assert not rig.tracing._spans


def test_metrics_are_instruments(broker: EmbeddedBroker) -> None:
    """Totals are monotonic sums, all else gauges; attributes say of what."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, client_id="me") as producer:
        observe(producer, meter_provider=provider)
        producer.send("t", b"value").get(300)
        data = reader.get_metrics_data()
    assert data is not None
    found = {
        metric.name: metric.data
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    total = found["kafka.producer.topic.record.send.total"]
    assert total.is_monotonic
    (point,) = total.data_points
    assert (point.value, dict(point.attributes)) == (1, {"client_id": "me", "topic": "t"})
    assert "kafka.producer.request.rate" not in found
    assert found["kafka.producer.buffer.available.bytes"].data_points[0].value > 0
    assert not hasattr(found["kafka.producer.node.request.latency.avg"], "is_monotonic")
    provider.shutdown()
