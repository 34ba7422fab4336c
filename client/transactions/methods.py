"""The transactional methods of both producers. What they need is imported with the option
``transactional_id``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import trio

from splashdam.client.observing.timings import timed, timed_async
from splashdam.client.sending.driving import Deadline
from splashdam.client.waiters import SENDER_THREADS, wait_in_thread, wait_in_trio
from splashdam.model.errors import IllegalStateError, KafkaError

if TYPE_CHECKING:
    from splashdam.client.running.core import ProducerCore
    from splashdam.client.transactions.transactions import Transactions
    from splashdam.model.prepared import PreparedTransaction
    from splashdam.sender.transactions.calls import PendingCall


class TransactionMethods:
    """What the blocking producer has.

    All need the option ``transactional_id``, wait at most ``max_block_ms``, and raise ``IllegalStateError``
    where they are called out of turn: that changes nothing. After a ``KafkaTimeoutError`` the same call may
    be made again and goes on waiting. A ``TransactionFailedError`` asks for ``abort_transaction``. Errors
    that are ``fatal`` (``ProducerFencedError``, ``FatalTransactionError`` and others) leave only ``close``.
    """

    __slots__ = ()

    _core: ProducerCore

    def flush(self, timeout: float | None = None) -> Any:
        """The producer's own."""
        raise NotImplementedError

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
        transactions = _of(self._core)
        SENDER_THREADS.refuse("init_transactions()")
        _wait(transactions, transactions.init())

    @timed("txn_begin_ns")
    def begin_transaction(self) -> None:
        """Opens a transaction: all records go into it until it is committed or aborted. Does not wait.

        Raises:
            IllegalStateError: ``init_transactions`` was not called, or a transaction is open.
            KafkaError: the producer is fenced, or otherwise finished.
        """
        _of(self._core).begin()

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
        transactions = _of(self._core)
        SENDER_THREADS.refuse("send_offsets_to_transaction()")
        group = consumer_group_id if group_metadata is None else group_metadata
        call = transactions.send_offsets(offsets, group)
        if call is not None:
            _wait(transactions, call)

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
        transactions = _of(self._core)
        SENDER_THREADS.refuse("prepare_transaction()")
        deadline = Deadline(self._core.clock, transactions.timeout)
        if self._core.late.waiting:
            self.flush(deadline.left())
            transactions.refuse_late()
        call = transactions.prepare()
        _wait(transactions, call, deadline.left())
        return _prepared(call)

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
        transactions = _of(self._core)
        SENDER_THREADS.refuse("commit_transaction()")
        deadline = Deadline(self._core.clock, transactions.timeout)
        if self._core.late.waiting:
            self.flush(deadline.left())
            transactions.refuse_late()
        _wait(transactions, transactions.commit(), deadline.left())

    @timed("txn_abort_ns")
    def abort_transaction(self) -> None:
        """Gives the transaction up: records that were not sent fail, others are never seen by readers that
        wait for commits.

        Raises:
            KafkaTimeoutError: it has not ended within ``max_block_ms``. Call it again.
            IllegalStateError: no transaction is open.
            KafkaError: the producer is fenced, or otherwise finished.
        """
        transactions = _of(self._core)
        SENDER_THREADS.refuse("abort_transaction()")
        _wait(transactions, transactions.abort())

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction as a block: ``with producer.transaction(): …`` commits at its end, and aborts if an
        exception leaves it. A commit that fails is aborted, and raises. Raises as the calls it stands for.
        """
        transactions = _of(self._core)
        self.begin_transaction()
        try:
            yield
            if not transactions.over:  # the block may have ended it itself
                self.commit_transaction()
        except BaseException as error:
            if not _wants_abort(error):
                transactions.abort_unattended()
            elif transactions.can_abort:
                try:
                    self.abort_transaction()
                except KafkaError as problem:
                    transactions.log_failed_abort(problem)
            raise


class AsyncTransactionMethods:
    """What the trio producer has: those of ``TransactionMethods``, as checkpoints.

    One that is cancelled while it waits goes on by itself; calling it again waits for its end.
    """

    __slots__ = ()

    _core: ProducerCore

    async def flush(self, timeout: float | None = None) -> Any:
        """The producer's own."""
        raise NotImplementedError

    @timed_async("txn_init_ns")
    async def init_transactions(self) -> None:
        """See ``KafkaProducer.init_transactions``."""
        transactions = _of(self._core)
        await _wait_in_trio(transactions, transactions.init())

    @timed_async("txn_begin_ns")
    async def begin_transaction(self) -> None:
        """See ``KafkaProducer.begin_transaction``."""
        await trio.lowlevel.checkpoint()
        _of(self._core).begin()

    @timed_async("txn_send_offsets_ns")
    async def send_offsets_to_transaction(self, offsets: Mapping[Any, Any], group_metadata: Any) -> None:
        """See ``KafkaProducer.send_offsets_to_transaction``."""
        transactions = _of(self._core)
        call = transactions.send_offsets(offsets, group_metadata)
        if call is None:
            await trio.lowlevel.checkpoint()
        else:
            await _wait_in_trio(transactions, call)

    async def prepare_transaction(self) -> PreparedTransaction:
        """See ``KafkaProducer.prepare_transaction``."""
        transactions = _of(self._core)
        deadline = Deadline(self._core.clock, transactions.timeout)
        if self._core.late.waiting:
            await self.flush(deadline.left())
            transactions.refuse_late()
        call = transactions.prepare()
        await _wait_in_trio(transactions, call, deadline.left())
        return _prepared(call)

    @timed_async("txn_commit_ns")
    async def commit_transaction(self) -> None:
        """See ``KafkaProducer.commit_transaction``."""
        transactions = _of(self._core)
        deadline = Deadline(self._core.clock, transactions.timeout)
        if self._core.late.waiting:
            await self.flush(deadline.left())
            transactions.refuse_late()
        await _wait_in_trio(transactions, transactions.commit(), deadline.left())

    @timed_async("txn_abort_ns")
    async def abort_transaction(self) -> None:
        """See ``KafkaProducer.abort_transaction``."""
        transactions = _of(self._core)
        await _wait_in_trio(transactions, transactions.abort())

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """See ``KafkaProducer.transaction``; a block that is cancelled is aborted without waiting for it."""
        transactions = _of(self._core)
        await self.begin_transaction()
        try:
            yield
            if not transactions.over:
                await self.commit_transaction()
        except BaseException as error:
            if not _wants_abort(error):
                transactions.abort_unattended()
            elif transactions.can_abort:
                try:
                    await self.abort_transaction()
                except KafkaError as problem:
                    transactions.log_failed_abort(problem)
            raise


def _wants_abort(error: BaseException) -> bool:
    """Whether there is time to wait for the abort: not on Ctrl-C, nor in a cancelled task."""
    return isinstance(error, Exception)


def _of(core: ProducerCore) -> Transactions:
    if core.transactions is None:
        raise IllegalStateError("transactions need a producer with the option transactional_id")
    return core.transactions


def _prepared(call: PendingCall) -> PreparedTransaction:
    assert call.prepared is not None
    return call.prepared


def _wait(transactions: Transactions, call: PendingCall, timeout: float | None = None) -> None:
    wait_in_thread(call.finished, transactions.timeout if timeout is None else timeout)
    transactions.finish(call)


async def _wait_in_trio(transactions: Transactions, call: PendingCall, timeout: float | None = None) -> None:
    with trio.move_on_after(transactions.timeout if timeout is None else timeout):
        await wait_in_trio(call.finished)
        await trio.lowlevel.checkpoint()
    transactions.finish(call)
