"""``inspect()``: how a producer is at one moment, for its console and for whoever asks why a batch waits."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from splashdam.client.observing.metrics import Measured
from splashdam.model.counters import Readings
from splashdam.model.errors import KafkaError, message_of
from splashdam.model.views.producer import ProducerView, StageView

MOST_PARTITIONS = 200
"""So many partitions are described; the counts are those of all."""

_STAGES = (
    ("in a batch", "queued_ms", "batches_sent", "queued_ms_max"),
    ("from request to answer", "latency_ms_total", "answers", "latency_ms_max"),
    ("throttled", "throttle_ms", "answers", "throttle_ms_max"),
)
"""Each with its counters: the sum of the times, what is averaged, and the largest."""


class Inspectable(Measured, Protocol):
    """A producer's core."""

    @property
    def state(self) -> Enum: ...


def inspect_producer(core: Inspectable) -> ProducerView:
    """Return how a producer is; from any thread."""
    return core.guard.run(_inspect, core)


def _inspect(core: Inspectable) -> ProducerView:
    sender, memory, settings = core.sender, core.accumulator.memory, core.settings
    found, identity, transactions = sender.inspect(MOST_PARTITIONS), sender.identity, sender.transactions
    totals, callers = sender.counters, core.intake.caller_counters
    error, refused = sender.fatal_error, sender.last_record_error
    servers = settings.bootstrap_servers
    return ProducerView(
        client_id=str(settings.client_id),
        taken_ms=core.clock.wall_ms(),
        state=core.state.name.lower(),
        bootstrap_servers=servers if isinstance(servers, str) else ", ".join(servers),
        producer_id=None if identity is None else identity.producer_id,
        producer_epoch=None if identity is None else identity.epoch,
        transactional_id=settings.transactional_id,
        transaction=None if transactions is None else transactions.state.name.lower().replace("_", " "),
        buffer_memory_bytes=memory.total_bytes,
        reserved_bytes=memory.total_bytes - memory.free_bytes,
        waiting_callers=memory.waiting,
        metadata_wait_ms=callers.metadata_ns / 1e6,
        memory_wait_ms=callers.memory_ns / 1e6,
        stages=_stages(core),
        records_sent=totals.records_sent,
        records_failed=totals.records_failed,
        last_record_error=None if refused is None else _text_of(refused),
        failure=core.metadata.obstacle() or core.metadata.last_failure,
        error=None if error is None else message_of(error),
        **found._asdict(),
    )


def _text_of(error: BaseException) -> str:
    return message_of(error) if isinstance(error, KafkaError) else str(error)


def _stages(core: Inspectable) -> tuple[StageView, ...]:
    """Return where the time of records goes, in the order of their way."""
    counters = core.sender.counters
    now_ms = core.clock.now_ms()
    counters.windows.roll(now_ms)
    sender = Readings([counters], counters.windows.elapsed_s(now_ms))
    return tuple(
        StageView(
            name=name,
            average_ms=sender.average(total, count),
            largest_ms=sender.largest(largest),
            count=int(counters.growth(count)),
        )
        for name, total, count, largest in _STAGES
    )
