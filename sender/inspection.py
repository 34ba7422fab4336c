"""How the queues and connections of a sender stand: its decisions are asked, and nothing is changed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from splashdam.accumulator.batch import BatchState, ProducerBatch, sequence_after
from splashdam.accumulator.readiness import DrainGate
from splashdam.model.errors import KafkaError, message_of
from splashdam.model.values import TopicPartition
from splashdam.model.views.producer import BatchView, ConnectionView, QueueView
from splashdam.model.views.standing import Standing
from splashdam.net.connect import address_text
from splashdam.sender.broker_links import BrokerLink
from splashdam.sender.context import SenderContext

MOST_BATCHES = 10
"""So many batches of a queue are described."""


class SenderView(NamedTuple):
    """The parts of a `ProducerView` that the sender knows; attributes as there."""

    queues: tuple[QueueView, ...]
    busy_partitions: int
    queued_batches: int
    in_flight_batches: int
    connections: tuple[ConnectionView, ...]


def inspect_sender(
    context: SenderContext,
    gate: DrainGate,
    links: Iterable[BrokerLink],
    in_flight: Iterable[ProducerBatch],
    limit: int,
) -> SenderView:
    """Look at a sender. The guard is held.

    Args:
        context: of the sender.
        gate: of its drains.
        links: its connections.
        in_flight: batches without an answer.
        limit: the number of partitions to describe.
    """
    return _Look(context, list(links), list(in_flight)).view(gate, limit)


class _Found(NamedTuple):
    batches: Sequence[ProducerBatch]
    leader: int
    standing: Standing
    left_ms: float


class _Look:
    """One look."""

    def __init__(
        self, context: SenderContext, links: list[BrokerLink], in_flight: list[ProducerBatch]
    ) -> None:
        self._context = context
        self._now_ms = context.clock.now_ms()
        self._links = links
        self._in_flight = in_flight
        self._found: list[_Found] = []

    def view(self, gate: DrainGate, limit: int) -> SenderView:
        cluster = self._context.metadata.cluster
        self._context.accumulator.ready(cluster, self._now_ms, gate, note=self._note)
        sent: dict[TopicPartition, list[ProducerBatch]] = {}
        for batch in self._in_flight:
            sent.setdefault(batch.topic_partition, []).append(batch)
        queued = {found.batches[0].topic_partition for found in self._found}
        # What waits comes first, and of that what has waited longest.
        self._found.sort(key=lambda found: (found.standing.goes, found.batches[0].created_ms))
        queues = [self._queue(found, sent) for found in self._found[:limit]]
        busy = [where for where in sent if where not in queued]
        queues += [
            self._idle(where, cluster.leader_for(where), sent[where]) for where in busy[: limit - len(queues)]
        ]
        return SenderView(
            queues=tuple(queues),
            busy_partitions=len(queued) + len(busy),
            queued_batches=sum(len(found.batches) for found in self._found),
            in_flight_batches=len(self._in_flight),
            connections=tuple(map(self._connection, self._links)),
        )

    def _note(
        self, batches: Sequence[ProducerBatch], leader: int, standing: Standing, left_ms: float
    ) -> None:
        """See ``readiness.Note``. What may go then waits for its leader's connection."""
        if standing.goes:
            link = next((each for each in self._links if each.node.node_id == leader), None)
            held, delay_ms = (Standing.CONNECTS, math.inf) if link is None else link.holds(self._now_ms)
            if held is not None:
                standing, left_ms = held, delay_ms
        self._found.append(_Found(batches, leader, standing, left_ms))

    def _queue(self, found: _Found, sent: dict[TopicPartition, list[ProducerBatch]]) -> QueueView:
        where = found.batches[0].topic_partition
        return QueueView(
            topic_partition=where,
            leader=found.leader,
            standing=found.standing,
            left_ms=None if math.isinf(found.left_ms) else found.left_ms,
            queued=self._batches(found.batches),
            queued_batches=len(found.batches),
            in_flight=self._batches(sent.get(where, ())),
            limit_bytes=self._context.accumulator.limit_bytes(where.topic),
        )

    def _idle(self, where: TopicPartition, leader: int, sent: Sequence[ProducerBatch]) -> QueueView:
        return QueueView(
            topic_partition=where,
            leader=leader,
            standing=None,
            left_ms=None,
            in_flight=self._batches(sent),
            limit_bytes=self._context.accumulator.limit_bytes(where.topic),
        )

    def _batches(self, batches: Iterable[ProducerBatch]) -> tuple[BatchView, ...]:
        return tuple(map(self._batch, islice(batches, MOST_BATCHES)))

    def _batch(self, batch: ProducerBatch) -> BatchView:
        records = batch.records_now
        is_sent = batch.state in (BatchState.IN_FLIGHT, BatchState.ABANDONED)
        numbered = batch.sequenced
        return BatchView(
            state="in flight" if is_sent else "open" if batch.open else "closed",
            records=records,
            size_bytes=batch.size_bytes,
            age_ms=self._now_ms - batch.created_ms,
            attempts=batch.attempts,
            producer_epoch=batch.producer_epoch if numbered else None,
            first_sequence=batch.base_sequence if numbered else None,
            last_sequence=sequence_after(batch.base_sequence, records - 1) if numbered else None,
            last_error=_said(batch.last_error),
        )

    def _connection(self, link: BrokerLink) -> ConnectionView:
        standing, left_ms = link.holds(self._now_ms)
        return ConnectionView(
            node_id=link.node.node_id,
            address=address_text(link.node.host, link.node.port),
            state=link.state.name.lower(),
            in_flight=link.in_flight,
            standing=standing if link.state.name != "IDLE" or standing is Standing.RECONNECTS else None,
            left_ms=None if math.isinf(left_ms) or standing is None else left_ms,
            last_error=_said(link.last_error),
        )


def _said(error: BaseException | None) -> str | None:
    """Return what an error says; None without one."""
    if error is None:
        return None
    return message_of(error) if isinstance(error, KafkaError) else str(error) or repr(error)
