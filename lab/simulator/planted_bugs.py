"""Planted bugs, each a patch of one method: the simulator must find every one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
import trio

from splashdam.accumulator.accumulator import RecordAccumulator
from splashdam.accumulator.batch import ProducerBatch
from splashdam.accumulator.readiness import PartitionQueues
from splashdam.embedded_broker.handlers import produce
from splashdam.embedded_broker.producing import appending, fast_produce
from splashdam.model.views.standing import Standing
from splashdam.record.batch import HEADER_BYTES
from splashdam.sender.idempotence import Idempotence, PartitionSequences
from splashdam.sender.shipping import Shipping
from splashdam.sender.verdicts import VERDICTS, Row, Verdict
from splashdam.sender.wakeup import SharedLoopWakeup
from splashdam.storage.flushing import FlushRound, LogFlusher
from splashdam.storage.log import AppendResult, Log
from splashdam.storage.producers.state import ProducerStates
from splashdam.storage.transaction_marker import TransactionMarker

Plant = Callable[[pytest.MonkeyPatch], None]


def wrong_sequence_on_retry(patch: pytest.MonkeyPatch) -> None:
    """A retried batch gets new sequence numbers, so the broker takes it for a new one."""
    drained = Idempotence.drained

    def drained_wrongly(self: Idempotence, batch: ProducerBatch) -> None:
        partition = self._partitions.get(batch.topic_partition)
        if batch.sequenced and partition is not None and batch in partition.in_flight:
            partition.in_flight.remove(batch)
            partition.number(batch)
            return
        drained(self, batch)

    patch.setattr(Idempotence, "drained", drained_wrongly)


def repeats_at_the_end_of_the_queue(patch: pytest.MonkeyPatch) -> None:
    """A retried batch queues behind later batches."""
    patch.setattr(PartitionQueues, "insert", PartitionQueues.append)


def lost_wakeup(patch: pytest.MonkeyPatch) -> None:
    """One wake-up in seven is lost, as if it came between the sender's last check and its sleep."""
    wake = SharedLoopWakeup.wake

    def heard_mostly(self: SharedLoopWakeup) -> None:
        count = vars(self)["_wakes"] = vars(self).get("_wakes", 0) + 1
        if count % 7:
            wake(self)

    patch.setattr(SharedLoopWakeup, "wake", heard_mostly)


def buffer_reused_while_in_flight(patch: pytest.MonkeyPatch) -> None:
    """A batch's memory is overwritten when its request is sent, and not after the answer.

    (The pool refuses a buffer that somebody may read, so zeros stand for the next batch.)
    """
    ship = Shipping.ship

    def ship_and_reuse(self: Shipping, link: Any, batches: Any, patience_ms: float) -> None:
        ship(self, link, batches, patience_ms)
        for batch in batches:
            if batch.sealed is not None:
                batch.sealed[HEADER_BYTES:] = bytes(len(batch.sealed) - HEADER_BYTES)

    patch.setattr(Shipping, "ship", ship_and_reuse)


def memory_of_late_batches_leaks(patch: pytest.MonkeyPatch) -> None:
    """A batch that was given up does not release its memory when its answer comes late."""
    finish = RecordAccumulator._finish

    def finish_late(self: RecordAccumulator, batch: ProducerBatch) -> None:
        if batch not in self._incomplete:  # it was given up before
            batch.charged_bytes = 0
        finish(self, batch)

    patch.setattr(RecordAccumulator, "_finish", finish_late)


def silence_is_success(patch: pytest.MonkeyPatch) -> None:
    """A request that times out counts as delivered."""
    patch.setitem(VERDICTS, 7, Row(Verdict.DUPLICATE, Verdict.DUPLICATE))


def renumbered_at_once(patch: pytest.MonkeyPatch) -> None:
    """After a refusal batches get new sequence numbers, though they may be written under the old ones."""
    patch.setattr(PartitionSequences, "settle", PartitionSequences.unsettled)


