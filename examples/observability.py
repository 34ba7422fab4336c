"""Logs, traces and metrics of a producer. Run it: python examples/observability.py

Needs splashdam[otel,prometheus,telemetry] and opentelemetry-sdk. Nothing here leaves the process.
"""

import logging

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, generate_latest

from splashdam import EmbeddedBroker, KafkaProducer
from splashdam.client.logs import KeyValueFormatter
from splashdam.client.observing.otel import TracingInterceptor
from splashdam.client.observing.prometheus import register

# Log lines: one family of loggers, and fields behind the text.
handler = logging.FileHandler("producer.log")
handler.setFormatter(KeyValueFormatter("%(levelname)s %(name)s %(message)s"))
logging.getLogger("splashdam").addHandler(handler)
logging.getLogger("splashdam").setLevel(logging.DEBUG)

# Tracing: a span for each record, whose context travels in the record's headers.
spans = InMemorySpanExporter()  # in production: an OTLP exporter behind a BatchSpanProcessor
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))

# Prometheus: read at each scrape. In production: register(producer) and start_http_server(9100).
registry = CollectorRegistry()

with EmbeddedBroker("./data") as broker:
    broker.telemetry.subscribe(interval_ms=500)  # a broker may ask its clients for metrics (KIP-714)

    with KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers,
        client_id="shop",
        interceptors=[TracingInterceptor(provider)],
    ) as producer:
        register(producer, registry=registry)
        producer.client_instance_id(timeout=10)  # the id of this producer at the broker
        for number in range(1_000):
            producer.send("orders", b"order %d" % number)
        producer.flush()

        figures = producer.metrics()["producer-metrics"]
        print(f"{figures['record-send-total']:,.0f} records sent, {figures['record-error-total']:.0f} failed")
        size, wait = figures["batch-size-avg"], figures["request-latency-avg"]
        print(f"{size:,.0f} bytes in a batch, {wait:.1f} ms for an answer")

        scraped = generate_latest(registry).decode().splitlines()
        print(next(line for line in scraped if line.startswith("kafka_producer_record_send_total")))

    push = broker.telemetry.pushes[-1]  # the last one, at close
    print(f"{push.client_id} pushed {len(push.names())} metrics to the broker")

finished = spans.get_finished_spans()
print(f"{len(finished):,} spans, the first: {finished[0].name}")
with open("producer.log") as log:
    print(log.readline().strip())
