"""``AsyncKafkaProducer``: the producer for trio programs, in the loop of its ``async with`` block."""

from __future__ import annotations

import math
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import trio

from splashdam.client.future import RecordFuture, Subscription
from splashdam.client.local import ADDRESS, Lease, local_address
from splashdam.client.observing.timings import timed_async
from splashdam.client.running.connecting import make_tcp_connect
from splashdam.client.running.core import ProducerCore
from splashdam.client.running.lifecycle import State
from splashdam.client.sending.intake import PendingSend
from splashdam.client.sending.lookup import BootstrapLookup
from splashdam.client.sending.waiting import Deadline, drive_in_trio
from splashdam.client.serializers import KeyT, ValueT
from splashdam.client.settings.rules import producer_settings, refuse_positional
from splashdam.client.task_producer import TaskProducer
from splashdam.client.waiters import wait_in_trio
from splashdam.model.errors import IllegalStateError
from splashdam.net.addresses import parse_bootstrap_servers
from splashdam.net.clock import Clock, SystemClock
from splashdam.net.connect import Connect

if TYPE_CHECKING:
    from typing import Never, Unpack
    from uuid import UUID

    from splashdam.client.reports import DeliveryReport
    from splashdam.client.settings.keywords import ProducerOptions
    from splashdam.sender.transactions.calls import PendingCall


