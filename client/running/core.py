"""What a producer's loop may refer to: everything but the producer.

So a producer that nobody uses any more is collected although its loop still runs, and that closes it.

What other threads have a producer's loop do: by a task of it, or by themselves once it has ended.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import trio

from splashdam.client.running import process
from splashdam.client.running.connecting import TrackedConnect
from splashdam.client.running.guard import make_guard
from splashdam.client.running.lifecycle import TRANSITIONS, Event, State
from splashdam.client.running.wiring import (
    authenticator,
    batch_listener,
    make_accumulator,
    make_metadata,
    secured,
    sender_settings,
)
from splashdam.client.sending.emptying import Emptying
from splashdam.client.sending.handover import HandOver
from splashdam.client.sending.intake import RecordIntake
from splashdam.client.sending.late import LateRecords
from splashdam.client.sending.settling import Settling
from splashdam.client.settings.producer_settings import ProducerSettings
from splashdam.client.waiters import SENDER_THREADS, wait_in_thread
from splashdam.model.errors import IllegalStateError, KafkaError
from splashdam.model.lifecycle import next_state
from splashdam.model.log_text import fields
from splashdam.net.clock import Clock
from splashdam.net.connect import Connect
from splashdam.record.kernel.outcomes import outcome_table
from splashdam.sender.latch import Latch
from splashdam.sender.metadata import run_waiters
from splashdam.sender.sender import Sender
from splashdam.sender.wakeup import Wakeup

if TYPE_CHECKING:
    from splashdam.accumulator.batch import ProducerBatch
    from splashdam.client.observing.metric_reporters import Reporters
    from splashdam.client.transactions.transactions import Transactions
    from splashdam.sender.context import SenderContext
    from splashdam.sender.links import LinkDirectory
    from splashdam.sender.telemetry.telemetry import Telemetry

logger = logging.getLogger("splashdam.client")


def _log_waiter_error(error: Exception) -> None:
    logger.error("who waited for a batch raised", exc_info=error)


outcome_table.on_waiter_error = _log_waiter_error

FORCED_SECONDS = 0.1
"""How long a loop that was told to end at once may take for it, before nobody waits for it any more."""


class ProducerCore:
    """Accumulator, sender and intake of one producer, and their common life.

    Args:
        settings: complete and free of contradictions (``producer_settings``).
        addresses: where the cluster is looked for first.
        connect: opens connections.
        clock: the one clock; ``trio.run`` has the same.
        own_loop: nothing else runs in the loop of ``main``, so that it may stand still for a moment.

    Attributes:
        state: see ``lifecycle.py``.
        connect: opens connections, and knows them.
        finished: opens when the loop has ended and every future is done.
        identified: opens when a broker has given us our ``instance_id`` (KIP-714).
        emptying: flush and purge.
        transactions: of a producer with a transactional id; None for others.
    """

    def __init__(
        self,
        settings: ProducerSettings,
        *,
        addresses: Sequence[tuple[str, int]],
        connect: Connect,
        clock: Clock,
        own_loop: bool,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.state = State.NEW
        self.finished = Latch()
        self.guard = make_guard()
        self.accumulator = make_accumulator(settings)
        self.metadata = make_metadata(settings)
        self._wakeup = Wakeup()
        hand_over = HandOver(self._wakeup, self.accumulator, settings.batch_size)
        self._on_batch = batch_listener(settings)
        self.connect = TrackedConnect(connect, settings.socket_options)
        self.sender = Sender(
            settings=sender_settings(settings, addresses, own_loop=own_loop),
            accumulator=self.accumulator,
            metadata=self.metadata,
            connect=secured(settings, self.connect),
            authenticator=authenticator(settings),
            clock=clock,
            guard=self.guard,
            wakeup=self._wakeup,
            on_drained=hand_over.drained,
            on_batch=self._on_batch,
        )
        self.intake = RecordIntake(
            settings=settings,
            accumulator=self.accumulator,
            metadata=self.metadata,
            guard=self.guard,
            wake=hand_over.wake,
            clock=clock,
        )
        self.intake.refuse = self.refusal
        self.sender.counters.windows.add(self.intake.tally)
        self._reporters: Reporters | None = None
        self.late = LateRecords(self.intake)
        self.settling = Settling(self.intake, self.late)
        self.emptying = Emptying(self, self._wakeup.wake)
        self.transactions = self._make_transactions()
        self.instance_id = bytes(16)
        self.identified = Latch()
        if settings.enable_metrics_push:
            self.sender.telemetry.make = self._make_telemetry
        self._pid = os.getpid()
        self._crash: BaseException | None = None
        self._forced: KafkaError | None = None
        self._abandoned = trio.Event()
        self._errands = Errands(self.finished)

    def _make_transactions(self) -> Transactions | None:
        manager = self.sender.transactions
        if manager is None:
            return None
        from splashdam.client.transactions.transactions import Transactions

        return Transactions(self, manager, self._wakeup.wake)

    def _make_telemetry(self, context: SenderContext, links: LinkDirectory) -> Telemetry:
        from splashdam.client.observing.telemetry import MetricsEncoder
        from splashdam.sender.telemetry.telemetry import Telemetry

        return Telemetry(context, links, MetricsEncoder(self), self._identify)

    def _identify(self, instance_id: bytes) -> None:
        self.instance_id = instance_id
        self.identified.open()

    def refuse_unless_new(self) -> None:
        """Raises where ``start`` would.

        Raises:
            IllegalStateError: it runs, or has run, or was closed.
        """
        if self.state is not State.NEW:
            raise IllegalStateError(f"a producer starts once; this one is {self.state.name.lower()}")

    def start(self) -> None:
        """Records are taken from now on; whoever calls this sees to it that ``main`` runs."""
        self._advance(Event.START)
        process.keep_watch(self)
        if self.settings.metric_reporters and self.settings.metrics_enabled:
            self._start_reporters()
        self.intake.refuse = None if self.transactions is None else self.transactions.refusal

    def _start_reporters(self) -> None:
        from splashdam.client.observing.metric_reporters import Reporters
        from splashdam.client.observing.metrics import ProducerMetrics

        self._reporters = Reporters(self.settings.metric_reporters, ProducerMetrics(self))
        self.sender.counters.on_new = partial(self.in_loop, self._reporters.refresh)

    async def main(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """The loop: sends until the producer is closed. An error of the sender ends it and is logged."""
        SENDER_THREADS.enter()
        try:
            await self._main(task_status)
        finally:
            SENDER_THREADS.leave()  # last: until then callbacks run here, and must not wait

    async def _main(self, task_status: trio.TaskStatus[None]) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.late.run)
                nursery.start_soon(self._end_when_abandoned)
                nursery.start_soon(self._errands.run)
                task_status.started()
                await self.sender.run()
                nursery.cancel_scope.cancel()
        except Exception as error:
            logger.exception("%s: the sender stopped, which is a bug", self.settings.client_id)
            self._crash = error
        except BaseException as error:
            self._crash = _but_cancelled(error)
            raise
        finally:
            for sleeper in (self._wakeup, self.late, self._errands):
                sleeper.close()  # before anybody is told that it has ended
            self._finish()

    def begin_close(self, *, at_once: bool = False) -> None:
        """Takes no more records and lets the loop end once it has delivered what there is. Never waits.

        With ``at_once`` what there is fails, and the loop does not even begin to send what lingers.
        """
        new = self.state is State.NEW
        self._advance(Event.CLOSE)
        if self.state is State.FOREIGN:
            return
        self.intake.refuse = self.refusal
        if new:
            self._finish()
        elif at_once:
            self.force_close("with timeout=0")
        elif self.guard.interrupted():
            # What follows takes the guard, whose holder is in the middle of something.
            self.in_loop(self._close_sender)
        else:
            self._close_sender()

    def _close_sender(self) -> None:
        """The sender ends when all is delivered; before, late records come in, or their time is up."""
        self._wake_metadata_waiters()  # who waits for a topic is told that it is over
        if self.late.waiting:
            self.late.when_empty(self.sender.initiate_close)
        else:
            self.sender.initiate_close()

    def _wake_metadata_waiters(self) -> None:
        waiters = self.guard.run(self.metadata.take_waiters)
        run_waiters(waiters)

    def force_close(self, why: str) -> None:
        """Ends the loop at once, which fails what is not delivered. Never waits."""
        if self.state is State.CLOSING:
            self._forced = KafkaError(
                f"the producer was closed {why}, before this record was acknowledged;"
                " it may have been written"
            )
            self.sender.force_close(self._forced)

    def fail_what_is_left(self) -> None:
        """After ``force_close``: does here what the loop has not done, because a callback keeps it."""
        if self._forced is not None and not self.finished.opened:
            SENDER_THREADS.enter()  # callbacks run here now, and must not wait for a loop that does not turn
            try:
                self._abort(self._forced)
                self.late.fail_all(self._forced)
            finally:
                SENDER_THREADS.leave()

    def abandon(self) -> None:
        """Nobody refers to the producer any more: closes it within ``exit_timeout_ms``, without waiting here.

        This is called by the garbage collector, in any thread, also inside the guard.
        """
        if self.state in (State.CLOSED, State.FOREIGN):
            return
        self.begin_close()
        self.in_loop(self._abandoned.set)

    def begin_close_at_exit(self) -> float:
        """See ``process.Closable``."""
        self.begin_close()
        return self.settings.exit_timeout_ms / 1000

    def finish_close_at_exit(self, timeout: float) -> None:
        """See ``process.Closable``."""
        if not wait_in_thread(self.finished, timeout):
            self._give_up("by the exit of the interpreter")
            wait_in_thread(self.finished, FORCED_SECONDS)

    def become_foreign(self) -> None:
        """See ``process.Closable``."""
        self.guard.renew()
        self._advance(Event.FORK)
        self.intake.refuse = self.refusal
        self.connect.close_in_child()

    def is_alive_here(self) -> bool:
        """Whether its metrics are of interest: it lives, and in this process."""
        return self.state is not State.FOREIGN and not self.finished.opened

    def refuse_if_foreign(self) -> None:
        """Raises in a forked child.

        Raises:
            IllegalStateError: this is a copy; the producer itself lives in the parent.
        """
        if self.state is State.FOREIGN:
            raise self.refusal()

    def refusal(self) -> BaseException:
        """Why no record is taken now."""
        if self.state is State.FOREIGN:
            return IllegalStateError(
                f"this producer belongs to process {self._pid}, this is process {os.getpid()}:"
                " create the producer in the worker, after the fork"
            )
        if self.state is State.NEW:
            return IllegalStateError("the producer is not running; use `async with`")
        if self._crash is not None:
            return IllegalStateError(f"the producer has stopped: {self._crash!r}")
        return IllegalStateError("the producer is closed")

    def in_loop(self, act: Callable[[], object]) -> None:
        """See ``Errands.add``."""
        self._errands.add(act)

    def _advance(self, event: Event) -> None:
        self.state = next_state(TRANSITIONS, self.state, event, "a producer")

    async def _end_when_abandoned(self) -> None:
        await self._abandoned.wait()
        await trio.sleep(self.settings.exit_timeout_ms / 1000)
        self._give_up("because nobody referred to it any more")

    def _give_up(self, why: str) -> None:
        """Ends without a caller who could be told, so it is logged: once, with a count."""
        left = self.guard.run(self._records_left)
        logger.warning(
            "%s: %d records were not delivered: the producer was closed %s. Call close() or use `with`",
            self.settings.client_id,
            left,
            why,
            extra=fields(client_id=self.settings.client_id, records=left),
        )
        self.force_close(why)

    def _records_left(self) -> int:
        return sum(batch.records_now for batch in self.accumulator.incomplete) + self.late.waiting

    def never_ran(self) -> None:
        """No thread could be started for it."""
        self._finish()

    def _finish(self) -> None:
        """No loop any more: whatever is left fails, so that nobody waits for ever."""
        self.intake.refuse = self.refusal
        self._advance(Event.FINISH)
        error = self._forced or self.refusal()
        try:
            self._abort(error)
            self.late.fail_all(error)
            self._wake_metadata_waiters()
            self.intake.close_plugins()
            if self._reporters is not None:
                self._reporters.close()
        finally:
            self.finished.open()
            self._errands.do_all()
            process.forget(self)

    def _abort(self, error: BaseException) -> None:
        batches = self.guard.run(self._end_batches, error)
        for batch in batches:
            batch.outcome.run_waiters()
            if self._on_batch is not None:
                self._on_batch(batch)

    def _end_batches(self, error: BaseException) -> list[ProducerBatch]:
        self.accumulator.close()
        return self.accumulator.abort_batches(error)


def _but_cancelled(error: BaseException) -> BaseException | None:
    """What of ``error`` is no mere cancellation."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(trio.Cancelled)[1]
    return None if isinstance(error, trio.Cancelled) else error


class Errands:
    """A queue that one task empties, and after the end whoever comes.

    Args:
        finished: open when the task has ended.
    """

    def __init__(self, finished: Latch) -> None:
        self._finished = finished
        self._queue: deque[Callable[[], object]] = deque()
        self._wakeup = Wakeup()

    def add(self, act: Callable[[], object]) -> None:
        """Has ``act`` called in the loop, between the steps of all its tasks; here, if the loop has ended.

        From any thread, also in signal handlers and ``__del__``.
        """
        self._queue.append(act)
        self._wakeup.wake()
        if self._finished.opened:
            self.do_all()

    async def run(self) -> None:
        """The task."""
        while True:
            await self._wakeup.sleep()
            self.do_all()

    def do_all(self) -> None:
        """Does what there is."""
        while True:
            try:
                act = self._queue.popleft()
            except IndexError:  # not asked before: when the loop has ended, two threads may be at it
                return
            act()

    def close(self) -> None:
        """The task has ended, and leaves no descriptor behind."""
        self._wakeup.close()
