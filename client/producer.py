"""``KafkaProducer``: the blocking producer, with kafka-python's methods."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self

from splashdam.client.base import ProducerBase
from splashdam.client.future import RecordFuture, Subscription, in_callback
from splashdam.client.observing.timings import timed
from splashdam.client.running import process
from splashdam.client.running.background import BackgroundLoop, background_core
from splashdam.client.running.core import FORCED_SECONDS
from splashdam.client.running.lifecycle import State
from splashdam.client.sending.intake import PendingSend
from splashdam.client.sending.lookup import BootstrapLookup
from splashdam.client.sending.waiting import Deadline, drive_in_thread
from splashdam.client.serializers import KeyT, ValueT
from splashdam.client.settings.rules import producer_settings, refuse_positional
from splashdam.client.waiters import SENDER_THREADS, wait_in_thread
from splashdam.model.errors import KafkaError
from splashdam.record.kernel import Sends
from splashdam.record.kernel.building.fast_path import fast_path_first
from splashdam.sender.wakeup import Latch

if TYPE_CHECKING:
    from typing import Never, Unpack
    from uuid import UUID

    from splashdam.client.reports import BulkDelivery, DeliveryReport
    from splashdam.client.settings.keywords import ProducerOptions
    from splashdam.model.transactions import PreparedTransaction


@fast_path_first
class KafkaProducer(ProducerBase[RecordFuture], Sends[RecordFuture], Generic[KeyT, ValueT]):
    """Sends records to Kafka from any number of threads.

    ``send`` appends a record to a batch and returns a future; a background thread sends the batches. Use the
    producer as a context manager, or call ``close``: both deliver the remaining records. A producer without
    references closes itself within ``exit_timeout_ms``, and so does one that is open when the interpreter
    exits.

    The methods of transactions need the option ``transactional_id``, wait at most ``max_block_ms``, and raise
    ``IllegalStateError``, with no effect, if they are called in the wrong state. After a
    ``KafkaTimeoutError`` the same call may be repeated and continues to wait. After a
    ``TransactionFailedError`` call ``abort_transaction``. After a ``fatal`` error (``ProducerFencedError``,
    ``FatalTransactionError`` and others) only ``close`` is legal.

    Args:
        options: ``splashdam options`` prints all of them, with types, defaults, units and meaning. Names are
            kafka-python's; Kafka's dotted names go through ``from_properties``.

    Raises:
        KafkaConfigurationError: an option is unknown (the nearest right one is named), illegal, not
            supported, or contradicts another one.
        TypeError: an argument has no name; confluent-kafka's dict of properties has a sentence of its own.
        IllegalStateError: with ``embedded:DIR``, another process uses the directory; or the interpreter
            exits.
        NoBrokersAvailable: no broker has answered within ``bootstrap_timeout_ms``, if that is given.

    The constructor opens no connection and returns at once, unless ``bootstrap_timeout_ms`` is given.
    """

    def __init__(self, *others: Never, **options: Unpack[ProducerOptions[KeyT, ValueT]]) -> None:
        if others:
            refuse_positional("KafkaProducer", others)
        process.refuse_at_exit()
        self._settings = settings = producer_settings(options)
        self._core = core = background_core(settings, RecordFuture)
        self._path = core.intake.path
        self._loop = loop = BackgroundLoop(core)
        self._lease = loop.lease
        # Not at exit: process.py closes all producers together then.
        weakref.finalize(self, core.abandon).atexit = False
        bootstrap = core.bootstrap_lookup()
        if bootstrap is not None:
            self._await_bootstrap(bootstrap)

    def _await_bootstrap(self, bootstrap: BootstrapLookup) -> None:
        try:
            drive_in_thread(bootstrap, self._core.clock, self._core.intake.caller_counters)
        except BaseException:
            self.close(0)
            raise

    def send(  # noqa: PLR0917 (kafka-python's signature)
        self,
        topic: str,
        value: ValueT | None = None,
        key: KeyT | None = None,
        headers: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordFuture:
        """Append a record to a batch. Waits only for a topic's first metadata and for memory.

        In a delivery callback, a signal handler or a ``__del__`` it never waits: a record that would have to
        wait is deferred and appended soon after, in order.

        Args:
            topic: name of the topic.
            value: bytes, or what ``value_serializer`` takes; None is a tombstone and needs a key.
            key: bytes, or what ``key_serializer`` takes; equal keys go to the same partition.
            headers: ``(str, bytes or None)`` pairs in a list or tuple, or a dict.
            partition: the partition; default: the partitioner decides.
            timestamp_ms: milliseconds since the epoch; default: now.

        Returns:
            the future of the delivery, for ``get()`` or ``await``. It has failed already if the cluster
            refuses the topic.

        Raises:
            KafkaTimeoutError: no metadata for the topic within ``max_block_ms``; the message says why.
            BufferExhaustedError: ``buffer_memory`` stayed full for ``max_block_ms``. A KafkaTimeoutError.
            MessageTooLargeError: the record is larger than ``max_request_size``.
            IllegalStateError: the producer is closed, or this is a forked child.
            IllegalArgumentError: the topic has no such ``partition``, after an update of the metadata. A
                ValueError.
            TypeError, ValueError: an argument is invalid.
            Exception: raised by a serializer or partitioner.
        """
        # Records that fit into an open batch never come here: they take the fast path (`fast_path_first`).
        core = self._core
        record = core.intake.submit(topic, value, key, headers, partition, timestamp_ms)
        return core.pending_sends.in_thread(record) if isinstance(record, PendingSend) else record

    def send_nowait(  # noqa: PLR0917 (kafka-python's signature)
        self,
        topic: str,
        value: ValueT | None = None,
        key: KeyT | None = None,
        headers: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordFuture:
        """As ``send``, but never waits. Use it in delivery callbacks of a trio program.

        Raises:
            WouldBlock: it would have to wait for ``what``. Nothing is queued. The first call for a topic
                requests its metadata, so that a later one succeeds.
        """
        core = self._core
        record = core.intake.submit(topic, value, key, headers, partition, timestamp_ms)
        return core.pending_sends.now(record) if isinstance(record, PendingSend) else record

    def send_many(
        self,
        topic: str,
        values: Iterable[ValueT | None],
        *,
        key: Any = None,
        keys: Iterable[KeyT | None] | None = None,
        headers: Any = None,
        partition: int | Iterable[int | None] | None = None,
        partitions: Iterable[int | None] | None = None,
        timestamp_ms: int | Iterable[int | None] | None = None,
        timestamps_ms: Iterable[int | None] | None = None,
        **unknown: Never,
    ) -> BulkDelivery:
        """Append many records, in order, at a small part of the cost of ``send`` for each.

        It waits like ``send``, for a topic's first metadata and for memory, up to ``max_block_ms`` each time.
        Records without a key follow the producer's partitioner: by default they fill a batch of one partition
        and continue with another one. Records of one call keep their order in each partition. Serializers and
        custom partitioners are called for every record, which costs as much as ``send``.

        Args:
            topic: name of the topic.
            values: bytes, None for tombstones, or what ``value_serializer`` takes. A list or tuple is not
                copied and must not change during the call; other iterables become a list first.
            key, keys: the key of all records, or an iterable with one per record, None for a null key;
                default: no keys. A ``str``, bytes or a dict is one key. ``keys`` has one per record. Give one
                of the two names, also of the following pairs.
            headers: the headers of all records, as for ``send``; or a list with the headers of each record,
                None for no headers.
            partition, partitions: the partition of all records, or one per record; default and None: by key,
                or by the partitioner.
            timestamp_ms, timestamps_ms: the timestamp of all records, or one per record; default: now, read
                once per batch. None in a list is the time of the call.
            unknown: nothing; another name is refused with the nearest right one.

        Returns:
            the delivery of all records, for ``get()`` or ``await``. It has failed already if the cluster
            refuses the topic.

        Raises:
            BulkSendError: it ended before the last record, with the error of ``send`` as ``__cause__``.
                Records before its ``index`` are queued, the rest are not.
            IllegalStateError: the producer is closed, or this is a forked child. Nothing is queued.
            TypeError, ValueError: an argument is invalid. Nothing is queued.
        """
        from splashdam.client.bulk.sending import bulk_of, drive_bulk_in_thread

        if unknown or not (key is partitions is timestamps_ms is None):
            from splashdam.client.bulk.arguments import by_either_name

            keys, partition, timestamp_ms = by_either_name(
                KafkaProducer.send_many,
                unknown,
                key=(key, keys),
                partition=(partition, partitions),
                timestamp_ms=(timestamp_ms, timestamps_ms),
            )
        bulk = bulk_of(self._core.intake, topic, values, keys, headers, partition, timestamp_ms)
        drive_bulk_in_thread(bulk, self._core.pending_sends.in_thread)
        return bulk.finish()

    def send_arrow(
        self,
        topic: str,
        data: Any,
        *,
        value: str = "value",
        key: Any = "key",
        keys: Any = None,
        headers: Any = None,
        partition: Any = None,
        partitions: Any = None,
        timestamp_ms: Any = None,
        timestamps_ms: Any = None,
        may_be_empty: bool = False,
        **unknown: Never,
    ) -> BulkDelivery:
        """Send the rows of Arrow data straight from their buffers; see ``send_many``.

        Data may be any object with ``__arrow_c_stream__`` or ``__arrow_c_array__``: tables and record batches
        of pyarrow, polars, DuckDB and others, or a single array of values. pyarrow is not needed. Columns are
        binary or text, also large, view and fixed-size, or dictionaries of these.

        Keys, headers, partitions and timestamps are columns of the data, or stand beside them: as Arrow
        arrays, or as lists and other iterables, with one item for each row. So
        ``send_arrow(topic, values, key=keys)`` needs no table. ``keys``, ``partitions`` and ``timestamps_ms``
        are other names of ``key``, ``partition`` and ``timestamp_ms``.

        Args:
            topic: name of the topic.
            data: a table, a record batch, a stream of them, or an array of values.
            value: name of the value column; nulls are tombstones and need a key.
            key, keys: name of the key column; or one key for each row, beside the data; or bytes, the key of
                all rows. The default ``"key"`` may be missing in the data, another name must exist; None for
                no keys.
            headers: the headers of all records, as for ``send``; or the name of a column of maps or of lists
                of (key, value) structs, or such an array, or a list with the headers of each record. A null
                is a record without headers.
            partition, partitions: the partition of all records; or the name of an integer column, or one for
                each row. Nulls go by key or by the partitioner.
            timestamp_ms, timestamps_ms: the timestamp of all records; or the name of a column of timestamps
                or of integer milliseconds, or one for each row. Finer timestamps are truncated, nulls are the
                time of the call.
            may_be_empty: whether a row with neither value nor key is sent, as in Kafka, or an error.
            unknown: nothing; another name is refused with the nearest right one.

        Raises:
            BulkSendError, IllegalStateError, TypeError, ValueError: as ``send_many``; for damaged data and
                columns that are not bytes too.
            KafkaConfigurationError: the producer has a serializer.
        """
        from splashdam.client.bulk.arrow import ArrowBulk
        from splashdam.client.bulk.sending import drive_bulk_in_thread

        if unknown or not (keys is partitions is timestamps_ms is None):
            from splashdam.client.bulk.arguments import by_either_name

            key, partition, timestamp_ms = by_either_name(
                KafkaProducer.send_arrow,
                unknown,
                has_columns=True,
                key=(key, keys),
                partition=(partition, partitions),
                timestamp_ms=(timestamp_ms, timestamps_ms),
            )
        parts = (value, key, headers, partition, timestamp_ms)
        with ArrowBulk(self._core.intake, topic, data, *parts, may_be_empty=may_be_empty) as arrow:
            bulk = arrow.bulk
            for columns in arrow.chunks():
                bulk.add(*columns)
                drive_bulk_in_thread(bulk, self._core.pending_sends.in_thread)
        return bulk.finish()

    def prepare(self, topic: str) -> None:
        """Wait for the topic's metadata now, so that the first ``send`` does not.

        Raises:
            KafkaTimeoutError: no metadata within ``max_block_ms``; the message says why.
            BrokerResponseError: the cluster refuses the topic.
            IllegalStateError: the producer is closed, or this is its own thread.
        """
        self.partitions_for(topic)

    def partitions_for(self, topic: str) -> set[int]:
        """Return the topic's partition numbers. Waits for its metadata; raises as ``prepare``."""
        lookup = self._lookup(topic)
        route = lookup.step()
        if route is None:
            SENDER_THREADS.refuse("partitions_for()")
            route = drive_in_thread(lookup, self._core.clock, self._core.intake.caller_counters)
        return set(range(route.count))

    @timed("flush_ns")
    def flush(self, timeout: float | None = None) -> DeliveryReport:
        """Send queued records without linger, and wait until all of them are delivered or have failed.

        Callbacks of these records have run when it returns. Delivery errors are not raised: the report counts
        the records of this flush, the failed ones by partition and cause, and each future has its own error.

        Args:
            timeout: seconds; default: no limit; ``delivery_timeout_ms`` ends the wait. After a timeout the
                report counts the pending records.

        Raises:
            IllegalStateError: called in a callback, or in a signal handler or ``__del__`` that has
                interrupted a ``send``, where it would deadlock.
            ValueError: ``timeout`` is negative.
        """
        core = self._core
        deadline = Deadline(core.clock, timeout)
        SENDER_THREADS.refuse("flush()")
        records = core.begin_flush()
        try:
            if all(wait_in_thread(Subscription(outcome, -1), deadline.left()) for outcome, _, _ in records):
                # A batch is done an instant before its callbacks run: the loop answers
                # after the step that runs them.
                callbacks_have_run = Latch()
                core.in_loop(callbacks_have_run.open)
                wait_in_thread(callbacks_have_run, deadline.left())
        finally:
            core.end_flush()
        return core.flush_report(records, timeout)

    @timed("txn_init_ns")
    def init_transactions(self) -> None:
        """Get the producer id of the ``transactional_id``: call this once, before the first transaction.

        The coordinator fences earlier producers with the same ``transactional_id``, and aborts a transaction
        that they left open. Calling it again does nothing.

        Raises:
            KafkaTimeoutError: the coordinator was not found, or did not answer, within ``max_block_ms``.
            KafkaError: the cluster refuses. After an authorization error (31, 53) it may be called again.
            IllegalStateError: there is no ``transactional_id``, or the producer is closed.
        """
        transactions = self._transactions()
        SENDER_THREADS.refuse("init_transactions()")
        transactions.wait_in_thread(transactions.init())

    @timed("txn_begin_ns")
    def begin_transaction(self) -> None:
        """Begin a transaction: all records belong to it until it is committed or aborted. Does not wait.

        Raises:
            IllegalStateError: ``init_transactions`` was not called, or a transaction is open.
            KafkaError: the producer is fenced, or failed for good.
        """
        self._transactions().begin()

    @timed("txn_send_offsets_ns")
    def send_offsets_to_transaction(
        self, offsets: Mapping[Any, Any], group_metadata: Any = None, *, consumer_group_id: Any = None
    ) -> None:
        """Add a consumer group's offsets to the transaction: committed with its records, or not at all.

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
            TypeError, ValueError: an argument is invalid.
        """
        transactions = self._transactions()
        SENDER_THREADS.refuse("send_offsets_to_transaction()")
        group = consumer_group_id if group_metadata is None else group_metadata
        call = transactions.send_offsets(offsets, group)
        if call is not None:
            transactions.wait_in_thread(call)

    def prepare_transaction(self) -> PreparedTransaction:
        """Deliver all records of the transaction, without committing or aborting it yet.

        This is the first phase of a two-phase commit: store the returned value, then end the transaction with
        ``commit_transaction`` or ``abort_transaction`` here, or from any process with
        ``splashdam.net.admin.transactions.end_transaction``. Until then this producer takes no records, and
        closing it aborts nothing. The cluster aborts a transaction that is not ended within
        ``transaction_timeout_ms``, and so does the next producer with this ``transactional_id``. The name is
        KIP-939's; its requests are not used, so it works with any cluster that supports transactions.

        Returns:
            the identity of the transaction, with which another process can end it.

        Raises:
            TransactionFailedError: a record of the transaction failed, ``__cause__`` says why. Abort it.
            KafkaTimeoutError: not all is delivered within ``max_block_ms``. Call it again.
            IllegalStateError: no transaction is open.
            KafkaError: the producer is fenced, or failed for good.
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
        """Deliver all records of the transaction, and commit it.

        Raises:
            TransactionFailedError: a record of the transaction failed, ``__cause__`` says why. Abort it.
            KafkaTimeoutError: it has not ended within ``max_block_ms``, and its outcome is unknown. Call it
                again; the transaction cannot be aborted any more.
            IllegalStateError: no transaction is open.
            KafkaError: the producer is fenced, or failed for good.
        """
        transactions = self._transactions()
        SENDER_THREADS.refuse("commit_transaction()")
        deadline = Deadline(self._core.clock, transactions.timeout)
        # Records from callbacks belong to the transaction, but are in no
        # batch yet: the commit would miss them.
        if self._core.deferred.waiting:
            self.flush(deadline.left())
            transactions.refuse_deferred()
        transactions.wait_in_thread(transactions.commit(), deadline.left())

    @timed("txn_abort_ns")
    def abort_transaction(self) -> None:
        """Abort the transaction: unsent records fail, sent ones are invisible to read_committed consumers.

        Raises:
            KafkaTimeoutError: it has not ended within ``max_block_ms``. Call it again.
            IllegalStateError: no transaction is open.
            KafkaError: the producer is fenced, or failed for good.
        """
        transactions = self._transactions()
        SENDER_THREADS.refuse("abort_transaction()")
        transactions.wait_in_thread(transactions.abort())

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run a transaction as a block: ``with producer.transaction(): …``.

        The end of the block commits; an exception aborts and propagates. A failed commit is aborted and
        raises. Raises as ``begin_transaction``, ``commit_transaction`` and ``abort_transaction``.
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
        """Return the client instance id that brokers assign for metrics (KIP-714), as in Java.

        Opens a connection if the producer has none yet, and waits for the response.

        Args:
            timeout: seconds; default: no limit.

        Raises:
            KafkaTimeoutError: no broker assigned one, since none subscribes to metrics.
            IllegalStateError: with ``enable_metrics_push=False``, or the producer is or gets closed, or this
                is its own thread.
        """
        self._ask_identity()
        SENDER_THREADS.refuse("client_instance_id()")
        wait_in_thread(self._core.identified, timeout)
        return self._identity(timeout)

    def close(self, timeout: float | None = None, null_logger: bool = False) -> None:
        """Take no more records, deliver the remaining ones, and end the background thread.

        Records that are not delivered within ``timeout`` fail. Closing again does nothing. In a callback it
        does not wait: undelivered records fail, as with ``timeout=0``.

        Args:
            timeout: seconds; 0 fails undelivered records at once. Default: no limit; ``delivery_timeout_ms``
                ends the wait.
            null_logger: kafka-python's option; has no effect, since no logger is replaced.

        Raises:
            ValueError: ``timeout`` is negative.
        """
        core = self._core
        deadline = Deadline(core.clock, timeout)
        core.begin_close(at_once=timeout == 0)
        # The interrupted code holds the guard, without which the loop cannot end.
        if core.state is State.FOREIGN or core.guard.interrupted():
            return
        if SENDER_THREADS.here():  # a callback, or a finalizer, which must not fail the records of others
            if timeout == 0 or in_callback():
                core.force_close("in a callback")
            return
        if timeout == 0 or not wait_in_thread(core.finished, deadline.left()):
            core.force_close(f"with timeout={timeout}")
            wait_in_thread(core.finished, FORCED_SECONDS)
            # A callback of the application may block the loop, and nobody may wait for ever.
            core.fail_what_is_left()
        left = deadline.left()
        self._loop.thread.join(left if left is None else max(left, FORCED_SECONDS))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # After Ctrl-C, do not wait for an unresponsive broker until `delivery_timeout_ms`.
        self.close(self._settings.exit_timeout_ms / 1000 if kind is KeyboardInterrupt else None)
