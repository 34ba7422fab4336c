"""Counters of a sender, updated per request and per batch, never per record.

``client/observing/metrics.py`` computes Kafka's metrics from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from splashdam.accumulator.batch import ProducerBatch
from splashdam.model.counters import WindowedCounters, Windows
from splashdam.net.connection.in_flight import Traffic


class SenderStatistics(NamedTuple):
    """Totals since the start, and some current values.

    Attributes:
        requests_sent: ProduceRequests.
        batches_sent: batches in them, retries included.
        bytes_sent: their bytes.
        records_sent: records in batches that were acknowledged (or written, with ``acks=0``).
        records_failed: records whose batch failed, expired or was aborted.
        retries: batches queued again.
        splits: batches that were split after MESSAGE_TOO_LARGE.
        expired: batches whose delivery timeout passed.
        latency_ms_total: time from writing a ProduceRequest to its response, summed.
        answers: ProduceResponses.
        epoch_bumps: number of producer epoch bumps.
        connections: open connections.
        in_flight_requests: in-flight requests.
        turns: how often ``step`` ran.
    """

    requests_sent: int = 0
    batches_sent: int = 0
    bytes_sent: int = 0
    records_sent: int = 0
    records_failed: int = 0
    retries: int = 0
    splits: int = 0
    expired: int = 0
    latency_ms_total: float = 0.0
    answers: int = 0
    epoch_bumps: int = 0
    connections: int = 0
    in_flight_requests: int = 0
    turns: int = 0


class TopicCounters(WindowedCounters):
    """Counters of one topic.

    Attributes:
        records_shipped: records in batches that were sent, retries included.
        batches: these batches.
        bytes_sent: their bytes.
        compression: compression ratio (compressed by uncompressed size), summed over them.
        records_retried: records in batches that were queued again.
        records_failed: records whose batch failed.
    """

    records_shipped: int = 0
    batches: int = 0
    bytes_sent: int = 0
    compression: float = 0
    records_retried: int = 0
    records_failed: int = 0


class SenderCounters(WindowedCounters):
    """The sender's totals, which only its task writes. Attributes as in ``SenderStatistics``, and those
    below.

    Args:
        windows: rolls these counters, and those of topics and brokers, to the next window.

    Attributes:
        windows: the argument.
        topics: by name.
        on_new: called when a topic or broker is added; must not block.
        brokers: by host and port, since node ids are learnt later.
        records_shipped: records in batches that were sent, retries included.
        records_retried: records in batches that were queued again.
        batch_bytes_max: the largest batch.
        record_bytes: average uncompressed record size of a batch, summed over batches. The exact maximum
            would cost a comparison per record.
        record_bytes_max: the largest such average.
        compression: compression ratio, summed over batches.
        queued_ms: from a batch's creation to its request, summed over batches.
        queued_ms_max: the longest.
        latency_ms_max: the slowest ProduceResponse.
        throttle_ms: throttle times of ProduceResponses, summed.
        throttle_ms_max: the longest.
    """

    turns: int = 0
    requests_sent: int = 0
    batches_sent: int = 0
    bytes_sent: int = 0
    records_sent: int = 0
    records_shipped: int = 0
    records_failed: int = 0
    records_retried: int = 0
    retries: int = 0
    splits: int = 0
    expired: int = 0
    answers: int = 0
    latency_ms_total: float = 0
    latency_ms_max: float = 0
    batch_bytes_max: int = 0
    record_bytes: float = 0
    record_bytes_max: float = 0
    compression: float = 0
    queued_ms: float = 0
    queued_ms_max: float = 0
    throttle_ms: float = 0
    throttle_ms_max: float = 0

    def __init__(self, windows: Windows) -> None:
        super().__init__(windows.samples)
        windows.add(self)
        self.windows = windows
        self.topics: dict[str, TopicCounters] = {}
        self.brokers: dict[tuple[str, int], Traffic] = {}
        self.on_new: Callable[[], object] = lambda: None

    def topic(self, name: str) -> TopicCounters:
        """Return the counters of a topic, made on first use."""
        counters = self.topics.get(name)
        if counters is None:
            counters = self.topics[name] = TopicCounters(self.windows.samples)
            self.windows.add(counters)
            self.on_new()
        return counters

    def traffic(self, host: str, port: int) -> Traffic:
        """Return the traffic counters of an address, made on first use."""
        traffic = self.brokers.get((host, port))
        if traffic is None:
            traffic = self.brokers[host, port] = Traffic(self.windows.samples)
            self.windows.add(traffic)
            self.on_new()
        return traffic

    def shipped(self, batches: Iterable[ProducerBatch], now_ms: float) -> None:
        """Count a ProduceRequest with these sealed batches."""
        self.requests_sent += 1
        topics = self.topics
        for batch in batches:
            name = batch.topic_partition.topic
            topic = topics.get(name) or self.topic(name)
            size_bytes, records, plain_bytes = batch.size_bytes, batch.record_count, batch.uncompressed_bytes
            compression = size_bytes / plain_bytes
            record_bytes = plain_bytes / records
            queued_ms = now_ms - batch.created_ms
            topic.batches += 1
            topic.bytes_sent += size_bytes
            topic.records_shipped += records
            topic.compression += compression
            self.batches_sent += 1
            self.bytes_sent += size_bytes
            self.records_shipped += records
            self.compression += compression
            self.record_bytes += record_bytes
            self.queued_ms += queued_ms
            self.batch_bytes_max = max(self.batch_bytes_max, size_bytes)
            self.record_bytes_max = max(self.record_bytes_max, record_bytes)
            self.queued_ms_max = max(self.queued_ms_max, queued_ms)

    def answered(self, latency_ms: float, throttle_ms: float) -> None:
        """Count a ProduceResponse."""
        self.answers += 1
        self.latency_ms_total += latency_ms
        self.throttle_ms += throttle_ms
        self.latency_ms_max = max(self.latency_ms_max, latency_ms)
        self.throttle_ms_max = max(self.throttle_ms_max, throttle_ms)

    def retried(self, batch: ProducerBatch) -> None:
        """Count a retried batch."""
        self.retries += 1
        self.records_retried += batch.record_count
        self.topic(batch.topic_partition.topic).records_retried += batch.record_count

    def failed(self, batch: ProducerBatch) -> None:
        """Count a failed batch."""
        self.records_failed += batch.record_count
        self.topic(batch.topic_partition.topic).records_failed += batch.record_count

    def snapshot(self, *, epoch_bumps: int, connections: int, in_flight_requests: int) -> SenderStatistics:
        """Combine the totals with current values."""
        totals = {name: getattr(self, name) for name in SenderStatistics._fields if name in self.TOTALS}
        return SenderStatistics(
            **totals,
            epoch_bumps=epoch_bumps,
            connections=connections,
            in_flight_requests=in_flight_requests,
        )
