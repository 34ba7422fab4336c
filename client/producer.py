"""``KafkaProducer``: the blocking producer, with kafka-python's methods."""

from __future__ import annotations

import threading
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import trio

from splashdam.client.base import ProducerBase
from splashdam.client.bulk.methods import ManySends
from splashdam.client.future import RecordFuture, Subscription, in_callback
from splashdam.client.local import ADDRESS, Lease, local_address
from splashdam.client.observing.timings import timed
from splashdam.client.running import process
from splashdam.client.running.bootstrap import BootstrapWait, bootstrap_wait
from splashdam.client.running.core import FORCED_SECONDS, ProducerCore
from splashdam.client.running.lifecycle import State
from splashdam.client.running.wiring import make_tcp_connect
from splashdam.client.sending.admission import Admission
from splashdam.client.sending.driving import Deadline, drive_in_thread
from splashdam.client.settings.rules import producer_settings
from splashdam.client.transactions.methods import TransactionMethods
from splashdam.client.waiters import SENDER_THREADS, wait_in_thread
from splashdam.net.addresses import parse_bootstrap_servers
from splashdam.net.clock import SystemClock
from splashdam.record.kernel import Sends
from splashdam.sender.latch import Latch

if TYPE_CHECKING:
    from typing import Unpack
    from uuid import UUID

    from splashdam.client.report import DeliveryReport
    from splashdam.client.settings.keywords import ProducerOptions


