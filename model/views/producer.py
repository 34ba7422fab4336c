"""What one sees of a producer: frozen values, with units in their names."""

from __future__ import annotations

import attrs

from splashdam.model.values import TopicPartition
from splashdam.model.views.standing import Standing


@attrs.frozen(kw_only=True)
class BatchView:
    """A batch.

    Attributes:
        state: ``open``, ``closed`` or ``in flight``.
        records: how many it has.
        size_bytes: in a request: exact once it was sealed, expected before.
        age_ms: since its first record.
        attempts: that have failed.
        producer_epoch: of its sequence numbers; None without them.
        first_sequence, last_sequence: of its records; None before it was sent, and without idempotence.
        last_error: why the last attempt failed; None if none did.
    """

    state: str
    records: int
    size_bytes: int
    age_ms: float
    attempts: int = 0
    producer_epoch: int | None = None
    first_sequence: int | None = None
    last_sequence: int | None = None
    last_error: str | None = None


@attrs.frozen(kw_only=True)
class QueueView:
    """A partition that has batches.

    Attributes:
        topic_partition: which one.
        leader: id of the broker that leads it; -1 while none is known.
        standing: of the first batch; None if none is queued.
        left_ms: until that changes by itself; None if an event has to come.
        queued: the batches in their order, at most ten.
        queued_batches: how many there are.
        in_flight: the batches that were sent and have no answer yet, at most ten.
        limit_bytes: the size at which the open batch is full, before compression.
    """

    topic_partition: TopicPartition
    leader: int
    standing: Standing | None
    left_ms: float | None
    queued: tuple[BatchView, ...] = ()
    queued_batches: int = 0
    in_flight: tuple[BatchView, ...] = ()
    limit_bytes: int

    @property
    def why(self) -> str:
        """What its first batch waits for, in words; empty if none is queued."""
        if self.standing is None:
            return ""
        if self.left_ms is None or self.standing.goes:
            return str(self.standing.value)
        return f"{self.standing.value}, in {self.left_ms:,.0f} ms"


@attrs.frozen(kw_only=True)
class ConnectionView:
    """A connection of a producer.

    Attributes:
        node_id: of the broker; negative for a bootstrap address.
        address: its host and port.
        state: ``idle``, ``connecting`` or ``ready``.
        in_flight: requests without an answer.
        standing: why no request can be written now; None if one can.
        left_ms: until that changes by itself; None if an event has to come.
        last_error: why the last connection failed or was lost; None if none did.
    """

    node_id: int
    address: str
    state: str
    in_flight: int
    standing: Standing | None
    left_ms: float | None
    last_error: str | None = None


@attrs.frozen(kw_only=True)
class StageView:
    """How long records spend in one stage of their way.

    Attributes:
        name: of the stage.
        average_ms: over the last windows of ``metrics_sample_window_ms``.
        largest_ms: in them.
        count: of what is averaged.
    """

    name: str
    average_ms: float
    largest_ms: float
    count: int


@attrs.frozen(kw_only=True)
class ProducerView:
    """A producer at one moment.

    Attributes:
        client_id: its name.
        taken_ms: when, in milliseconds since the epoch.
        state: ``new``, ``running``, ``closing``, ``closed`` or ``foreign``.
        bootstrap_servers: as it was given them.
        producer_id, producer_epoch: of an idempotent producer; None before a broker has assigned them.
        transactional_id: None without one.
        transaction: state of the transaction; None without a transactional id.
        buffer_memory_bytes: what its batches may reserve together.
        reserved_bytes: what they have reserved.
        waiting_callers: calls of ``send`` that wait for memory.
        queues: partitions that have batches, those whose batches wait for something first; at most 200.
        busy_partitions: how many there are.
        queued_batches, in_flight_batches: of all partitions.
        connections: to brokers.
        metadata_wait_ms, memory_wait_ms: what calls of ``send`` have waited, together, since the start.
        stages: where the time of records goes once they are in a batch.
        records_sent, records_failed: since the start.
        last_record_error: why the last of these failed; None if none has.
        failure: why the cluster does not answer; empty if it does.
        error: the error that has stopped it for good; None if none has.
    """

    client_id: str
    taken_ms: int
    state: str
    bootstrap_servers: str
    producer_id: int | None = None
    producer_epoch: int | None = None
    transactional_id: str | None = None
    transaction: str | None = None
    buffer_memory_bytes: int
    reserved_bytes: int
    waiting_callers: int
    queues: tuple[QueueView, ...] = ()
    busy_partitions: int = 0
    queued_batches: int = 0
    in_flight_batches: int = 0
    connections: tuple[ConnectionView, ...] = ()
    metadata_wait_ms: float = 0.0
    memory_wait_ms: float = 0.0
    stages: tuple[StageView, ...] = ()
    records_sent: int = 0
    records_failed: int = 0
    last_record_error: str | None = None
    failure: str = ""
    error: str | None = None
