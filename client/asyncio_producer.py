"""``AsyncioKafkaProducer``: the producer for asyncio, with the core and the thread of the blocking one."""

from __future__ import annotations

import asyncio
import inspect
import weakref
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import attrs

from splashdam.client.asyncio_futures import DeliveryFuture, loop_watch, wake_after_turn
from splashdam.client.future import Subscription
from splashdam.client.local import local_address
from splashdam.client.observing.timings import timed_async
from splashdam.client.running import process
from splashdam.client.running.background import BackgroundLoop, background_core
from splashdam.client.running.core import FORCED_SECONDS, ProducerCore
from splashdam.client.running.lifecycle import State
from splashdam.client.sending.intake import PendingSend
from splashdam.client.sending.waiting import Deadline, drive_in_asyncio
from splashdam.client.serializers import KeyT, ValueT
from splashdam.client.settings.rules import producer_settings, refuse_positional
from splashdam.client.task_producer import TaskProducer
from splashdam.client.waiters import wait_in_asyncio, wait_in_trio
from splashdam.model.errors import SaslError
from splashdam.sender.wakeup import Latch

if TYPE_CHECKING:
    from typing import Never, Unpack
    from uuid import UUID

    from splashdam.client.reports import DeliveryReport
    from splashdam.client.settings.keywords import ProducerOptions
    from splashdam.model.values import RecordMetadata
    from splashdam.sender.transactions.calls import PendingCall


