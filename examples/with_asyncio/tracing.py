"""One trace through a request, the send that it makes, and the delivery.

It needs splashdam[otel] and opentelemetry-sdk. Run it: python examples/with_asyncio/tracing.py
"""

import asyncio

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from splashdam.aio import AsyncioKafkaProducer
from splashdam.client.observing.otel import TracingInterceptor

spans = InMemorySpanExporter()  # in production: an OTLP exporter behind a BatchSpanProcessor
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
tracer = provider.get_tracer("shop")


async def handle(producer: AsyncioKafkaProducer, number: int) -> int:
    # An instrumented web framework starts such a span. The record's span becomes its child, in each task.
    with tracer.start_as_current_span(f"POST /orders/{number}"):
        metadata = await producer.send_and_wait("orders", b"order %d" % number)
        return metadata.offset


async def main() -> None:
    tracing = TracingInterceptor(provider)
    async with AsyncioKafkaProducer(bootstrap_servers="embedded:./data", interceptors=[tracing]) as producer:
        await asyncio.gather(*(handle(producer, number) for number in range(3)))

    finished = [(span, span.context) for span in spans.get_finished_spans()]
    requests = {context.span_id: (span, context) for span, context in finished if context and not span.parent}
    for span, context in finished:
        if context and span.parent:
            request, of_request = requests[span.parent.span_id]
            same = context.trace_id == of_request.trace_id
            offset = span.attributes["messaging.kafka.offset"] if span.attributes else None
            print(f"{request.name}: {span.name}, delivered at offset {offset}, one trace: {same}")


asyncio.run(main())