class AsyncKafkaProducer(TaskProducer[RecordFuture, KeyT, ValueT]):
    """Sends records to Kafka from trio tasks::

        async with AsyncKafkaProducer(bootstrap_servers="kafka-1:9092") as producer:
            future = await producer.send("orders", b"value", key=b"key")
            metadata = await future

    Call all methods in the loop of the ``async with`` block. Its end delivers the remaining records; if the
    block is cancelled, they fail at once, and after Ctrl-C within ``exit_timeout_ms``. Transactions are those
    of ``KafkaProducer``; each call is a checkpoint. A call that is cancelled while it waits continues by
    itself; call it again to wait for it.

    Args:
        connect: opens connections; default: TCP, or the embedded broker.
        clock: source of deadlines and timestamps; default: the system clock. For virtual time, pass the clock
            of ``trio.run``.
        options: as for ``KafkaProducer``.

    Raises:
        KafkaConfigurationError: as for ``KafkaProducer``.
    """

    def __init__(
        self,
        *others: Never,
        connect: Connect | None = None,
        clock: Clock | None = None,
        **options: Unpack[ProducerOptions[KeyT, ValueT]],
    ) -> None:
        if others:
            refuse_positional("AsyncKafkaProducer", others)
        self._settings = settings = producer_settings(options)
        self._local = local_address(settings.bootstrap_servers)
        self._lease: Lease | None = None
        self._core = core = ProducerCore(
            settings,
            addresses=[ADDRESS] if self._local else parse_bootstrap_servers(settings.bootstrap_servers),
            connect=connect or make_tcp_connect(settings),
            clock=clock or SystemClock(),
            own_loop=False,
            future_type=RecordFuture,
        )
        self._path = core.intake.path
        self._resources = AsyncExitStack()

    async def send(  # noqa: PLR0917 (kafka-python's signature)
        self,
        topic: str,
        value: ValueT | None = None,
        key: KeyT | None = None,
        headers: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordFuture:
        """Append a record to a batch. Waits only for a topic's first metadata and for memory.

        It is a checkpoint when it waits, and once per full batch (which lets the sender's task run), not per
        record. A record that need not linger is written to the socket here if no request is in flight. If the
        call is cancelled while it waits, nothing is queued; later cancellation does not unsend.

        Arguments, result and errors are those of ``KafkaProducer.send``.
        """
        core = self._core
        if self._path.plain:
            future = self._path.try_send(topic, value, key, headers, partition, timestamp_ms)
            if future is not None:
                return future
        record = core.intake.submit(
            topic, value, key, headers, partition, timestamp_ms, on_opened=core.send_in_place
        )
        return await self._complete(record) if isinstance(record, PendingSend) else record

    def _complete(self, pending: PendingSend[RecordFuture]) -> Awaitable[RecordFuture]:
        return self._core.pending_sends.in_trio(pending)

    _drive = staticmethod(drive_in_trio)

    async def _wait_for(self, call: PendingCall | None, timeout: float | None = None) -> None:
        if call is None:
            await trio.lowlevel.checkpoint()
        else:
            await self._transactions().wait_in_trio(call, timeout)

    @timed_async("flush_ns")
    async def flush(self, timeout: float | None = None) -> DeliveryReport:
        """Send queued records without linger, and wait until all of them are delivered or have failed.

        Callbacks of these records have run when it returns. Delivery errors are not raised: the report counts
        the records of this flush, the failed ones by partition and cause, and each future has its own error.

        Args:
            timeout: seconds; default: no limit; ``delivery_timeout_ms`` ends the wait. After a timeout the
                report counts the pending records.

        Raises:
            IllegalStateError: this is a forked child.
            ValueError: ``timeout`` is negative.
        """
        core = self._core
        deadline = Deadline(core.clock, timeout)
        records = core.begin_flush()
        try:
            with trio.move_on_after(deadline.left_or_infinite()):
                for outcome, _, _ in records:
                    await wait_in_trio(Subscription(outcome, -1))
                await trio.lowlevel.checkpoint()
        finally:
            core.end_flush()
        return core.flush_report(records, timeout)

    async def begin_transaction(self) -> None:
        """See ``KafkaProducer.begin_transaction``. A checkpoint.

        Waits for the end of an earlier call that was cancelled, for example the abort of a cancelled block.
        """
        await trio.lowlevel.checkpoint()
        await super().begin_transaction()

    async def client_instance_id(self, timeout: float | None = None) -> UUID:
        """Return the client instance id that brokers assign for metrics (KIP-714), as in Java.

        Opens a connection if the producer has none yet, and waits for the response.

        Args:
            timeout: seconds; default: no limit.

        Raises:
            KafkaTimeoutError: no broker assigned one, since none subscribes to metrics.
            IllegalStateError: with ``enable_metrics_push=False``, or the producer does not run, or ends.
        """
        self._ask_identity()
        with trio.move_on_after(math.inf if timeout is None else timeout):
            await wait_in_trio(self._core.identified)
        return self._identity(timeout)

    async def close(self, timeout: float | None = None) -> None:
        """Take no more records, and deliver the remaining ones. Closing again does nothing.

        Records that are not delivered within ``timeout``, or before this is cancelled, fail.

        Args:
            timeout: seconds; 0 fails undelivered records at once. Default: no limit; ``delivery_timeout_ms``
                ends the wait.

        Raises:
            ValueError: ``timeout`` is negative.
        """
        core = self._core
        deadline = Deadline(core.clock, timeout)
        core.begin_close(at_once=timeout == 0)
        if core.state is State.FOREIGN:
            return
        try:
            with trio.move_on_after(deadline.left_or_infinite()):
                await wait_in_trio(core.finished)
        finally:
            if not core.finished.opened:
                in_time = deadline.left_or_infinite() > 0
                core.force_close("in a cancelled block" if in_time else f"with timeout={timeout}")
                # Shielded: when the block is left, cancelled or not, every future is done.
                with trio.CancelScope(shield=True):
                    await wait_in_trio(core.finished)

    async def __aenter__(self) -> Self:
        if not trio.lowlevel.in_trio_run():
            raise IllegalStateError(
                "AsyncKafkaProducer runs under trio; under asyncio use splashdam.aio.AsyncioKafkaProducer"
            )
        core = self._core
        core.refuse_unless_new()
        async with AsyncExitStack() as resources:
            if self._local is not None:
                # The broker has a thread of its own; starting it reads its directory, which may take a while.
                self._lease = await trio.to_thread.run_sync(Lease, self._local)
                resources.push_async_callback(self._release)
                core.connect.connect = self._lease.connect()
            resources.push_async_callback(core.console_ended)
            core.start()
            try:
                if core.settings.console_port is not None:  # it imports modules, and waits until it listens
                    await trio.to_thread.run_sync(core.open_console)
            except BaseException:
                core.never_ran()
                raise
            nursery = await resources.enter_async_context(trio.open_nursery())
            await nursery.start(core.main)
            self._resources = resources.pop_all()
        bootstrap = core.bootstrap_lookup()
        if bootstrap is not None:
            await self._await_bootstrap(bootstrap)
        return self

    async def _await_bootstrap(self, bootstrap: BootstrapLookup) -> None:
        try:
            await drive_in_trio(bootstrap, self._core.clock, self._core.intake.caller_counters)
        except BaseException:
            await self.close(0)
            await self._resources.aclose()  # not shown this error, which the nursery would wrap into a group
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        timeout = None
        if isinstance(error, trio.Cancelled):
            timeout = 0.0
        elif isinstance(error, KeyboardInterrupt):  # do not wait for an unresponsive broker
            timeout = self._settings.exit_timeout_ms / 1000
        try:
            await self.close(timeout)
        finally:
            # The block's own exception is not shown to the nursery, which would wrap it into a group.
            await self._resources.aclose()

    async def _release(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            # Also in a cancelled block: else the broker would run on and keep its directory.
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(lease.release)
