"""The trio task that drains the accumulator into ProduceRequests.

``step`` does one turn: it decides with the guard held, then sends. ``run`` loops it and sleeps until a
deadline or an event requires another turn. A request has no task of its own: the turn writes it, and the
connection's reader task handles the response and takes the sender's next turn itself.
"""

from __future__ import annotations

import math
import random as random_module
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from splashdam.accumulator.accumulator import RecordAccumulator
from splashdam.accumulator.backoff import Backoff
from splashdam.accumulator.batch import ProducerBatch
from splashdam.accumulator.readiness import DrainGate, OpenGate
from splashdam.model.cluster import Node
from splashdam.model.counters import Windows
from splashdam.model.errors import IllegalStateError, KafkaError, SettingText
from splashdam.net.clock import Clock
from splashdam.net.connect import Connect
from splashdam.net.connection.connection import Authenticator
from splashdam.net.reentrant_lock import ReentrantLock
from splashdam.sender.broker_links import BrokerLink, BrokerLinks, LinkState
from splashdam.sender.cluster_requests import ClusterRequests
from splashdam.sender.completion import Completion
from splashdam.sender.context import SenderContext
from splashdam.sender.idempotence import Idempotence, Identity
from splashdam.sender.metadata import Metadata, MetadataWaiter, run_waiters
from splashdam.sender.settings import SenderSettings
from splashdam.sender.shipping import NodeBatches, Shipping
from splashdam.sender.statistics import SenderCounters, SenderStatistics
from splashdam.sender.telemetry.telemetry_sender import TelemetrySender
from splashdam.sender.wakeup import SharedLoopWakeup, Wakeup

if TYPE_CHECKING:
    from splashdam.sender.inspection import SenderView
    from splashdam.sender.transactions.coordination import Coordination
    from splashdam.sender.transactions.manager import TransactionManager

_SOON_MS = 1000.0

_MOST_TURNS_IN_PLACE = 16
"""So many turns without a pass of the loop take 2 to 16 ms, the waits for the next record included."""


