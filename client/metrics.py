"""``metrics()``: what accumulator and sender count, in Kafka's groups and by Kafka's names."""

from __future__ import annotations

from typing import TypeAlias

from splashdam.accumulator.results import AccumulatorStatistics
from splashdam.sender.statistics import SenderStatistics

Metrics: TypeAlias = dict[str, dict[str, float]]
"""Group -> name -> value."""


def metrics_of(sender: SenderStatistics, accumulator: AccumulatorStatistics) -> Metrics:
    """Totals since the producer was made, and a few values of this moment.

    Names are Kafka's where Kafka has the figure. Averages are over the producer's whole life.
    """
    figures = {
        "record-send-total": sender.records_sent,
        "record-error-total": sender.records_failed,
        "record-retry-total": sender.retries,
        "batch-send-total": sender.batches_sent,
        "batch-split-total": sender.splits,
        "batch-expired-total": sender.expired,
        "request-total": sender.requests_sent,
        "response-total": sender.answers,
        "byte-total": sender.bytes_sent,
        "batch-size-avg": _ratio(sender.bytes_sent, sender.batches_sent),
        "records-per-request-avg": _ratio(sender.records_sent, sender.answers),
        "request-latency-avg": _ratio(sender.latency_ms_total, sender.answers),
        "requests-in-flight": sender.in_flight_requests,
        "connection-count": sender.connections,
        "epoch-bump-total": sender.epoch_bumps,
        "buffer-total-bytes": accumulator.buffer_memory,
        "buffer-available-bytes": accumulator.free_bytes,
        "waiting-threads": accumulator.waiting,
        "batches-queued": accumulator.queued_batches,
        "batches-incomplete": accumulator.incomplete_batches,
    }
    groups = {"producer-metrics": {name: float(value) for name, value in figures.items()}}
    groups["kafka-metrics-count"] = {"count": float(len(figures))}
    return groups


def _ratio(total: float, count: int) -> float:
    return total / count if count else 0.0
