"""Every record passes through interceptors. Run it: python examples/interceptors.py"""

from collections import Counter

import attrs

from splashdam import BatchMetadata, KafkaProducer, ProducerInterceptor, ProducerRecord, RecordMetadata

counted: Counter[str] = Counter()


class Stamp(ProducerInterceptor):
    """Adds a header to each record: on_send may return another record."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return attrs.evolve(record, headers=(*record.headers, ("sent-by", b"shop-7")))


class Count(ProducerInterceptor):
    """Counts each record once, even one that send() itself has refused."""

    def on_acknowledgement(self, metadata: RecordMetadata, error: BaseException | None) -> None:
        counted["delivered" if error is None else type(error).__name__] += 1


def on_batch(batch: BatchMetadata) -> None:
    """Called once per batch, so it costs nothing per record."""
    counted["in batches"] += batch.record_count


with KafkaProducer(
    bootstrap_servers="embedded:./data", interceptors=[Stamp(), Count()], on_batch=on_batch, linger_ms=1_000
) as producer:
    for number in range(100):
        producer.send("orders", b"order %d" % number)
    report = producer.flush()
    print(f"{report.delivered} delivered, {report.failed} failed")

    producer.send("orders", b"never mind", partition=0)
    print(f"{producer.purge()} purged before it was sent")

print(dict(counted))
