"""Every metric of a producer in one table: name, unit, meaning, and the counters it is computed from.

Names, groups and units are Kafka's (and kafka-python's) where they have the metric; ``OWN`` holds those that
only this producer has. ``tools/metrics_page.py`` writes ``docs/reference/metrics.md`` from this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple


class Kind(Enum):
    """How a metric is computed from its counters."""

    TOTAL = "total"
    """The count since the start; it only grows."""
    RATE = "rate"
    """Increase per second, over the windows."""
    AVERAGE = "average"
    """Increase of the first counter divided by that of the second, over the windows."""
    MAXIMUM = "maximum"
    """The largest value of the windows."""
    SHARE = "share"
    """A time in nanoseconds divided by the time that passed, over the windows."""
    GAUGE = "gauge"
    """The value at this moment."""


class Metric(NamedTuple):
    """One row.

    Attributes:
        name: Kafka's.
        kind: see ``Kind``.
        part: who counts: ``sender``, ``traffic`` (a broker's connections), ``callers`` (of the producer) or
            ``topic``; ``now`` for a value that is read at this moment.
        counters: the names of the counters there.
        unit: unit of the value.
        doc: meaning, for the page and for exporters.
    """

    name: str
    kind: Kind
    part: str
    counters: tuple[str, ...]
    unit: str
    doc: str


def _counted(name: str, part: str, counter: str, unit: str, doc: str) -> tuple[Metric, Metric]:
    """Return Kafka's pair of a rate and a total."""
    return (
        Metric(f"{name}-rate", Kind.RATE, part, (counter,), f"{unit}/s", doc),
        Metric(f"{name}-total", Kind.TOTAL, part, (counter,), unit, doc),
    )


def _measured(  # noqa: PLR0917 (a row of a table)
    name: str, part: str, total: str, count: str, largest: str, unit: str, doc: str
) -> tuple[Metric, Metric]:
    """Return Kafka's pair of an average and a maximum."""
    return (
        Metric(f"{name}-avg", Kind.AVERAGE, part, (total, count), unit, f"Average {doc}"),
        Metric(f"{name}-max", Kind.MAXIMUM, part, (largest,), unit, f"Largest {doc}"),
    )


def _now(name: str, unit: str, doc: str) -> Metric:
    return Metric(name, Kind.GAUGE, "now", (name,), unit, doc)


def _time(name: str, counter: str, doc: str) -> Metric:
    return Metric(f"{name}-time-ns-total", Kind.TOTAL, "callers", (counter,), "ns", doc)


def _traffic(to: str, of: str, throttled: str) -> tuple[Metric, ...]:
    """Return what Kafka counts per broker, and for all brokers together."""
    return (
        *_counted("request", "traffic", "requests", "requests", f"Requests sent{to}"),
        *_counted("response", "traffic", "responses", "responses", f"Responses received{of}"),
        *_counted("outgoing-byte", "traffic", "request_bytes", "bytes", f"Bytes sent{to}"),
        *_counted("incoming-byte", "traffic", "response_bytes", "bytes", f"Bytes received{of}"),
        *_measured(
            "request-size",
            "traffic",
            "request_bytes",
            "requests",
            "request_bytes_max",
            "bytes",
            f"size of a request{to}, its length field included",
        ),
        *_measured(
            "throttle-time", "traffic", "throttle_ms", "responses", "throttle_ms_max", "ms", throttled
        ),
    )


_THROTTLED = "throttle time in a response: how long a broker over its quota asks the producer to pause"

PRODUCER: Final = (
    *_counted(
        "record-send", "sender", "records_shipped", "records", "Records in ProduceRequests, retries included"
    ),
    *_counted(
        "record-retry",
        "sender",
        "records_retried",
        "records",
        "Records in batches that were queued for a retry",
    ),
    *_counted("record-error", "sender", "records_failed", "records", "Records that failed"),
    *_counted("byte", "sender", "bytes_sent", "bytes", "Bytes of batches in ProduceRequests, as sent"),
    *_measured(
        "record-size",
        "sender",
        "record_bytes",
        "batches_sent",
        "record_bytes_max",
        "bytes",
        "uncompressed size of a record (the average of its batch; Kafka takes the batch's largest)",
    ),
    *_measured(
        "batch-size",
        "sender",
        "bytes_sent",
        "batches_sent",
        "batch_bytes_max",
        "bytes",
        "size of a batch as sent",
    ),
    *_counted(
        "batch-split",
        "sender",
        "splits",
        "batches",
        "Batches that a broker refused with MESSAGE_TOO_LARGE and that were split",
    ),
    Metric(
        "compression-rate-avg",
        Kind.AVERAGE,
        "sender",
        ("compression", "batches_sent"),
        "ratio",
        "Average of a batch's compressed size divided by its uncompressed size",
    ),
    *_measured(
        "record-queue-time",
        "sender",
        "queued_ms",
        "batches_sent",
        "queued_ms_max",
        "ms",
        "time from the creation of a batch to its ProduceRequest",
    ),
    Metric(
        "records-per-request-avg",
        Kind.AVERAGE,
        "sender",
        ("records_shipped", "requests_sent"),
        "records",
        "Average number of records in a ProduceRequest",
    ),
    *_measured(
        "request-latency",
        "sender",
        "latency_ms_total",
        "answers",
        "latency_ms_max",
        "ms",
        "time from sending a ProduceRequest to its response",
    ),
    *_measured(
        "produce-throttle-time", "sender", "throttle_ms", "answers", "throttle_ms_max", "ms", _THROTTLED
    ),
    *_traffic("", "", f"{_THROTTLED}; any request (kafka-python's name)"),
    _now("requests-in-flight", "requests", "Requests in flight: sent, without a response"),
    _now("metadata-age", "s", "Age of the metadata; 0 before the first response"),
    _now("connection-count", "connections", "Open connections"),
    *_counted("connection-creation", "traffic", "opened", "connections", "Connections opened"),
    *_counted("connection-close", "traffic", "closed", "connections", "Connections closed"),
    *_counted("network-io", "traffic", "network_io", "operations", "Requests sent and responses received"),
    _now("buffer-total-bytes", "bytes", "`buffer_memory`"),
    _now("buffer-available-bytes", "bytes", "The part of `buffer_memory` that no batch has reserved"),
    *_counted(
        "buffer-exhausted",
        "callers",
        "exhausted",
        "records",
        "Records that got no memory within `max_block_ms`",
    ),
    Metric(
        "bufferpool-wait-ratio",
        Kind.SHARE,
        "callers",
        ("memory_ns",),
        "ratio",
        "Time that callers waited for memory divided by the time that passed; several callers can exceed 1",
    ),
    _time("bufferpool-wait", "memory_ns", "Time that callers waited for memory"),
    _now("waiting-threads", "callers", "Callers that wait for memory"),
    _time("metadata-wait", "metadata_ns", "Time that callers waited for metadata"),
    _time("flush", "flush_ns", "Time that callers spent in `flush`"),
    _time("txn-init", "txn_init_ns", "Time that callers spent in `init_transactions`"),
    _time("txn-begin", "txn_begin_ns", "Time that callers spent in `begin_transaction`"),
    _time(
        "txn-send-offsets", "txn_send_offsets_ns", "Time that callers spent in `send_offsets_to_transaction`"
    ),
    _time("txn-commit", "txn_commit_ns", "Time that callers spent in `commit_transaction`"),
    _time("txn-abort", "txn_abort_ns", "Time that callers spent in `abort_transaction`"),
)
"""Group ``producer-metrics``, as in Kafka."""

OWN: Final = (
    Metric(
        "record-ack-total",
        Kind.TOTAL,
        "sender",
        ("records_sent",),
        "records",
        "Records acknowledged (with `acks=0`: written to the connection)",
    ),
    Metric(
        "batch-send-total",
        Kind.TOTAL,
        "sender",
        ("batches_sent",),
        "batches",
        "Batches in ProduceRequests, retries included",
    ),
    Metric(
        "batch-expired-total",
        Kind.TOTAL,
        "sender",
        ("expired",),
        "batches",
        "Batches that failed because `delivery_timeout_ms` passed",
    ),
    Metric(
        "produce-request-total", Kind.TOTAL, "sender", ("requests_sent",), "requests", "ProduceRequests sent"
    ),
    Metric(
        "epoch-bump-total",
        Kind.TOTAL,
        "now",
        ("epoch-bump-total",),
        "epochs",
        "Times the producer epoch was raised",
    ),
    _now("batches-queued", "batches", "Batches that wait to be sent"),
    _now("batches-incomplete", "batches", "Batches that have neither been acknowledged nor failed"),
)
"""Also in group ``producer-metrics``; Kafka has no such metrics."""

NODE: Final = (
    *_traffic(" to this broker", " from this broker", f"{_THROTTLED}; any request (kafka-python's name)"),
    *_measured(
        "request-latency",
        "traffic",
        "latency_ms",
        "responses",
        "latency_ms_max",
        "ms",
        "time from sending a request of any kind to its response",
    ),
)
"""Groups ``producer-node-metrics.node-N``, one per broker; bootstrap addresses have negative numbers."""

TOPIC: Final = (
    *_counted(
        "record-send", "topic", "records_shipped", "records", "Records in ProduceRequests, retries included"
    ),
    *_counted(
        "record-retry",
        "topic",
        "records_retried",
        "records",
        "Records in batches that were queued for a retry",
    ),
    *_counted("record-error", "topic", "records_failed", "records", "Records that failed"),
    *_counted("byte", "topic", "bytes_sent", "bytes", "Bytes of batches in ProduceRequests, as sent"),
    Metric(
        "compression-rate",
        Kind.AVERAGE,
        "topic",
        ("compression", "batches"),
        "ratio",
        "Average of a batch's compressed size divided by its uncompressed size",
    ),
)
"""Groups ``producer-topic-metrics.T``, one per topic."""

COUNT: Final = Metric(
    "count", Kind.GAUGE, "now", ("count",), "metrics", "Number of all metrics, this one included"
)
"""Group ``kafka-metrics-count``."""

MISSING: Final[Mapping[str, str]] = {
    "io-time-ns-avg, io-time-ns-total, io-ratio, io-wait-time-ns-avg, io-wait-time-ns-total, io-wait-ratio,"
    " select-rate, select-total": "there is no selector: one trio loop, which may be the"
    " application's, waits for everything",
    "bufferpool-wait-time-total, iotime-total, io-waittime-total": "Kafka calls them deprecated",
    "successful-authentication-*, failed-authentication-*, successful-reauthentication-*,"
    " failed-reauthentication-*, reauthentication-latency-*": "a refused login is raised as an error"
    " with its cause, and not counted",
    "txn-prepare-time-ns-total": "KIP-939 is not released; `prepare_transaction` is not timed",
    "version, commit-id, start-time-ms (group app-info)": "they are not numbers; see `splashdam.__version__`",
}
"""Metrics of Java's producer that do not exist here, and why."""
