"""Every metric of a producer in one table: name, unit, meaning, and which figures it is made of.

Names, groups and units are Kafka's (and kafka-python's) wherever they have the figure; rows that only we have
say so. ``docs/reference/metrics.md`` is written from this table by ``tools/metrics_page.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple


class Kind(Enum):
    """How a metric is read from the figures it names."""

    TOTAL = "total"
    """Since the start; only grows."""
    RATE = "rate"
    """Per second, over the windows."""
    AVERAGE = "average"
    """The first figure by the second, over the windows."""
    MAXIMUM = "maximum"
    """Over the windows."""
    SHARE = "share"
    """Of the time that passed: a figure in nanoseconds per nanosecond, over the windows."""
    GAUGE = "gauge"
    """The value at this moment."""


class Metric(NamedTuple):
    """One row.

    Attributes:
        name: Kafka's.
        kind: see ``Kind``.
        part: where the figures are: ``sender``, ``traffic``, ``callers``, ``topic``, or ``now``.
        figures: their names there.
        unit: of the value.
        doc: meaning.
    """

    name: str
    kind: Kind
    part: str
    figures: tuple[str, ...]
    unit: str
    doc: str


def _counted(name: str, part: str, figure: str, unit: str, doc: str) -> tuple[Metric, Metric]:
    """Kafka's pair of a rate and a total."""
    return (
        Metric(f"{name}-rate", Kind.RATE, part, (figure,), f"{unit}/s", doc),
        Metric(f"{name}-total", Kind.TOTAL, part, (figure,), unit, doc),
    )


def _measured(  # noqa: PLR0917 (a row of a table)
    name: str, part: str, figure: str, count: str, largest: str, unit: str, doc: str
) -> tuple[Metric, Metric]:
    """Kafka's pair of an average and a maximum."""
    return (
        Metric(f"{name}-avg", Kind.AVERAGE, part, (figure, count), unit, f"{doc}, on average"),
        Metric(f"{name}-max", Kind.MAXIMUM, part, (largest,), unit, f"{doc}, at most"),
    )


def _now(name: str, unit: str, doc: str) -> Metric:
    return Metric(name, Kind.GAUGE, "now", (name,), unit, doc)


def _time(name: str, figure: str, doc: str) -> Metric:
    return Metric(f"{name}-time-ns-total", Kind.TOTAL, "callers", (figure,), "ns", doc)


def _traffic(what: str, throttled: str) -> tuple[Metric, ...]:
    """What Kafka counts per broker, and for all brokers together."""
    return (
        *_counted("request", "traffic", "requests", "requests", f"Requests written{what}"),
        *_counted("response", "traffic", "responses", "answers", f"Answers read{what}"),
        *_counted("outgoing-byte", "traffic", "request_bytes", "bytes", f"Bytes written{what}"),
        *_counted("incoming-byte", "traffic", "response_bytes", "bytes", f"Bytes read{what}"),
        *_measured(
            "request-size",
            "traffic",
            "request_bytes",
            "requests",
            "request_bytes_max",
            "bytes",
            f"Size of a request{what}, with its frame",
        ),
        *_measured(
            "throttle-time", "traffic", "throttle_ms", "responses", "throttle_ms_max", "ms", throttled
        ),
    )


_THROTTLED = "How long answers told the producer to wait before its next request"

