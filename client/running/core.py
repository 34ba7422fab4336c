"""The core of a producer: its parts, its loop and its lifecycle.

The loop refers to the core and never to the producer. So a producer without references is collected while its
loop still runs, and its finalizer closes it.
"""

from __future__ import annotations

import logging
import os
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Generic

import trio

from splashdam.accumulator.accumulator import RecordAccumulator
from splashdam.client.running import process
from splashdam.client.running.connecting import TrackedConnect, authenticator, secured
from splashdam.client.running.lifecycle import TRANSITIONS, Event, State
from splashdam.client.running.process import refuse_inside_a_send
from splashdam.client.sending.deferred_sends import DeferredSends
from splashdam.client.sending.intake import RecordIntake
from splashdam.client.sending.lookup import BootstrapLookup
from splashdam.client.sending.waiting import PendingSends
from splashdam.client.settings.producer_settings import ProducerSettings
from splashdam.client.settings.rules import compression, topic_compression
from splashdam.client.waiters import SENDER_THREADS, wait_in_thread, wait_in_trio
from splashdam.model.errors import IllegalStateError, KafkaError, PurgedError
from splashdam.model.lifecycle import next_state
from splashdam.model.log_text import fields
from splashdam.net.clock import Clock
from splashdam.net.connect import Connect
from splashdam.record.kernel.outcomes import outcome_table
from splashdam.record.kernel.outcomes.outcome import FutureT
from splashdam.sender.metadata import Metadata, run_waiters
from splashdam.sender.sender import Sender
from splashdam.sender.settings import SenderSettings
from splashdam.sender.wakeup import GilHandOver, Latch, SharedLoopWakeup, Wakeup

if TYPE_CHECKING:
    from splashdam.accumulator.batch import ProducerBatch
    from splashdam.client.interceptors import BatchListener
    from splashdam.client.observing.metrics import Reporters
    from splashdam.client.reports import DeliveryReport, Stretch
    from splashdam.client.running.console import ProducerConsole
    from splashdam.client.transactions.transactions import Transactions
    from splashdam.model.views.producer import ProducerView
    from splashdam.sender.broker_links import BrokerLinks
    from splashdam.sender.context import SenderContext
    from splashdam.sender.telemetry.telemetry import Telemetry

logger = logging.getLogger("splashdam.client")


def _log_waiter_error(error: Exception) -> None:
    logger.error("a waiter of a batch raised", exc_info=error)


outcome_table.on_waiter_error = _log_waiter_error

WRITE_PATIENCE_MS = 4.0
"""A request of a few MB is written by then if broker and network are fast; others continue in a task."""

NO_INSTANCE_ID = bytes(16)

FORCED_SECONDS = 0.1
"""How long to wait for a loop that was told to end at once."""