class KafkaProducer(TransactionMethods, ManySends, ProducerBase, Sends[RecordFuture]):
    """Sends records to Kafka from any number of threads.

    ``send`` puts a record into a batch and returns a future; a background thread sends the batches. Use it
    as a context manager, or call ``close``: that delivers what is left. One that is neither closed nor
    referred to any more closes itself within ``exit_timeout_ms``, and so does one that is open when the
    interpreter exits.

    Args:
        options: docs/options.md lists them with their defaults. Names are kafka-python's; Kafka's dotted
            names go through ``from_properties``.

    Raises:
        KafkaConfigurationError: an option is unknown (the nearest right one is named), illegal, not
            supported, or contradicts another one.
        IllegalStateError: with ``embedded:DIR``, another process uses the directory; or the interpreter
            exits.
        NoBrokersAvailable: no broker has answered within ``bootstrap_timeout_ms``, where that is given.

    The constructor connects to nobody and returns at once, unless ``bootstrap_timeout_ms`` is given.
    """

    def __init__(self, **options: Unpack[ProducerOptions]) -> None:
        process.refuse_at_exit()
        clock = SystemClock()
        self._settings = settings = producer_settings(options)
        local = local_address(settings.bootstrap_servers)
        addresses = [ADDRESS] if local else parse_bootstrap_servers(settings.bootstrap_servers)
        self._core = core = ProducerCore(
            settings, addresses=addresses, connect=make_tcp_connect(settings), clock=clock, own_loop=True
        )
        self._path = core.intake.path
        self._lease = lease = None if local is None else Lease(local)
        core.start()
        try:
            if lease is not None:
                core.connect.connect = lease.connect()
            self._thread = threading.Thread(
                target=_run,
                args=(core, clock, lease),
                name=f"{settings.client_id}-network-thread",
                daemon=True,
            )
            self._thread.start()
        except BaseException:
            core.never_ran()
            if lease is not None:
                lease.release()
            raise
        # Not at exit: there all producers are closed together, in process.py.
        weakref.finalize(self, core.abandon).atexit = False
        bootstrap = bootstrap_wait(core)
        if bootstrap is not None:
            self._await_bootstrap(bootstrap)

    def _await_bootstrap(self, bootstrap: BootstrapWait) -> None:
        try:
            drive_in_thread(bootstrap, self._core.clock, self._core.intake.tally)
        except BaseException:
            self.close(0)
            raise

    def prepare(self, topic: str) -> None:
        """Waits for the topic's metadata now, so that the first ``send`` does not.

        Raises:
            KafkaTimeoutError: they did not come within ``max_block_ms``; the text says why.
            BrokerResponseError: the cluster refuses the topic.
            IllegalStateError: the producer is closed, or this is its own thread.
        """
        self.partitions_for(topic)

    def partitions_for(self, topic: str) -> set[int]:
        """Numbers of the topic's partitions. Waits for its metadata; raises as ``prepare``."""
        lookup = self._lookup(topic)
        route = lookup.step()
        if route is None:
            SENDER_THREADS.refuse("partitions_for()")
            route = drive_in_thread(lookup, self._core.clock, self._core.intake.tally)
        return set(range(route.count))

    @timed("flush_ns")
    def flush(self, timeout: float | None = None) -> DeliveryReport:
        """Sends what is queued now, without linger, and waits until all of it is delivered or has failed.

        Callbacks of these records have run when it returns. Delivery errors are not raised: the report counts
        the records of this flush, the failed ones by partition and cause, and each future has its own error.

        Args:
            timeout: seconds; default: no limit, which ends with ``delivery_timeout_ms``. When the time is up,
                it returns, and the report says what is pending.

        Raises:
            IllegalStateError: called in a callback, or in a signal handler or ``__del__`` that has
                interrupted a ``send``, where it would wait for ever.
            ValueError: ``timeout`` is negative.
        """
        core = self._core
        deadline = Deadline(core.clock, timeout)
        SENDER_THREADS.refuse("flush()")
        records = core.emptying.begin_flush()
        try:
            if all(wait_in_thread(Subscription(outcome, -1), deadline.left()) for outcome, _, _ in records):
                callbacks_have_run = Latch()
                core.in_loop(callbacks_have_run.open)
                wait_in_thread(callbacks_have_run, deadline.left())
        finally:
            core.emptying.end_flush()
        return core.emptying.flush_report(records, timeout)

    def client_instance_id(self, timeout: float | None = None) -> UUID:
        """The id under which brokers know this producer's metrics (KIP-714), as Java's ``clientInstanceId``.

        Connects, if there is no connection yet, and waits for the answer.

        Args:
            timeout: seconds; default: no limit.

        Raises:
            KafkaTimeoutError: no broker gave one; those that ask for no metrics give none.
            IllegalStateError: with ``enable_metrics_push=False``, or the producer is closed, or this is its
                own thread.
        """
        self._ask_identity()
        SENDER_THREADS.refuse("client_instance_id()")
        wait_in_thread(self._core.identified, timeout)
        return self._identity(timeout)

    def close(self, timeout: float | None = None, null_logger: bool = False) -> None:
        """Takes no more records, delivers what is there, and ends the background thread.

        What is not delivered when the time is up fails. It is closed afterwards in any case; closing again
        does nothing. In a callback it does not wait: what is not delivered fails, as with ``timeout=0``.

        Args:
            timeout: seconds; 0 fails at once what is not delivered. Default: no limit, which ends with
                ``delivery_timeout_ms``.
            null_logger: kafka-python's; has no effect, since no logger is ever replaced.

        Raises:
            ValueError: ``timeout`` is negative.
        """
        core = self._core
        deadline = Deadline(core.clock, timeout)
        core.begin_close(at_once=timeout == 0)
        if core.state is State.FOREIGN or core.guard.interrupted():
            return
        if SENDER_THREADS.here():  # a callback, or a finalizer, which must not lose what others have sent
            if timeout == 0 or in_callback():
                core.force_close("in a callback")
            return
        if timeout == 0 or not wait_in_thread(core.finished, deadline.left()):
            core.force_close(f"with timeout={timeout}")
            wait_in_thread(core.finished, FORCED_SECONDS)
            core.fail_what_is_left()
        left = deadline.left()
        self._thread.join(left if left is None else max(left, FORCED_SECONDS))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Who presses Ctrl-C does not want to wait for a silent broker until `delivery_timeout_ms`.
        self.close(self._settings.exit_timeout_ms / 1000 if kind is KeyboardInterrupt else None)

    def _send_slowly(  # noqa: PLR0917 (as send)
        self, topic: str, value: Any, key: Any, headers: Any, partition: int | None, timestamp_ms: int | None
    ) -> RecordFuture:
        """Where the straight path ends."""
        result = self._core.intake.submit(topic, value, key, headers, partition, timestamp_ms)
        return self._settle(result) if isinstance(result, Admission) else result

    def _settle(self, admission: Admission) -> RecordFuture:
        """Waits here if that is possible, else lets the loop do it."""
        core = self._core
        if core.guard.interrupted():
            return core.late.add(admission)
        if SENDER_THREADS.here():
            future = None if core.late.waiting else admission.step()
            return future or core.late.add(admission)
        return drive_in_thread(admission, core.clock, core.intake.tally)


def _run(core: ProducerCore, clock: SystemClock, lease: Lease | None) -> None:
    """The background thread. It refers to the core, not to the producer."""
    try:
        trio.run(core.main, clock=clock)
    finally:
        if lease is not None:
            lease.release()