def second_batch_does_not_wait_for_the_first(patch: pytest.MonkeyPatch) -> None:
    """A broker accepts any first number of an unknown producer, so a later batch can overtake the first."""

    def holds_new(self: PartitionSequences) -> Standing | None:
        waits = self.unresolved or self.refused_from is not None or len(self.in_flight) >= 5
        return Standing.GAP if waits else None

    patch.setattr(PartitionSequences, "holds_new", holds_new)


def acknowledged_before_append(patch: pytest.MonkeyPatch) -> None:
    """The broker answers first and appends a little later."""
    append = appending.append_batch

    def append_later(log: Log, batch: Any, broker: Any, admitted: Any = None) -> AppendResult:
        if len(batch) % 3:
            return append(log, batch, broker, admitted)
        kept, offset = bytes(batch), log.log_end_offset

        async def later() -> None:
            await trio.sleep(0.2)
            if broker.logs.logs.get(log.topic_partition) is log:
                append(log, kept, broker, admitted)

        broker._nursery.start_soon(later)
        return AppendResult(offset, offset, -1, 0, False)

    patch.setattr(produce, "append_batch", append_later)
    patch.setattr(fast_produce, "append_batch", append_later)


def acknowledged_before_flush(patch: pytest.MonkeyPatch) -> None:
    """``flush.messages=1``, and the broker does not wait for the disk."""
    patch.setattr(Log, "must_flush", False)


def segment_closed_during_a_sync_counts_as_flushed(patch: pytest.MonkeyPatch) -> None:
    """A segment that was active when a sync began counts as synced, however it grew meanwhile."""
    begin = LogFlusher.begin

    def begin_with_active(self: LogFlusher) -> FlushRound:
        begun = begin(self)
        return attrs.evolve(begun, closed=(*begun.closed, self._segments.active))

    patch.setattr(LogFlusher, "begin", begin_with_active)


def duplicate_batch_accepted(patch: pytest.MonkeyPatch) -> None:
    """The broker does not recognise a repeated batch."""
    patch.setattr(ProducerStates, "check", lambda *_: None)


def producers_forgotten_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    """A broker forgets its producers at a restart."""
    opened = Log.open.__func__  # type: ignore[attr-defined]  # the function under the class method

    def open_without_producers(cls: type[Log], *args: Any, **options: Any) -> Log:
        log: Log = opened(cls, *args, **options)
        log.producers._entries.clear()
        return log

    patch.setattr(Log, "open", classmethod(open_without_producers))


def aborts_are_written_as_commits(patch: pytest.MonkeyPatch) -> None:
    """The marker of an aborted transaction says that it was committed."""
    append = Log.append_marker

    def append_commit(self: Log, marker: TransactionMarker, **options: Any) -> AppendResult:
        return append(self, marker._replace(is_commit=True), **options)

    patch.setattr(Log, "append_marker", append_commit)


PLANTS: dict[Plant, tuple[int, ...]] = {
    wrong_sequence_on_retry: (15, 27),
    repeats_at_the_end_of_the_queue: (3, 30),
    lost_wakeup: (47,),
    buffer_reused_while_in_flight: (4, 7),
    memory_of_late_batches_leaks: (10, 20),
    silence_is_success: (100, 123),
    renumbered_at_once: (409, 524),
    second_batch_does_not_wait_for_the_first: (137,),
    acknowledged_before_append: (0, 1),
    acknowledged_before_flush: (9, 13),
    segment_closed_during_a_sync_counts_as_flushed: (885, 2166),
    duplicate_batch_accepted: (9, 13),
    producers_forgotten_at_a_restart: (131, 136),
    aborts_are_written_as_commits: (14, 27),
}
"""The planted bugs, with seeds that have found them; a rare bug shows in one of hundreds of runs."""

MOST_SEEDS = 100
"""A change of the producer or the simulator may change the run of a seed; then up to so many seeds after it
are tried."""
