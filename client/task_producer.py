"""``TaskProducer``: the methods that the producers for trio and for asyncio tasks share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from splashdam.client.base import ProducerBase
from splashdam.client.observing.timings import CallerCounters, timed, timed_async
from splashdam.client.sending.intake import PendingSend
from splashdam.client.sending.waiting import Deadline, Stepper
from splashdam.client.serializers import KeyT, ValueT
from splashdam.model.errors import KafkaError
from splashdam.net.clock import Clock
from splashdam.record.kernel.building.fast_path import fast_path_first
from splashdam.record.kernel.outcomes.outcome import FutureT

if TYPE_CHECKING:
    from typing import Never

    from splashdam.client.reports import BulkDelivery, DeliveryReport
    from splashdam.client.transactions.transactions import Transactions
    from splashdam.model.transactions import PreparedTransaction
    from splashdam.sender.transactions.calls import PendingCall

T = TypeVar("T")


@fast_path_first
class TaskProducer(ProducerBase[FutureT], Generic[FutureT, KeyT, ValueT]):
    """The common part of ``AsyncKafkaProducer`` and ``AsyncioKafkaProducer``: they wait in different ways."""

    def _complete(self, pending: PendingSend[FutureT]) -> Awaitable[FutureT]:
        """Wait until a pending send is complete; return the future."""
        raise NotImplementedError

    @staticmethod
    async def _drive(stepper: Stepper[T], clock: Clock, counters: CallerCounters) -> T:
        """Take the steps of ``stepper``, and wait between them."""
        raise NotImplementedError

    async def _wait_for(self, call: PendingCall | None, timeout: float | None = None) -> None:
        """Wait until ``call`` has ended, by default for ``max_block_ms`` at most; None has ended already."""
        raise NotImplementedError

    async def flush(self, timeout: float | None = None) -> DeliveryReport:
        """Send all queued records, and wait for their deliveries."""
        raise NotImplementedError

    def send_nowait(  # noqa: PLR0917 (kafka-python's signature)
        self,
        topic: str,
        value: ValueT | None = None,
        key: KeyT | None = None,
        headers: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> FutureT:
        """As ``send``, but a plain call that never waits. Use it in delivery callbacks.

        Raises:
            WouldBlock: it would have to wait for ``what``. Nothing is queued. The first call for a topic
                requests its metadata, so that a later one succeeds.
        """
        core = self._core
        record = core.intake.submit(topic, value, key, headers, partition, timestamp_ms)
        return core.pending_sends.now(record) if isinstance(record, PendingSend) else record

    async def send_many(
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

        Other tasks run when it waits, and once per batch: under trio these are its checkpoints. If it is
        cancelled, records that are queued by then stay queued. ``await`` the result to wait for all of them.

        Arguments, result and errors are those of ``KafkaProducer.send_many``.
        """
        from splashdam.client.bulk.sending import bulk_of, drive_bulk_in_task

        if unknown or not (key is partitions is timestamps_ms is None):
            from splashdam.client.bulk.arguments import by_either_name

            keys, partition, timestamp_ms = by_either_name(
                TaskProducer.send_many,
                unknown,
                key=(key, keys),
                partition=(partition, partitions),
                timestamp_ms=(timestamp_ms, timestamps_ms),
            )
        bulk = bulk_of(self._core.intake, topic, values, keys, headers, partition, timestamp_ms)
        await drive_bulk_in_task(bulk, self._complete)
        return bulk.finish()

    async def send_arrow(
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

        The chunks of a stream are read in the loop; read a stream that computes them beforehand.

        Arguments, result and errors are those of ``KafkaProducer.send_arrow``.
        """
        from splashdam.client.bulk.arrow import ArrowBulk
        from splashdam.client.bulk.sending import drive_bulk_in_task

        if unknown or not (keys is partitions is timestamps_ms is None):
            from splashdam.client.bulk.arguments import by_either_name

            key, partition, timestamp_ms = by_either_name(
                TaskProducer.send_arrow,
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
                await drive_bulk_in_task(bulk, self._complete)
        return bulk.finish()

    async def prepare(self, topic: str) -> None:
        """Wait for the topic's metadata now, so that the first ``send`` does not.

        Raises:
            KafkaTimeoutError: no metadata within ``max_block_ms``; the message says why.
            BrokerResponseError: the cluster refuses the topic.
            IllegalStateError: the producer does not run.
        """
        await self.partitions_for(topic)

    async def partitions_for(self, topic: str) -> set[int]:
        """Return the topic's partition numbers. Waits for its metadata; raises as ``prepare``."""
        core = self._core
        route = await self._drive(self._lookup(topic), core.clock, core.intake.caller_counters)
        return set(range(route.count))

    @timed_async("txn_init_ns")
    async def init_transactions(self) -> None:
        """See ``KafkaProducer.init_transactions``. Under asyncio ``begin_transaction`` may do it instead.

        Call it before a consumer reads the offsets that this producer's transactions commit.
        """
        await self._wait_for(self._transactions().init())

    async def begin_transaction(self) -> None:
        """Begin a transaction. First wait for a call whose task was cancelled: nobody else does."""
        transactions = self._transactions()
        call = transactions.unattended
        if call is not None:
            try:
                await self._wait_for(call)
            except KafkaError:
                if not transactions.can_abort:
                    raise
                await self.abort_transaction()  # nobody is left to abort what has failed to commit
        self._begin_transaction()

    @timed("txn_begin_ns")
    def _begin_transaction(self) -> None:
        self._transactions().begin()

    @timed_async("txn_send_offsets_ns")
    async def send_offsets_to_transaction(self, offsets: Mapping[Any, Any], group_metadata: Any) -> None:
        """See ``KafkaProducer.send_offsets_to_transaction``."""
        transactions = self._transactions()
        call = transactions.send_offsets(offsets, group_metadata)
        await self._wait_for(call)

    async def prepare_transaction(self) -> PreparedTransaction:
        """See ``KafkaProducer.prepare_transaction``."""
        transactions = self._transactions()
        deadline = Deadline(self._core.clock, transactions.timeout)
        await self._bring_in_deferred(transactions, deadline)
        call = transactions.prepare()
        await self._wait_for(call, deadline.left())
        assert call.prepared is not None
        return call.prepared

    @timed_async("txn_commit_ns")
    async def commit_transaction(self) -> None:
        """See ``KafkaProducer.commit_transaction``."""
        transactions = self._transactions()
        deadline = Deadline(self._core.clock, transactions.timeout)
        await self._bring_in_deferred(transactions, deadline)
        await self._wait_for(transactions.commit(), deadline.left())

    async def _bring_in_deferred(self, transactions: Transactions, deadline: Deadline) -> None:
        # Records from callbacks belong to the transaction, but are in no
        # batch yet: the commit would miss them.
        if self._core.deferred.waiting:
            await self.flush(deadline.left())
            transactions.refuse_deferred()

    @timed_async("txn_abort_ns")
    async def abort_transaction(self) -> None:
        """See ``KafkaProducer.abort_transaction``."""
        await self._wait_for(self._transactions().abort())

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Run a transaction as a block: ``async with producer.transaction(): …``.

        The end of the block commits; an exception aborts and propagates. A failed commit is aborted and
        raises. A cancelled block is aborted without waiting, and a cancelled commit goes on: the next
        ``begin_transaction`` waits for its end.
        """
        transactions = self._transactions()
        await self.begin_transaction()
        try:
            yield
            if not transactions.over:  # the block may have ended it itself
                await self.commit_transaction()
        except BaseException as error:
            if not isinstance(error, Exception):  # Ctrl-C, or a cancelled task: no time to wait for the abort
                transactions.abort_unattended()
            elif transactions.can_abort:
                try:
                    await self.abort_transaction()
                except KafkaError as problem:
                    transactions.log_failed_abort(problem)
            raise