PRODUCER: Final = (
    *_counted("record-send", "sender", "records_shipped", "records", "Records in requests, repeats included"),
    *_counted(
        "record-retry", "sender", "records_retried", "records", "Records in batches that are sent again"
    ),
    *_counted("record-error", "sender", "records_failed", "records", "Records that were not delivered"),
    *_counted("byte", "sender", "bytes_sent", "bytes", "Bytes of batches in requests"),
    *_measured(
        "record-size",
        "sender",
        "record_bytes",
        "batches_sent",
        "record_bytes_max",
        "bytes",
        "Size of a record before compression (the average one of its batch; Kafka takes the largest)",
    ),
    *_measured(
        "batch-size",
        "sender",
        "bytes_sent",
        "batches_sent",
        "batch_bytes_max",
        "bytes",
        "Size of a batch as sent",
    ),
    *_counted("batch-split", "sender", "splits", "batches", "Batches the broker found too large, divided"),
    Metric(
        "compression-rate-avg",
        Kind.AVERAGE,
        "sender",
        ("compression", "batches_sent"),
        "ratio",
        "Size of a batch as sent by its size before compression, on average",
    ),
    *_measured(
        "record-queue-time",
        "sender",
        "queued_ms",
        "batches_sent",
        "queued_ms_max",
        "ms",
        "From the creation of a batch to its request",
    ),
    Metric(
        "records-per-request-avg",
        Kind.AVERAGE,
        "sender",
        ("records_shipped", "requests_sent"),
        "records",
        "Records in a ProduceRequest, on average",
    ),
    *_measured(
        "request-latency",
        "sender",
        "latency_ms_total",
        "answers",
        "latency_ms_max",
        "ms",
        "From writing a ProduceRequest to its answer",
    ),
    *_measured(
        "produce-throttle-time", "sender", "throttle_ms", "answers", "throttle_ms_max", "ms", _THROTTLED
    ),
    *_traffic("", f"{_THROTTLED} to the same broker (kafka-python's name)"),
    _now("requests-in-flight", "requests", "Requests without an answer"),
    _now("metadata-age", "s", "Age of what is known of the cluster; 0 before the first answer"),
    _now("connection-count", "connections", "Open connections"),
    *_counted("connection-creation", "traffic", "opened", "connections", "Connections made"),
    *_counted("connection-close", "traffic", "closed", "connections", "Connections that ended"),
    *_counted("network-io", "traffic", "network_io", "operations", "Requests written and answers read"),
    _now("buffer-total-bytes", "bytes", "`buffer_memory`"),
    _now("buffer-available-bytes", "bytes", "What of it nothing has reserved"),
    *_counted(
        "buffer-exhausted", "callers", "exhausted", "records", "Records without memory within `max_block_ms`"
    ),
    Metric(
        "bufferpool-wait-ratio",
        Kind.SHARE,
        "callers",
        ("memory_ns",),
        "ratio",
        "Share of the time in which a caller waited for memory; above 1 with several callers",
    ),
    _time("bufferpool-wait", "memory_ns", "Time callers waited for memory"),
    _now("waiting-threads", "callers", "Callers who wait for memory now"),
    _time("metadata-wait", "metadata_ns", "Time callers waited for metadata"),
    _time("flush", "flush_ns", "Time spent in `flush`"),
    _time("txn-init", "txn_init_ns", "Time spent in `init_transactions`"),
    _time("txn-begin", "txn_begin_ns", "Time spent in `begin_transaction`"),
    _time("txn-send-offsets", "txn_send_offsets_ns", "Time spent in `send_offsets_to_transaction`"),
    _time("txn-commit", "txn_commit_ns", "Time spent in `commit_transaction`"),
    _time("txn-abort", "txn_abort_ns", "Time spent in `abort_transaction`"),
)
"""Group ``producer-metrics``, as in Kafka."""

OWN: Final = (
    Metric("record-ack-total", Kind.TOTAL, "sender", ("records_sent",), "records", "Records delivered"),
    Metric("batch-send-total", Kind.TOTAL, "sender", ("batches_sent",), "batches", "Batches in requests"),
    Metric(
        "batch-expired-total", Kind.TOTAL, "sender", ("expired",), "batches", "Batches that came too late"
    ),
    Metric("produce-request-total", Kind.TOTAL, "sender", ("requests_sent",), "requests", "ProduceRequests"),
    Metric("epoch-bump-total", Kind.TOTAL, "now", ("epoch-bump-total",), "epochs", "Idempotence began anew"),
    _now("batches-queued", "batches", "Batches that wait to be sent"),
    _now("batches-incomplete", "batches", "Batches whose outcome is open"),
)
"""In the same group, only here."""

NODE: Final = (
    *_traffic(" to this broker", f"{_THROTTLED} (kafka-python's name)"),
    *_measured(
        "request-latency",
        "traffic",
        "latency_ms",
        "responses",
        "latency_ms_max",
        "ms",
        "From writing a request of any kind to its answer",
    ),
)
"""Groups ``producer-node-metrics.node-N``, one per broker; addresses to begin with have negative numbers."""

TOPIC: Final = (
    *_counted("record-send", "topic", "records_shipped", "records", "Records in requests, repeats included"),
    *_counted(
        "record-retry", "topic", "records_retried", "records", "Records in batches that are sent again"
    ),
    *_counted("record-error", "topic", "records_failed", "records", "Records that were not delivered"),
    *_counted("byte", "topic", "bytes_sent", "bytes", "Bytes of batches in requests"),
    Metric(
        "compression-rate",
        Kind.AVERAGE,
        "topic",
        ("compression", "batches"),
        "ratio",
        "Size of a batch as sent by its size before compression, on average",
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
    " failed-reauthentication-*, reauthentication-latency-*": "a refused login is an error with its"
    " cause, not a count",
    "txn-prepare-time-ns-total": "there is no two-phase commit (KIP-939)",
    "version, commit-id, start-time-ms (group app-info)": "they are no numbers; see `splashdam.__version__`",
}
"""Metrics of Java's producer that do not exist here, and why."""