class AsyncioKafkaProducer(TaskProducer[DeliveryFuture, KeyT, ValueT]):
    """Sends records to Kafka from asyncio tasks::

        async with AsyncioKafkaProducer(bootstrap_servers="kafka-1:9092") as producer:
            future = await producer.send("orders", b"value", key=b"key")
            metadata = await future

    A background thread sends the batches, as for ``KafkaProducer``; the event loop is woken once for a batch.
    The end of the ``async with`` block, or ``stop``, delivers the remaining records; after a cancellation
    within ``exit_timeout_ms``. A producer without references closes itself within the same time, and so does
    one that is open when the interpreter exits.

    A call that is cancelled while it waits for room has sent nothing. Later cancellation does not unsend.
    ``send_nowait`` may be called from any thread, all else in the loop of ``start``.

    The methods of transactions need the option ``transactional_id`` and wait at most ``max_block_ms``. One
    that is cancelled continues by itself; call it again to wait for it.

    Args:
        options: as for ``KafkaProducer``.

    Raises:
        KafkaConfigurationError, TypeError: as for ``KafkaProducer``.
    """

    def __init__(self, *others: Never, **options: Unpack[ProducerOptions[KeyT, ValueT]]) -> None:
        if others:
            refuse_positional("AsyncioKafkaProducer", others)
        self._settings = settings = producer_settings(options)
        self._tokens: TokensFromTheLoop | None = None
        provider = settings.sasl_oauth_token_provider
        if TokensFromTheLoop.are_of(provider):
            self._tokens = TokensFromTheLoop(provider)
            settings = attrs.evolve(settings, sasl_oauth_token_provider=self._tokens)
        self._core: ProducerCore[DeliveryFuture] = background_core(settings, DeliveryFuture)
        self._core.starts_by = "await start() first, or use `async with`"
        # Tasks that are told in one turn of the loop send again in it: one wake at its end, so that their
        # records are in one batch (docs/decisions/asyncio.md).
        self._core.intake.wake = partial(wake_after_turn, self._core.intake.wake)
        self._path = self._core.intake.path
        self._lease = None
        self._loop: BackgroundLoop | None = None

    async def start(self) -> None:
        """Start the background thread, and with ``embedded:DIR`` the broker. ``async with`` does it.

        Connects to nobody yet, unless ``bootstrap_timeout_ms`` is given.

        Raises:
            IllegalStateError: it was started or stopped before; or another process uses the directory; or the
                interpreter exits.
            NoBrokersAvailable: no broker has answered within ``bootstrap_timeout_ms``.
        """
        core = self._core
        core.refuse_unless_new()
        process.refuse_at_exit()
        if self._tokens is not None:
            self._tokens.loop = asyncio.get_running_loop()
        loop_watch()  # so that `loop.run_until_complete(future)` finds this loop
        if local_address(core.settings.bootstrap_servers) is not None:
            # The broker reads its directory, which may take a while. Not in a task: the end of `asyncio.run`
            # cancels all of them, and the thread would go on alone.
            starting = asyncio.get_running_loop().run_in_executor(None, BackgroundLoop, core)
            self._loop = await _to_the_end(starting, core)
        else:
            self._loop = BackgroundLoop(core)
        self._lease = self._loop.lease
        bootstrap = core.bootstrap_lookup()
        if bootstrap is not None:
            try:
                await drive_in_asyncio(bootstrap, core.clock, core.intake.caller_counters)
            except BaseException:
                await self.stop(0)
                raise
        # Not at exit: process.py closes all producers together then.
        weakref.finalize(self, core.abandon).atexit = False

    async def send(  # noqa: PLR0917 (kafka-python's signature)
        self,
        topic: str,
        value: ValueT | None = None,
        key: KeyT | None = None,
        headers: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> DeliveryFuture:
        """Append a record to a batch. Waits only for a topic's first metadata and for memory.

        Other tasks run when it waits, and once per batch, not per record. If it is cancelled, nothing is
        queued.

        Arguments and errors are those of ``KafkaProducer.send``.

        Returns:
            the future of the delivery. It has failed already if the cluster refuses the topic.
        """
        core = self._core
        if self._path.plain:
            future = self._path.try_send(topic, value, key, headers, partition, timestamp_ms)
            if future is not None:
                return future
        record = core.intake.submit(topic, value, key, headers, partition, timestamp_ms)
        return await self._complete(record) if isinstance(record, PendingSend) else record

    async def send_and_wait(  # noqa: PLR0917 (kafka-python's signature)
        self,
        topic: str,
        value: ValueT | None = None,
        key: KeyT | None = None,
        headers: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """``send``, and wait for the delivery; raises the error that the record failed with.

        If it is cancelled, the record may be delivered all the same. A task that waits for each record pays
        ``linger_ms`` for each; set it to 0 there.
        """
        future = await self.send(
            topic, value, key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
        )
        return await future

    def _complete(self, pending: PendingSend[DeliveryFuture]) -> Awaitable[DeliveryFuture]:
        return self._core.pending_sends.in_asyncio(pending)

    _drive = staticmethod(drive_in_asyncio)

    async def _wait_for(self, call: PendingCall | None, timeout: float | None = None) -> None:
        if call is not None:
            await self._transactions().wait_in_asyncio(call, timeout)

    @timed_async("flush_ns")
    async def flush(self, timeout: float | None = None) -> DeliveryReport:
        """Send queued records without linger, and wait until all of them are delivered or have failed.

        Callbacks of the sender's thread have run when it returns. Delivery errors are not raised: the report
        counts the records of this flush, the failed ones by partition and cause, and each future has its own
        error.

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
            for outcome, _, _ in records:
                if not await wait_in_asyncio(Subscription(outcome, -1), deadline.left()):
                    break
            else:
                if core.state is not State.NEW:  # else there is no thread that would say so
                    # A batch is done an instant before its callbacks run: the loop answers
                    # after the step that runs them.
                    callbacks_have_run = Latch()
                    core.in_loop(callbacks_have_run.open)
                    await wait_in_asyncio(callbacks_have_run, deadline.left())
        finally:
            core.end_flush()
        return core.flush_report(records, timeout)

    async def begin_transaction(self) -> None:
        """See ``KafkaProducer.begin_transaction``. Initializes transactions, if need be.

        Waits for the end of an earlier call that was cancelled, for example the abort of a cancelled block.

        Raises:
            KafkaTimeoutError: the wait has taken ``max_block_ms``; call it again to continue.
            IllegalStateError: a transaction is open.
            KafkaError: the producer is fenced, or failed for good.
        """
        if self._transactions().needs_init:
            await self.init_transactions()
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
        await wait_in_asyncio(self._core.identified, timeout)
        return self._identity(timeout)

    async def stop(self, timeout: float | None = None) -> None:
        """Take no more records, deliver the remaining ones, and end the background thread.

        Records that are not delivered within ``timeout``, or before this is cancelled, fail. Stopping again
        does nothing.

        Args:
            timeout: seconds; 0 fails undelivered records at once. Default: no limit; ``delivery_timeout_ms``
                ends the wait.

        Raises:
            ValueError: ``timeout`` is negative.
        """
        core, loop = self._core, self._loop
        deadline = Deadline(core.clock, timeout)
        core.begin_close(at_once=timeout == 0)
        if core.state is State.FOREIGN or loop is None:
            return
        try:
            await wait_in_asyncio(core.finished, deadline.left())
        finally:
            if not core.finished.opened:
                in_time = deadline.left_or_infinite() > 0
                core.force_close("in a cancelled task" if in_time else f"with timeout={timeout}")
                try:
                    await wait_in_asyncio(core.finished, FORCED_SECONDS)
                finally:
                    # A callback of the application may block the loop, and nobody may wait for ever.
                    core.fail_what_is_left()
        left = deadline.left()
        if await wait_in_asyncio(loop.ended, left if left is None else max(left, FORCED_SECONDS)):
            loop.thread.join()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # A cancelled block does not wait for an unresponsive broker until `delivery_timeout_ms`.
        cancelled = error is not None and not isinstance(error, Exception)
        await self.stop(self._settings.exit_timeout_ms / 1000 if cancelled else None)


async def _to_the_end(
    starting: asyncio.Future[BackgroundLoop], core: ProducerCore[DeliveryFuture]
) -> BackgroundLoop:
    """Wait until the thread runs. If this task is cancelled meanwhile, the thread ends again."""
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        # The thread cannot be interrupted, and alone it would keep the
        # directory: wait, however often cancelled.
        while not starting.done():
            try:
                await asyncio.wait([starting])
            except asyncio.CancelledError:
                continue
        if starting.exception() is None:
            core.begin_close(at_once=True)
        raise


class TokensFromTheLoop:
    """A token provider whose coroutine functions run in the application's loop, not in the producer's.

    Args:
        provider: as for ``sasl_oauth_token_provider``.

    Attributes:
        loop: the application's, once the producer is started.
        token: of the provider; so are ``extensions`` and ``forget``, where it has them.
    """

    def __init__(self, provider: Any) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.token: Callable[[], Any]
        for name, method in _methods(provider).items():
            is_of_the_loop = inspect.iscoroutinefunction(method)
            setattr(self, name, partial(self._in_the_loop, method) if is_of_the_loop else method)

    @staticmethod
    def are_of(provider: Any) -> bool:
        """Whether a provider has coroutine functions of asyncio."""
        of_trio = getattr(getattr(provider, "__self__", provider), "runs_in_trio", False)
        return not of_trio and any(map(inspect.iscoroutinefunction, _methods(provider).values()))

    async def _in_the_loop(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Wait for an answer. Runs in the producer's loop, so that no thread waits for a loop that stands.

        If this is cancelled, because the connection attempt takes too long, the provider's task is, too.

        Raises:
            SaslError: the application's loop is closed, or has cancelled the task.
            Exception: raised by the provider.
        """
        loop = self.loop
        assert loop is not None
        answer = _LoopAnswer(loop, ask)
        try:
            loop.call_soon_threadsafe(answer.begin)
        except RuntimeError as error:
            raise SaslError(
                "OAUTHBEARER: the event loop in which the token provider runs is closed;"
                " stop the producer before its loop ends"
            ) from error
        try:
            await wait_in_trio(answer.ended)
        except BaseException:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(answer.give_up)
            raise
        return answer.result()


def _methods(provider: Any) -> dict[str, Any]:
    methods = {"token": getattr(provider, "token", provider)}
    for name in ("extensions", "forget"):
        if hasattr(provider, name):
            methods[name] = getattr(provider, name)
    return methods


class _LoopAnswer:
    """A coroutine function's result in an asyncio loop, for a waiter elsewhere.

    The coroutine is made in the loop: one that is made elsewhere and never run would be warned about.

    Attributes:
        ended: opens when there is a result.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, ask: Callable[[], Awaitable[Any]]) -> None:
        self.ended = Latch()
        self._loop = loop
        self._ask = ask
        self._task: asyncio.Task[Any] | None = None
        self._is_given_up = False

    def begin(self) -> None:
        """Ask. Called in the loop."""
        if not self._is_given_up:
            self._task = self._loop.create_task(self._answer())
            self._task.add_done_callback(lambda _task: self.ended.open())

    def give_up(self) -> None:
        """Cancel the question, since nobody waits for it. Called in the loop."""
        self._is_given_up = True
        if self._task is not None:
            self._task.cancel()

    def result(self) -> Any:
        """Return the answer, or raise the error of the coroutine function, once ``ended`` is open."""
        assert self._task is not None
        error = None if self._task.cancelled() else self._task.exception()
        if isinstance(error, Exception):
            raise error
        if error is not None or self._task.cancelled():  # which must not end the producer's loop
            raise SaslError("OAUTHBEARER: the token provider's task was cancelled") from error
        return self._task.result()

    async def _answer(self) -> Any:
        return await self._ask()
