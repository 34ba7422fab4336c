"""``KafkaProducer``: the blocking producer, with kafka-python's methods."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import trio

from splashdam.client.base import ProducerBase
from splashdam.client.future import RecordFuture, Subscription, in_callback
from splashdam.client.local import ADDRESS, Lease, local_address
from splashdam.client.observing.timings import timed
from splashdam.client.running import process
from splashdam.client.running.connecting import make_tcp_connect
from splashdam.client.running.core import FORCED_SECONDS, ProducerCore
from splashdam.client.running.lifecycle import State
from splashdam.client.sending.intake import Admission
from splashdam.client.sending.lookup import BootstrapLookup
from splashdam.client.sending.waiting import Deadline, drive_in_thread
from splashdam.client.settings.rules import producer_settings
from splashdam.client.waiters import SENDER_THREADS, wait_in_thread
from splashdam.model.errors import KafkaError
from splashdam.net.addresses import parse_bootstrap_servers
from splashdam.net.clock import SystemClock
from splashdam.record.kernel import Sends
from splashdam.record.kernel.building.straight import straight_first
from splashdam.sender.wakeup import Latch

if TYPE_CHECKING:
    from typing import Unpack
    from uuid import UUID

    from splashdam.client.reports import BulkDelivery, DeliveryReport
    from splashdam.client.settings.keywords import ProducerOptions
    from splashdam.model.transactions import PreparedTransaction


@straight_first
class KafkaProducer(ProducerBase, Sends[RecordFuture]):
    """Sends records to Kafka from any number of threads.

    ``send`` puts a record into a batch and returns a future; a background thread sends the batches. Use it
    as a context manager, or call ``close``: that delivers what is left. One that is neither closed nor
    referred to any more closes itself within ``exit_timeout_ms``, and so does one that is open when the
    interpreter exits.

    The methods of transactions need the option ``transactional_id``, wait at most ``max_block_ms``, and raise
    ``IllegalStateError`` where they are called out of turn: that changes nothing. After a
    ``KafkaTimeoutError`` the same call may be made again and goes on waiting. A ``TransactionFailedError``
    asks for ``abort_transaction``. Errors that are ``fatal`` (``ProducerFencedError``,
    ``FatalTransactionError`` and others) leave only ``close``.

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
        bootstrap = core.bootstrap_lookup()
        if bootstrap is not None:
            self._await_bootstrap(bootstrap)

    def _await_bootstrap(self, bootstrap: BootstrapLookup) -> None:
        try:
            drive_in_thread(bootstrap, self._core.clock, self._core.intake.tally)
        except BaseException:
            self.close(0)
            raise

    def send(  # noqa: PLR0917 (kafka-python's signature)
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordFuture:
        """Puts a record into a batch. Waits only for a topic's first metadata and for memory.

        In a delivery callback, a signal handler or a ``__del__`` it never waits: a record that cannot be
        brought in at once is brought in soon after, in order.

        Args:
            topic: name of the topic.
            value: its bytes, or what ``value_serializer`` takes; None is a tombstone and needs a key.
            key: its bytes, or what ``key_serializer`` takes; equal keys go to the same partition.
            headers: ``(str, bytes or None)`` pairs in a list or tuple, or a dict.
            partition: where it goes; default: the partitioner decides.
            timestamp_ms: milliseconds since the epoch; default: now.

        Returns:
            the record's delivery, to be waited for with ``get()`` or ``await``; if the cluster refuses the
            topic, it has failed already.

        Raises:
            KafkaTimeoutError: the topic's metadata did not come within ``max_block_ms``; the text says why.
            BufferExhaustedError: ``buffer_memory`` stayed full for ``max_block_ms``. A KafkaTimeoutError.
            MessageTooLargeError: the record is larger than ``max_request_size``.
            IllegalStateError: the producer is closed, or this is a forked child.
            IllegalArgumentError: the topic has no such ``partition``, also when the cluster was asked anew. A
                ValueError.
            TypeError, ValueError: an argument is not what it must be; see each.
            Exception: what a serializer or partitioner raised.
        """
        # What fits into the open batch of its partition has gone the straight path before: `straight_first`.
        core = self._core
        record = core.intake.submit(topic, value, key, headers, partition, timestamp_ms)
        return core.admissions.in_thread(record) if isinstance(record, Admission) else record

    def send_nowait(  # noqa: PLR0917 (kafka-python's signature)
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordFuture:
        """As ``send``, but never waits; the way to send from a delivery callback of a trio program.

        Raises:
            WouldBlock: it would have to wait; ``what`` says for what. Nothing is queued. The first call for a
                topic asks for its metadata, so that a later one finds them.
        """
        core = self._core
        record = core.intake.submit(topic, value, key, headers, partition, timestamp_ms)
        return core.admissions.now(record) if isinstance(record, Admission) else record

    def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        *,
        keys: Iterable[Any] | None = None,
        headers: Any = None,
        partition: int | Iterable[int | None] | None = None,
        timestamp_ms: int | Iterable[int | None] | None = None,
    ) -> BulkDelivery:
        """Puts many records into batches, in order: as ``send`` for each, at a small part of its cost.

        It waits as ``send`` does, for a topic's first metadata and for memory, up to ``max_block_ms`` each
        time. Records without a key follow the partitioner of the producer: by default they fill a batch of
        one partition and go on with another one. Records of one call keep their order in each partition.
        Serializers and an own partitioner are asked for every record, which costs as much as ``send``.

        Args:
            topic: name of the topic.
            values: bytes, None for tombstones, or what ``value_serializer`` takes. A list or tuple is read
                as it is and must not be changed meanwhile, anything else is made a list first.
            keys: as many as values; None for none at all. A null key is None in its place.
            headers: of every record, as for ``send``; or a list with the headers of each, None for none.
            partition: where all of them go, or a number for each; default and None: by key, or the
                partitioner decides.
            timestamp_ms: of all of them, or one for each; default: now, read again for each batch. None
                among others is the time of the call.

        Returns:
            the delivery of all of them, to be waited for with ``get()`` or ``await``; if the cluster refuses
            the topic, it has failed already.

        Raises:
            BulkSendError: it ended before the last record, for the reason that ``send`` would have given
                (its ``__cause__``). What is before its ``index`` is queued, the rest is not.
            IllegalStateError: the producer is closed, or this is a forked child. Nothing is queued.
            TypeError, ValueError: an argument is not what it must be. Nothing is queued.
        """
        from splashdam.client.bulk.sending import bulk_of, drive_bulk_in_thread

        bulk = bulk_of(self._core.intake, topic, values, keys, headers, partition, timestamp_ms)
        drive_bulk_in_thread(bulk, self._core.admissions.in_thread)
        return bulk.finish()

    def send_arrow(
        self,
        topic: str,
        data: Any,
        *,
        value: str = "value",
        key: str | None = "key",
        headers: Any = None,
        partition: int | str | None = None,
        timestamp_ms: int | str | None = None,
        may_be_empty: bool = False,
    ) -> BulkDelivery:
        """Sends the rows of Arrow data, straight from their buffers; see ``send_many``.

        Data are whatever has ``__arrow_c_stream__`` or ``__arrow_c_array__``: tables and record batches of
        pyarrow, polars, DuckDB and others, chunk by chunk, or a single array of values. pyarrow is not
        needed. Columns are binary or text, also large, view and fixed-size, or dictionaries of these.

        Args:
            topic: name of the topic.
            data: a table, a record batch, a stream of them, or an array of values.
            value: name of the column of values; nulls in it are tombstones and need a key.
            key: name of the column of keys. ``"key"`` need not be there, another name must; None for no keys.
            headers: of every record, as for ``send``; or the name of a column of lists of structs of a key
                and a value, or of maps. A null is a record without headers.
            partition: where all of them go; or the name of a column of whole numbers, whose nulls go by key,
                or where the partitioner decides.
            timestamp_ms: of all of them; or the name of a column of timestamps, or of milliseconds as whole
                numbers. Finer ones lose what is below a millisecond, nulls are the time of the call.
            may_be_empty: whether a row with neither value nor key is a record, as in Kafka, or an error.

        Raises:
            BulkSendError, IllegalStateError, TypeError, ValueError: as ``send_many``; for damaged data and
                columns that are not bytes too.
            KafkaConfigurationError: the producer has a serializer.
        """
        from splashdam.client.bulk.arrow import ArrowBulk
        from splashdam.client.bulk.sending import drive_bulk_in_thread

        parts = (value, key, headers, partition, timestamp_ms)
        with ArrowBulk(self._core.intake, topic, data, *parts, may_be_empty=may_be_empty) as arrow:
            bulk = arrow.bulk
            for columns in arrow.chunks():
                bulk.add(*columns)
                drive_bulk_in_thread(bulk, self._core.admissions.in_thread)
        return bulk.finish()

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
        records = core.begin_flush()
        try:
            if all(wait_in_thread(Subscription(outcome, -1), deadline.left()) for outcome, _, _ in records):
                callbacks_have_run = Latch()
                core.in_loop(callbacks_have_run.open)
                wait_in_thread(callbacks_have_run, deadline.left())
        finally:
            core.end_flush()
        return core.flush_report(records, timeout)

    @timed("txn_init_ns")
    def init_transactions(self) -> None:
        """Makes this the one producer of its ``transactional_id``: call it once, before all else.

        Earlier producers of this name are fenced, and what they have left open is aborted. Calling it again
        does nothing.

        Raises:
            KafkaTimeoutError: the coordinator was not found, or did not answer, within ``max_block_ms``.
            KafkaError: the cluster refuses; after 31 and 53, which are about rights, it may be called again.
            IllegalStateError: there is no ``transactional_id``, or the producer is closed.
        """
        transactions = self._transactions()
        SENDER_THREADS.refuse("init_transactions()")
        transactions.wait_in_thread(transactions.init())

    @timed("txn_begin_ns")
    def begin_transaction(self) -> None:
        """Opens a transaction: all records go into it until it is committed or aborted. Does not wait.

        Raises:
            IllegalStateError: ``init_transactions`` was not called, or a transaction is open.
            KafkaError: the producer is fenced, or otherwise finished.
        """
        self._transactions().begin()

    @timed("txn_send_offsets_ns")
    def send_offsets_to_transaction(
        self, offsets: Mapping[Any, Any], group_metadata: Any = None, *, consumer_group_id: Any = None
    ) -> None:
        """Makes a group's offsets part of the transaction: committed with its records, or not at all.

        Args:
            offsets: the offset to read next by ``TopicPartition``: a number or an ``OffsetAndMetadata``,
                also kafka-python's.
            group_metadata: the consumer's ``ConsumerGroupMetadata``, also kafka-python's, so that the cluster
                can fence a member that was replaced (KIP-447); or the name of the group alone.
            consumer_group_id: kafka-python 2.x's name of ``group_metadata``.

        Raises:
            TransactionFailedError: the cluster does not take them, or the transaction has failed before.
            KafkaTimeoutError: it has not answered within ``max_block_ms``.
            IllegalStateError: no transaction is open.
            TypeError, ValueError: the arguments are not what they must be.
        """
        transactions = self._transactions()
        SENDER_THREADS.refuse("send_offsets_to_transaction()")
        group = consumer_group_id if group_metadata is None else group_metadata
        call = transactions.send_offsets(offsets, group)
        if call is not None:
            transactions.wait_in_thread(call)

    def prepare_transaction(self) -> PreparedTransaction:
        """Sends what is left, waits until all of it is delivered, and leaves the end to somebody else.

        This is the first half of a commit, for those who commit several transactions, or one together with
        something else: write down what was prepared, then have each ended, here by ``commit_transaction`` or
        ``abort_transaction``, or from any process by ``splashdam.net.admin.transactions.end_transaction``.
        Until then this producer takes no record, and closing it aborts nothing. The cluster aborts what is
        not ended within ``transaction_timeout_ms``; so does the next producer of this ``transactional_id``.
        The name is KIP-939's; its requests are not used, so any cluster with transactions does.

        Returns:
            what names the transaction to who ends it.

        Raises:
            TransactionFailedError: a record of the transaction failed, ``__cause__`` says why. Abort it.
            KafkaTimeoutError: not all is delivered within ``max_block_ms``. Call it again.
            IllegalStateError: no transaction is open.
            KafkaError: the producer is fenced, or otherwise finished.
        """
        transactions = self._transactions()
        SENDER_THREADS.refuse("prepare_transaction()")
        deadline = Deadline(self._core.clock, transactions.timeout)
        if self._core.deferred.waiting:
            self.flush(deadline.left())
            transactions.refuse_deferred()
        call = transactions.prepare()
        transactions.wait_in_thread(call, deadline.left())
        assert call.prepared is not None
        return call.prepared

    @timed("txn_commit_ns")
    def commit_transaction(self) -> None:
        """Sends what is left, waits until all of it is delivered, and commits.

        Raises:
            TransactionFailedError: a record of the transaction failed, ``__cause__`` says why. Abort it.
            KafkaTimeoutError: it has not ended within ``max_block_ms``: nobody knows how it will end. Call it
                again; it cannot be aborted any more.
            IllegalStateError: no transaction is open.
            KafkaError: the producer is fenced, or otherwise finished.
        """
        transactions = self._transactions()
        SENDER_THREADS.refuse("commit_transaction()")
        deadline = Deadline(self._core.clock, transactions.timeout)
        if self._core.deferred.waiting:
            self.flush(deadline.left())
            transactions.refuse_deferred()
        transactions.wait_in_thread(transactions.commit(), deadline.left())

    @timed("txn_abort_ns")
    def abort_transaction(self) -> None:
        """Gives the transaction up: records that were not sent fail, others are never seen by readers that
        wait for commits.

        Raises:
            KafkaTimeoutError: it has not ended within ``max_block_ms``. Call it again.
            IllegalStateError: no transaction is open.
            KafkaError: the producer is fenced, or otherwise finished.
        """
        transactions = self._transactions()
        SENDER_THREADS.refuse("abort_transaction()")
        transactions.wait_in_thread(transactions.abort())

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction as a block: ``with producer.transaction(): …`` commits at its end, and aborts if an
        exception leaves it. A commit that fails is aborted, and raises. Raises as the calls it stands for.
        """
        transactions = self._transactions()
        self.begin_transaction()
        try:
            yield
            if not transactions.over:  # the block may have ended it itself
                self.commit_transaction()
        except BaseException as error:
            if not isinstance(error, Exception):  # Ctrl-C, or a cancelled task: no time to wait for the abort
                transactions.abort_unattended()
            elif transactions.can_abort:
                try:
                    self.abort_transaction()
                except KafkaError as problem:
                    transactions.log_failed_abort(problem)
            raise

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


def _run(core: ProducerCore, clock: SystemClock, lease: Lease | None) -> None:
    """The background thread. It refers to the core, not to the producer."""
    try:
        trio.run(core.main, clock=clock)
    finally:
        if lease is not None:
            lease.release()
