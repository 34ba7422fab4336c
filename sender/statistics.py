"""What a sender counts."""

from __future__ import annotations

from typing import NamedTuple


class SenderStatistics(NamedTuple):
    """Totals since the start, and a few values of this moment. Kafka's metrics are made of these.

    Attributes:
        requests_sent: ProduceRequests written.
        batches_sent: batches in them, repeats included.
        bytes_sent: their bytes.
        records_sent: records in batches that were acknowledged (or written, with ``acks=0``).
        records_failed: records whose batch failed, expired or was aborted.
        retries: batches queued again.
        splits: batches that were divided.
        expired: batches whose delivery timeout passed.
        latency_ms_total: from writing a ProduceRequest to its answer, summed over all answers.
        answers: ProduceResponses.
        epoch_bumps: how often idempotence started over.
        connections: open connections now.
        in_flight_requests: requests without an answer now.
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


class Counters:
    """The totals while they grow; only the sender's task writes them."""

    def __init__(self) -> None:
        self.requests_sent = 0
        self.batches_sent = 0
        self.bytes_sent = 0
        self.records_sent = 0
        self.records_failed = 0
        self.retries = 0
        self.splits = 0
        self.expired = 0
        self.latency_ms_total = 0.0
        self.answers = 0
        self.turns = 0

    def snapshot(self, *, epoch_bumps: int, connections: int, in_flight_requests: int) -> SenderStatistics:
        """The totals, with the values of this moment."""
        return SenderStatistics(
            **vars(self),
            epoch_bumps=epoch_bumps,
            connections=connections,
            in_flight_requests=in_flight_requests,
        )