class ProducerCore(Generic[FutureT]):
    """Accumulator, sender and intake of one producer, and their lifecycle.

    Args:
        settings: complete and consistent (``producer_settings``).
        addresses: the bootstrap addresses.
        connect: opens connections.
        clock: the producer's clock; ``trio.run`` uses the same one.
        own_loop: no other task runs in the loop of ``main``, so that writes may block it for a moment.
        future_type: class of the futures that ``send`` returns.

    Attributes:
        state: see ``lifecycle.py``.
        connect: opens and tracks connections.
        finished: opens when the loop has ended and every future is done.
        console: the page of ``console_port``; None without.
        keeps_plugins: do not close serializers and interceptors at the end: another core has them next, once
            the producer is started again.
        starts_by: what a caller has to do before the first record; for messages.
        instance_id: assigned by a broker (KIP-714); ``NO_INSTANCE_ID`` before.
        identified: opens when ``instance_id`` is assigned, or when the loop has ended.
        transactions: with a transactional id; None without.
    """

    def __init__(
        self,
        settings: ProducerSettings,
        *,
        addresses: Sequence[tuple[str, int]],
        connect: Connect,
        clock: Clock,
        own_loop: bool,
        future_type: type[FutureT],
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.state = State.NEW
        self.finished = Latch()
        self.guard = process.make_guard()
        self.accumulator = _make_accumulator(settings)
        self.metadata = _make_metadata(settings)
        self._wakeup = Wakeup() if own_loop else SharedLoopWakeup()
        hand_over = GilHandOver(
            self._wakeup, self.accumulator.memory, settings.batch_size, in_sender_thread=SENDER_THREADS.here
        )
        self._on_batch = _batch_listener(settings)
        self.connect = TrackedConnect(connect, settings.socket_options)
        self.sender = Sender(
            settings=_sender_settings(settings, addresses, own_loop=own_loop),
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
            future_type=future_type,
        )
        self.intake.refuse = self.refusal
        self.sender.counters.windows.add(self.intake.caller_counters)
        self._reporters: Reporters | None = None
        self.deferred = DeferredSends(self.intake)
        self.pending_sends = PendingSends(self.intake, self.deferred)
        self.transactions = self._make_transactions()
        self.instance_id = NO_INSTANCE_ID
        self.identified = Latch()
        if settings.enable_metrics_push:
            self.sender.telemetry.make = self._make_telemetry
        self._own_loop = own_loop
        self._pid = os.getpid()
        self.console: ProducerConsole | None = None
        self.keeps_plugins = False
        self.starts_by = "use `async with`"
        self._addresses = list(addresses)
        self._crash: BaseException | None = None
        self._forced: KafkaError | None = None
        self._abandoned = trio.Event()
        self._loop_calls = LoopCalls(self.finished)

    def _make_transactions(self) -> Transactions | None:
        manager = self.sender.transactions
        if manager is None:
            return None
        from splashdam.client.transactions.transactions import Transactions

        return Transactions(self, manager, self._wakeup.wake)

    def _make_telemetry(self, context: SenderContext, links: BrokerLinks) -> Telemetry:
        from splashdam.client.observing.telemetry import MetricsEncoder
        from splashdam.sender.telemetry.telemetry import Telemetry

        return Telemetry(context, links, MetricsEncoder(self), self._identify)

    def _identify(self, instance_id: bytes) -> None:
        self.instance_id = instance_id
        self.identified.open()

    def refuse_unless_new(self) -> None:
        """Raise if the producer was started or closed before.

        Raises:
            IllegalStateError: it was.
        """
        if self.state is not State.NEW:
            raise IllegalStateError(f"a producer starts once; this one is {self.state.name.lower()}")

    def start(self) -> None:
        """Take records from now on; the caller runs ``main``, or calls ``never_ran``.

        Raises:
            IllegalStateError: it was started or closed before.
            Exception: raised by ``init`` of a metric reporter; the core is closed then.
        """
        self._advance(Event.START)
        process.keep_watch(self)
        if self.settings.metric_reporters and self.settings.metrics_enabled:
            try:
                self._start_reporters()
            except BaseException:
                self.never_ran()
                raise
        # Last: from here on other threads send.
        self.intake.refuse = None if self.transactions is None else self.transactions.refusal

    def _start_reporters(self) -> None:
        from splashdam.client.observing.metrics import ProducerMetrics, Reporters

        self._reporters = Reporters(self.settings.metric_reporters, ProducerMetrics(self))
        self.sender.counters.on_new = partial(self.in_loop, self._reporters.refresh)

    def open_console(self) -> None:
        """Serve the page of ``console_port``, if there is one; called when ``connect`` is complete.

        Raises:
            KafkaConfigurationError, CannotListenError: as ``ProducerConsole``.
        """
        if self.settings.console_port is not None:
            from splashdam.client.running.console import ProducerConsole

            self.console = ProducerConsole(self.settings, self._addresses, self.connect)

    def bootstrap_lookup(self) -> BootstrapLookup | None:
        """The search for a first broker, where ``bootstrap_timeout_ms`` asks to wait for one."""
        timeout_ms = self.settings.bootstrap_timeout_ms
        if timeout_ms is None or self.settings.api_version not in (None, "auto"):
            return None
        return BootstrapLookup(self.intake, timeout_ms)

    @trio.lowlevel.enable_ki_protection
    async def main(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """The loop: send until the producer is closed. An error of the sender ends it and is logged.

        In a trio program Ctrl-C would be raised in whichever task runs, between two instructions. Here that
        left batches half decided, whose records nobody could wait for. So all tasks of a producer are
        protected from it, and the program's main task has it at its next checkpoint.
        """
        SENDER_THREADS.enter()
        try:
            await self._main(task_status)
        finally:
            SENDER_THREADS.leave()  # last: until here callbacks run in this thread, and must not wait

    async def _main(self, task_status: trio.TaskStatus[None]) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.deferred.run)
                nursery.start_soon(self._end_when_abandoned)
                nursery.start_soon(self._loop_calls.run)
                task_status.started()
                await self._run_sender()
                nursery.cancel_scope.cancel()
        except Exception as error:
            logger.exception("%s: the sender stopped because of a bug", self.settings.client_id)
            self._crash = error
        except BaseException as error:
            # An application that cancels its nursery closes the producer; that is no crash.
            self._crash = _but_cancelled(error)
            raise
        finally:
            for sleeper in (self._wakeup, self.deferred, self._loop_calls):
                sleeper.close()  # before `finished` opens
            self._finish()

    async def _run_sender(self) -> None:
        try:
            await self.sender.run()
        except BaseException as error:
            # The sender has failed all records: tasks that waited for them run before this loop has ended.
            self._crash = _but_cancelled(error)
            self.intake.refuse = self.refusal
            raise

    def begin_close(self, *, at_once: bool = False) -> None:
        """Take no more records, and end the loop once all records are delivered. Never waits.

        With ``at_once`` all records fail, and the loop does not send those that linger.
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
            # The guard is held by the interrupted code, so the loop has to close the sender.
            self.in_loop(self._close_sender)
        else:
            self._close_sender()

    def _close_sender(self) -> None:
        """Close the sender, after deferred records are appended or have timed out."""
        self._wake_metadata_waiters()  # callers that wait for metadata raise now
        if self.deferred.waiting:
            self.deferred.when_empty(self.sender.initiate_close)
        else:
            self.sender.initiate_close()

    def _wake_metadata_waiters(self) -> None:
        waiters = self.guard.run(self.metadata.take_waiters)
        run_waiters(waiters)

    def force_close(self, why: str) -> None:
        """End the loop at once and fail undelivered records. Never waits."""
        if self.state is State.CLOSING:
            self._forced = KafkaError(
                f"the producer was closed {why}, before this record was acknowledged;"
                " it may have been written"
            )
            self.sender.force_close(self._forced)

    def fail_what_is_left(self) -> None:
        """Fail undelivered records here if a callback blocks the loop after ``force_close``."""
        if self._forced is not None and not self.finished.opened:
            SENDER_THREADS.enter()  # callbacks run in this thread now, and must not wait
            try:
                self._abort(self._forced)
                self.deferred.fail_all(self._forced)
            finally:
                SENDER_THREADS.leave()

    def begin_flush(self) -> list[Stretch]:
        """Switch linger off, and return the records that a flush has to wait for.

        Raises:
            IllegalStateError: called in a signal handler or ``__del__`` that has interrupted a ``send``,
                where the wait would never end; or in a forked child.
        """
        self.refuse_if_foreign()
        refuse_inside_a_send("flush()")
        # Before the batches: a deferred record leaves its queue after it was put into a
        # batch, so it cannot be missing in both lists.
        deferred = self.deferred.outcomes()
        batches = self.guard.run(self._begin_flush)
        self._wakeup.wake()
        return batches + [(outcome, 0, 1) for outcome in deferred]

    def _begin_flush(self) -> list[Stretch]:
        accumulator = self.accumulator
        accumulator.begin_flush()
        return [(batch.outcome, 0, batch.records_now) for batch in accumulator.incomplete]

    def flush_report(self, records: Sequence[Stretch], timeout: float | None) -> DeliveryReport:
        """Report on ``records``; log a warning if some are pending, since few callers check."""
        from splashdam.client.reports import report_on

        report = report_on(records)
        if report.pending:
            name = self.settings.client_id
            logger.warning(
                "%s: %d records are pending after flush(timeout=%s)",
                name,
                report.pending,
                timeout,
                extra=fields(client_id=name, records=report.pending),
            )
        return report

    def end_flush(self) -> None:
        """End a ``begin_flush``."""
        self.guard.run(self.accumulator.end_flush)

    def purge(self, *, queued: bool, in_flight: bool) -> int:
        """Fail queued or in-flight records; return their number.

        Raises:
            IllegalStateError: as ``begin_flush``.
        """
        self.refuse_if_foreign()
        refuse_inside_a_send("purge()")
        error = PurgedError("the record was purged; it was not sent")
        count = self.deferred.fail_all(error) if queued else 0
        return count + self.sender.purge(queued=queued, in_flight=in_flight)

    def abandon(self) -> None:
        """Close a producer without references within ``exit_timeout_ms``, without waiting here.

        Called by the garbage collector, in any thread, also inside the guard.
        """
        if self.state in (State.CLOSED, State.FOREIGN):
            return
        self.begin_close()
        # An event of trio may be set in the loop's thread only.
        self.in_loop(self._abandoned.set)

    @property
    def client_id(self) -> str:
        """See ``process.Living``."""
        return str(self.settings.client_id)

    def begin_close_at_exit(self) -> float:
        """See ``process.Living``."""
        self.begin_close()
        return self.settings.exit_timeout_ms / 1000

    def finish_close_at_exit(self, timeout: float) -> None:
        """See ``process.Living``."""
        if not wait_in_thread(self.finished, timeout):
            self._give_up("by the exit of the interpreter")
            wait_in_thread(self.finished, FORCED_SECONDS)

    def become_foreign(self) -> None:
        """See ``process.Living``."""
        # First: its holder may be a thread that does not exist here, and nothing below may wait for it.
        self.guard.renew()
        self._advance(Event.FORK)
        self.intake.refuse = self.refusal
        self.connect.close_in_child()
        if self.console is not None:
            self.console.close_in_child()

    def inspect(self) -> ProducerView:
        """Return how the producer is now; from any thread.

        Raises:
            IllegalStateError: this is a forked child.
        """
        from splashdam.client.observing.inspecting import inspect_producer

        self.refuse_if_foreign()
        return inspect_producer(self)

    def is_alive_here(self) -> bool:
        """Whether the producer runs in this process, so that its metrics are of interest."""
        return self.state is not State.FOREIGN and not self.finished.opened

    def refuse_if_foreign(self) -> None:
        """Raise in a forked child.

        Raises:
            IllegalStateError: this is a copy; the producer itself lives in the parent.
        """
        if self.state is State.FOREIGN:
            raise self.refusal()

    def refusal(self) -> BaseException:
        """The error of ``send`` in the current state."""
        if self.state is State.FOREIGN:
            return IllegalStateError(
                f"this producer belongs to process {self._pid}, this is process {os.getpid()}:"
                " create the producer in the worker, after the fork"
            )
        if self._crash is not None:
            return IllegalStateError(f"the producer has stopped: {self._crash!r}")
        if self.state is State.NEW or self.keeps_plugins:
            return IllegalStateError(f"the producer is not running; {self.starts_by}")
        return IllegalStateError("the producer is closed")

    def send_in_place(self) -> None:
        """Have a new batch sent: by the calling task of the loop if possible, else by the sender's."""
        if not self.sender.send_in_place():
            self.intake.wake()

    def in_loop(self, act: Callable[[], object]) -> None:
        """See ``LoopCalls.add``."""
        self._loop_calls.add(act)

    def _advance(self, event: Event) -> None:
        self.state = next_state(TRANSITIONS, self.state, event, "a producer")

    @trio.lowlevel.enable_ki_protection
    async def _end_when_abandoned(self) -> None:
        await self._abandoned.wait()
        await trio.sleep(self.settings.exit_timeout_ms / 1000)
        self._give_up("because nothing referred to it any more")

    def _give_up(self, why: str) -> None:
        """End without a caller to raise to: log once, with the number of undelivered records."""
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
        return sum(batch.records_now for batch in self.accumulator.incomplete) + self.deferred.waiting

    def never_ran(self) -> None:
        """Finish a core that was started, but whose ``main`` will not run.

        Ctrl-C may come when the thread that runs it has begun; then it ends at once.
        """
        self._finish()
        self.sender.force_close(self.refusal())

    def _finish(self) -> None:
        """Fail all remaining records after the loop has ended, so that no caller waits for ever."""
        self.intake.refuse = self.refusal
        self._advance(Event.FINISH)
        error = self._forced or self.refusal()
        try:
            self._abort(error)
            self.deferred.end(error)
            # They look again, and find the producer closed.
            self._wake_metadata_waiters()
            if not self.keeps_plugins:
                self.intake.close_plugins()
            if self._reporters is not None:
                self._reporters.close()
            if self.console is not None:
                self._close_console(self.console)
        finally:
            # Whatever a plug-in has raised: ``close`` waits for this.
            self.finished.open()
            self.identified.open()
            # After `finished`: an `add` that saw it closed has queued its call before, and the loop is gone.
            self._loop_calls.do_all()
            process.forget(self)

    def _close_console(self, console: ProducerConsole) -> None:
        if self._own_loop:
            console.close()
        else:  # the application's tasks run in this thread; the producer waits in a task of its own
            console.begin_close()

    async def console_ended(self) -> None:
        """Wait in a trio task, for a moment, until the console does not listen any more."""
        if self.console is not None:
            from splashdam.client.running.console import END_SECONDS

            with trio.move_on_after(END_SECONDS, shield=True):
                await wait_in_trio(self.console.ended)

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
    """``error`` without cancellations; None if nothing else is left."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(trio.Cancelled)[1]
    return None if isinstance(error, trio.Cancelled) else error


class LoopCalls:
    """Functions that any thread hands to the loop; after its end, the calling thread runs them.

    Args:
        finished: open when the loop has ended.
    """

    def __init__(self, finished: Latch) -> None:
        self._finished = finished
        self._queue: deque[Callable[[], object]] = deque()
        self._wakeup = Wakeup()

    def add(self, act: Callable[[], object]) -> None:
        """Have ``act`` called in the loop, or here if the loop has ended.

        From any thread, also in signal handlers and ``__del__``.
        """
        self._queue.append(act)
        self._wakeup.wake()
        # After the append, so that either this thread or `_finish` runs the call.
        if self._finished.opened:
            self.do_all()

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Run the queued functions in the loop, until cancelled."""
        while True:
            await self._wakeup.sleep()
            self.do_all()

    def do_all(self) -> None:
        """Run all queued functions."""
        while True:
            try:
                act = self._queue.popleft()
            except IndexError:  # not checked before: after the end of the loop two threads may be here
                return
            act()

    def close(self) -> None:
        """Release the descriptor after the task has ended."""
        self._wakeup.close()


def _make_accumulator(settings: ProducerSettings) -> RecordAccumulator:
    return RecordAccumulator(
        batch_bytes=settings.batch_size,
        linger_ms=settings.linger_ms,
        buffer_memory=settings.buffer_memory,
        compression=compression(settings),
        topic_compression=topic_compression(settings),
        availability_timeout_ms=settings.partitioner_availability_timeout_ms,
        delivery_timeout_ms=settings.delivery_timeout_ms,
        retry_backoff_ms=settings.retry_backoff_ms,
        retry_backoff_max_ms=settings.retry_backoff_max_ms,
        random=random.random,
    )


def _make_metadata(settings: ProducerSettings) -> Metadata:
    return Metadata(
        max_age_ms=settings.metadata_max_age_ms,
        max_idle_ms=settings.metadata_max_idle_ms,
        retry_backoff_ms=settings.retry_backoff_ms,
        retry_backoff_max_ms=settings.retry_backoff_max_ms,
        random=random.random,
    )


def _sender_settings(
    settings: ProducerSettings, addresses: Iterable[tuple[str, int]], *, own_loop: bool
) -> SenderSettings:
    return SenderSettings(
        bootstrap=tuple(addresses),
        client_id=str(settings.client_id),
        acks=int(settings.acks),
        enable_idempotence=settings.enable_idempotence,
        max_in_flight_requests_per_connection=settings.max_in_flight_requests_per_connection,
        request_timeout_ms=settings.request_timeout_ms,
        retries=settings.retries,
        retry_backoff_ms=settings.retry_backoff_ms,
        retry_backoff_max_ms=settings.retry_backoff_max_ms,
        reconnect_backoff_ms=settings.reconnect_backoff_ms,
        reconnect_backoff_max_ms=settings.reconnect_backoff_max_ms,
        connection_setup_timeout_ms=settings.socket_connection_setup_timeout_ms,
        connection_setup_timeout_max_ms=settings.socket_connection_setup_timeout_max_ms,
        connections_max_idle_ms=settings.connections_max_idle_ms,
        receive_message_max_bytes=settings.receive_message_max_bytes,
        metadata_max_age_ms=settings.metadata_max_age_ms,
        metadata_max_idle_ms=settings.metadata_max_idle_ms,
        metadata_recovery_strategy=settings.metadata_recovery_strategy,
        metadata_recovery_rebootstrap_trigger_ms=settings.metadata_recovery_rebootstrap_trigger_ms,
        max_request_size=settings.max_request_size,
        allow_auto_create_topics=settings.allow_auto_create_topics,
        delivery_timeout_ms=settings.delivery_timeout_ms,
        transactional_id=settings.transactional_id,
        transaction_timeout_ms=settings.transaction_timeout_ms,
        write_patience_ms=WRITE_PATIENCE_MS if own_loop else 0.0,
        metrics_num_samples=settings.metrics_num_samples,
        metrics_sample_window_ms=settings.metrics_sample_window_ms,
    )


def _batch_listener(settings: ProducerSettings) -> BatchListener | None:
    if settings.on_batch is None:
        return None
    from splashdam.client.interceptors import BatchListener

    return BatchListener(settings.on_batch)