class Sender:
    """Sends what an accumulator holds.

    Args:
        settings: see ``SenderSettings``.
        accumulator: where the batches come from.
        metadata: the cluster metadata; the sender keeps them up to date.
        connect: makes streams to brokers.
        clock: the same one the application's threads read.
        guard: held around every use of accumulator, metadata and idempotence, here and in application
            threads. Re-entrant. Waiters run without it.
        wakeup: how the application's threads wake this task.
        on_drained: called without the guard after batches were drained and before they are written, and
            after responses were handled.
        authenticator: authenticates connections; None without SASL.
        on_batch: called with each completed or failed batch.
        random: returns numbers from 0 to 1, for jitter.

    Attributes:
        transactions: the transaction manager; None without a transactional id.
        telemetry: pushes client metrics to brokers that subscribe to them (KIP-714).
    """

    def __init__(
        self,
        *,
        settings: SenderSettings,
        accumulator: RecordAccumulator,
        metadata: Metadata,
        connect: Connect,
        clock: Clock,
        guard: ReentrantLock,
        wakeup: Wakeup | SharedLoopWakeup,
        on_drained: Callable[[], None] = lambda: None,
        authenticator: Authenticator | None = None,
        on_batch: Callable[[ProducerBatch], None] | None = None,
        random: Callable[[], float] = random_module.random,
    ) -> None:
        self._context = SenderContext(
            settings=settings,
            accumulator=accumulator,
            metadata=metadata,
            clock=clock,
            guard=guard,
            wakeup=wakeup,
            counters=SenderCounters(
                Windows(settings.metrics_num_samples, settings.metrics_sample_window_ms, clock.now_ms())
            ),
            random=random,
        )
        self._connect = connect
        self._on_drained = on_drained
        self._authenticator = authenticator
        self.transactions = _transactions(settings, random)
        self._idempotence = _idempotence(settings, self.transactions)
        self._completion = Completion(self._context, self._idempotence, self.transactions, on_batch)
        self._links = BrokerLinks(
            settings.bootstrap,
            self._make_link,
            settings.connections_max_idle_ms,
            returns_to_bootstrap=settings.metadata_recovery_strategy == "rebootstrap",
        )
        metadata.obstacle = self._links.obstacle
        metadata.silent = self._links.silent
        self._shipping = Shipping(self._context, self._links, self._completion, self._gate, self.transactions)
        self._cluster_requests = ClusterRequests(
            self._context, self._links, self._completion, self._idempotence
        )
        self._coordination = self._make_coordination()
        self.telemetry = TelemetrySender(self._context, self._links)
        self._nursery: trio.Nursery | None = None
        self._alarm = trio.CancelScope()
        self._alarm_ms = math.inf
        self._decided_ms = -math.inf  # when the last turn decided; its delays count from there
        self._turns_in_place = 0
        self._closing = False
        self._forced: BaseException | None = None

    @property
    def _gate(self) -> DrainGate:
        if self.transactions is not None:
            return self.transactions.partitions
        return self._idempotence or OpenGate()

    def _make_coordination(self) -> Coordination | None:
        if self.transactions is None:
            return None
        from splashdam.sender.transactions.coordination import Coordination

        return Coordination(self._context, self._links, self._completion, self.transactions)

    @property
    def fatal_error(self) -> KafkaError | None:
        """The error that stopped the producer for good; None while it works."""
        return self._completion.fatal

    @property
    def last_record_error(self) -> BaseException | None:
        """Why the last batch that failed did; None if none has."""
        return self._completion.last_record_error

    @property
    def counters(self) -> SenderCounters:
        """The counters; their windows are rolled under the guard."""
        return self._context.counters

    def links(self) -> list[BrokerLink]:
        """The links to brokers and bootstrap addresses; from any thread."""
        return list(self._links)

    def statistics(self) -> SenderStatistics:
        """Totals and current values; from any thread."""
        links = list(self._links)
        return self._context.counters.snapshot(
            epoch_bumps=0 if self._idempotence is None else self._idempotence.bumps,
            connections=sum(link.state is LinkState.READY for link in links),
            in_flight_requests=sum(link.in_flight for link in links),
        )

    def inspect(self, limit: int) -> SenderView:
        """Return how queues and connections stand, of at most ``limit`` partitions; the guard is held."""
        from splashdam.sender.inspection import inspect_sender

        return inspect_sender(self._context, self._gate, self._links, self._completion.in_flight, limit)

    @property
    def identity(self) -> Identity | None:
        """The producer id and epoch; None before a broker has assigned them, and without idempotence."""
        idempotence = self._idempotence
        return idempotence.identity if idempotence is not None and idempotence.identified else None

    async def run(self) -> None:
        """Send until closed, then fail what is left. On return no connection is open and no caller waits."""
        try:
            async with self.serving() as nursery:
                while not self._finished():
                    # One scope for many turns: to open a scope costs as much as a turn.
                    with trio.CancelScope() as self._alarm:
                        self._alarm_ms = math.inf
                        await self._take_turns(nursery)
        finally:
            # All connections have ended here, so no socket reads a batch's bytes. After a crash, too: a batch
            # that is left here would have callers that wait for ever.
            self._give_up(self._forced or IllegalStateError("the producer was closed before this was sent"))

    async def _take_turns(self, nursery: trio.Nursery) -> None:
        while not self._finished():
            self._set_alarm(self._turn(nursery))
            # The answer, then the next record of the caller that it woke: both without a pass
            # of the loop (docs/decisions/latency.md).
            if not (self._read_eagerly() and self._is_woken_soon()) and not self._finished():
                await self._context.wakeup.sleep()

    def _is_woken_soon(self) -> bool:
        """Wait in place for the next record of a caller that was just told of its last one.

        That saves the pass of the loop.
        """
        wakeup = self._context.wakeup
        # The other tasks of the loop (connections, metadata) have to run, too.
        if not isinstance(wakeup, Wakeup) or self._turns_in_place >= _MOST_TURNS_IN_PLACE:
            self._turns_in_place = 0
            return False
        self._turns_in_place += 1
        return wakeup.is_woken_soon()

    def _read_eagerly(self) -> bool:
        """Read the response of the only request in flight if it arrives at once, which saves two loop passes.

        Only if no batch is queued and no other task shares the loop: reading blocks both for a moment.

        Returns:
            whether it has come.
        """
        if self._context.settings.write_patience_ms and not self._context.accumulator.has_queued:
            only = None
            for link in self._links:
                if link.busy:
                    if only is not None:
                        return False
                    only = link
            if only is not None and only.in_flight == 1:
                return only.read_eagerly()
        return False

    def _set_alarm(self, delay_ms: float) -> None:
        """Schedule the next turn.

        An alarm that is too early but more than a second away stays: one needless turn costs less than
        setting the alarm on every turn.
        """
        now_ms = self._decided_ms
        due_ms = now_ms + _rounded(delay_ms)
        if due_ms < self._alarm_ms or self._alarm_ms < now_ms + _SOON_MS:
            self._alarm_ms = due_ms
            # By the difference: in the application's own loop trio's clock has another zero than ours.
            self._alarm.deadline = trio.current_time() + (due_ms - self._context.clock.now_ms()) / 1000

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[trio.Nursery]:
        """The block in which `step` may be called; its end cancels the tasks of the connections."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                yield nursery
            finally:
                self._nursery = None
                # Before the connections end: requests that fail with them must neither begin a turn nor
                # retry their batches. `_give_up` fails those.
                self._shipping.ended = True
                nursery.cancel_scope.cancel()

    async def step(self) -> float:
        """Do one turn: expire batches, decide, write requests. Never waits.

        Returns:
            milliseconds until the next turn is due, unless the sender is woken before.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._nursery is None:
            raise IllegalStateError("step() is called inside `async with sender.serving()`")
        return self._turn(self._nursery)

    def _turn(self, nursery: trio.Nursery) -> float:
        context = self._context
        context.counters.turns += 1
        requests: list[NodeBatches] = []
        # A decision takes one batch of each partition, so a connection is filled by several of them.
        for _ in range(context.settings.max_in_flight_requests_per_connection):
            delay_ms, requests = self._decide(nursery)
            # Before the write: threads that wait for memory then fill batches while the socket takes these.
            self._on_drained()
            patience_ms = self._patience_ms(requests)
            for link, batches in requests:
                self._shipping.ship(link, batches, patience_ms)
            if not requests or not context.accumulator.has_queued:
                break
        else:
            context.wakeup.wake()  # more may be ready, but the connections' tasks have to run, too
        self._run_finished()
        return delay_ms

    @trio.lowlevel.enable_ki_protection  # Ctrl-C between two steps would lose the batch
    def send_in_place(self) -> bool:
        """Send the only queued batch at once, in the calling task, if a turn would do nothing else.

        That saves a record that is awaited by itself a pass of the loop. Only for a task of the sender's
        own loop that is not called by the sender: signal handlers, finalizers and callbacks wake it instead.

        Returns:
            whether it was sent. If not, the batch is still queued.
        """
        context, wakeup = self._context, self._context.wakeup
        if self._nursery is None or not isinstance(wakeup, SharedLoopWakeup) or not wakeup.sleeps_beside():
            return False
        # Many tasks that send in the same pass share a request, in which the first of them would be missing.
        # With ``acks=0`` no request is ever in flight: in a loop without a pause each record would go alone.
        if not self._shipping.last_had_one_record or context.settings.acks == 0:
            return False
        for link in self._links:
            # While one request is under way, the next batch fills.
            if link.busy:
                return False
        self._decided_ms = now_ms = context.clock.now_ms()
        decided = context.guard.run(self._decide_shortly, now_ms)
        if decided is None:
            return False
        context.counters.turns += 1
        delay_ms, requests = decided
        try:
            self._on_drained()
            for link, batches in requests:
                self._shipping.ship(link, batches, 0.0)
            self._set_alarm(delay_ms)
        except BaseException as error:
            # A bug, or a signal handler that raises. The batch is in no queue, and nothing else would end its
            # wait, so the producer ends, as when the sender's task fails.
            self.force_close(error)
            raise
        if self._completion.finished or context.accumulator.has_queued:
            wakeup.wake()  # callbacks may not run inside the `send` of another record
        return True

    def _patience_ms(self, requests: list[NodeBatches]) -> float:
        """Return how long a write may block the loop: 0 if another connection would have to wait."""
        patience_ms = self._context.settings.write_patience_ms
        if not patience_ms or len(requests) != 1:
            return 0.0
        ((only, _),) = requests
        for link in self._links:  # any() would run a generator on every turn
            if link is not only and link.busy:
                return 0.0
        return patience_ms

    def _decide(self, nursery: trio.Nursery) -> tuple[float, list[NodeBatches]]:
        self._decided_ms = now_ms = self._context.clock.now_ms()
        return self._context.guard.run(self._decide_alone, nursery, now_ms)

    def _decide_alone(self, nursery: trio.Nursery, now_ms: float) -> tuple[float, list[NodeBatches]]:
        shortly = self._decide_shortly(now_ms)
        if shortly is not None:
            return shortly
        context = self._context
        if now_ms >= context.counters.windows.due_ms:
            context.counters.windows.roll(now_ms)
        # The order matters: what has expired is not sent, and partitions get a new epoch before their batches
        # are drained, because sequence numbers are assigned there.
        self._completion.expire(now_ms)
        if self._coordination is not None:
            self._coordination.prepare(now_ms, closing=self._closing)
        if self._completion.fatal is not None:
            self._completion.abort(self._completion.fatal)
        if self._idempotence is not None:
            self._idempotence.settle()
        check = self._shipping.ready(now_ms)
        # Metadata and producer ids go before Produce on the same connection: batches wait for their
        # responses.
        ask_ms = self._cluster_requests.ask(nursery, now_ms)
        if self._coordination is not None:
            ask_ms = min(ask_ms, self._coordination.ask(nursery, now_ms))
        if self.telemetry.pushing is not None or self.telemetry.wants_link:
            ask_ms = min(ask_ms, self.telemetry.act(nursery, now_ms, closing=self._closing))
        link_ms, requests = self._shipping.drain(check, nursery, now_ms)
        delay_ms = min(
            check.next_check_ms,
            ask_ms,
            link_ms,
            self._completion.next_expiry_ms(now_ms),
            self._links.close_idle(now_ms),
        )
        return delay_ms, requests

    def _decide_shortly(self, now_ms: float) -> tuple[float, list[NodeBatches]] | None:
        """Decide for one queued batch that can be sent, if a whole decision has nothing else to do.

        The usual case of records that are awaited one by one; None for any other. Each condition is what
        makes a line of ``_decide_alone`` do nothing.
        """
        context, idempotence, completion = self._context, self._idempotence, self._completion
        batch = context.accumulator.lone(now_ms)
        if batch is None or self._coordination is not None or self._closing:
            return None
        if now_ms >= context.counters.windows.due_ms or not completion.at_rest(now_ms):
            return None
        if idempotence is not None and not (idempotence.at_rest and idempotence.holds(batch) is None):
            return None
        telemetry_ms = self.telemetry.due_in_ms(now_ms)
        metadata_ms = context.metadata.due_in_ms(now_ms, needed=True)
        if telemetry_ms <= 0 or metadata_ms <= 0:
            return None
        # Last, since it takes the batch: nothing above has changed anything.
        link = self._shipping.drain_lone(batch, now_ms)
        if link is None:
            return None
        expiry_ms, idle_ms = completion.next_expiry_ms(now_ms), self._links.close_idle(now_ms)
        return min(telemetry_ms, metadata_ms, expiry_ms, idle_ms), [(link, [batch])]

    def purge(self, *, queued: bool, in_flight: bool) -> int:
        """Fail queued or in-flight batches, from any thread; return the number of records.

        Their waiters run in the next turn.
        """
        count = self._context.guard.run(self._completion.purge, queued=queued, in_flight=in_flight)
        self._context.wakeup.wake()
        return count

    def link_opened(self, link: BrokerLink) -> None:
        """Tell telemetry, since the broker's API versions are known now."""
        self.telemetry.link_opened(link)

    def initiate_close(self) -> None:
        """Close the accumulator, send what is queued, then end `run`. From any thread."""
        # First: else a turn between the two lines might find nothing left and end, and a
        # record that is appended then would fail.
        self._context.guard.run(self._context.accumulator.close)
        self._closing = True
        self._context.wakeup.wake()

    def force_close(self, error: BaseException) -> None:
        """End `run` now and fail all unsent or unanswered batches with ``error``. From any thread."""
        self._forced = error
        self._context.wakeup.wake()

    def link_changed(self) -> None:
        """Run waiters after responses or a change of a link; take a turn if more can be sent now."""
        self._run_finished()
        if self._nursery is None:
            return
        if self._closing or self._forced is not None or self._completion.fatal is not None:
            # Only `run` can see that the sender may end.
            self._context.wakeup.wake()
        elif (
            self._cluster_requests.waiting
            or self._context.accumulator.has_queued
            or (self._coordination is not None and self._coordination.eager)
        ):
            # In the task that has read the response: to wake the sender's costs another pass of the loop.
            self._set_alarm(self._turn(self._nursery))
        else:
            self._on_drained()  # memory was released: count from here again

    def link_lost(self, node: Node, error: BaseException) -> None:
        """Handle a failed or lost connection.

        If every broker refuses our credentials, waiting callers and batches fail now: waiting cannot help.
        """
        self._completion.last_failure = error
        run_waiters(self._context.guard.run(self._lose, node, error))

    def _lose(self, node: Node, error: BaseException) -> Sequence[MetadataWaiter]:
        """Do the part of ``link_lost`` that needs the guard; return the waiters to run without it."""
        metadata = self._context.metadata
        # The error itself: a command line names the settings in it by its flags.
        reason = SettingText("{node}: {error}", node=node, error=error)
        metadata.note_failure(reason, self._context.clock.now_ms(), error)
        if self.transactions is not None:
            self.transactions.coordinator_lost(node.node_id)
        refusal = self._links.refusal(metadata.cluster)
        if refusal is None:
            return ()
        waiters = metadata.refused(refusal)
        self._completion.abort_unsent(refusal)
        if self.transactions is not None:
            self.transactions.refused(refusal)
        return waiters

    def _finished(self) -> bool:
        # While it does not close, it ends by force alone.
        if self._forced is not None or not self._closing:
            return self._forced is not None
        if self._coordination is not None and not self._coordination.finished():
            return False
        if self._context.accumulator.has_incomplete:
            return False
        return self.telemetry.finished()

    def _run_finished(self) -> None:
        self._completion.run_finished()
        if self.transactions is not None:
            self.transactions.run_ended()

    def _give_up(self, error: BaseException) -> None:
        self._context.guard.run(self._drop_all, error)
        self._run_finished()

    def _drop_all(self, error: BaseException) -> None:
        self._context.accumulator.close()
        self._completion.abort(error)
        self._completion.drop_in_flight(error)
        if self.transactions is not None:
            self.transactions.die(error)

    def _make_link(self, node: Node) -> BrokerLink:
        return BrokerLink(
            node,
            connect=self._connect,
            clock=self._context.clock,
            settings=self._context.settings,
            owner=self,
            random=self._context.random,
            traffic=self._context.counters.traffic(node.host, node.port),
            authenticator=self._authenticator,
        )


def _transactions(settings: SenderSettings, random: Callable[[], float]) -> TransactionManager | None:
    """Return the transaction manager, imported only with a transactional id: most producers have none."""
    if settings.transactional_id is None:
        return None
    from splashdam.sender.transactions.manager import TransactionManager

    backoff = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, random)
    return TransactionManager(settings.transactional_id, int(settings.transaction_timeout_ms), backoff)


def _idempotence(settings: SenderSettings, transactions: TransactionManager | None) -> Idempotence | None:
    if transactions is not None:
        return transactions.sequences
    return Idempotence() if settings.enable_idempotence else None


def _rounded(delay_ms: float) -> float:
    """Round up to whole milliseconds, at least 1, so that the task does not spin on fractions."""
    return delay_ms if math.isinf(delay_ms) else max(1.0, math.ceil(delay_ms))
