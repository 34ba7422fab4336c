"""A producer's transactions: opens and closes the intake, makes the blocking calls, reads their arguments."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import trio

from splashdam.client.running.lifecycle import State
from splashdam.client.running.process import refuse_inside_a_send
from splashdam.client.sending.arguments import check_topic_name
from splashdam.client.waiters import wait_in_asyncio, wait_in_thread, wait_in_trio
from splashdam.model.errors import KafkaError, KafkaTimeoutError, SettingText
from splashdam.model.log_text import fields
from splashdam.model.options import MAX_INT, MAX_LONG
from splashdam.model.transactions import ConsumerGroupMetadata, OffsetAndMetadata
from splashdam.model.values import TopicPartition
from splashdam.sender.transactions.calls import Operation, PendingCall
from splashdam.sender.transactions.manager import TransactionManager, TransactionState

if TYPE_CHECKING:
    from splashdam.accumulator.accumulator import RecordAccumulator
    from splashdam.client.sending.deferred_sends import DeferredSends
    from splashdam.client.sending.intake import RecordIntake
    from splashdam.client.settings.producer_settings import ProducerSettings
    from splashdam.net.reentrant_lock import ReentrantLock

logger = logging.getLogger("splashdam.client")


class Transacting(Protocol):
    """A producer's core, as far as its transactions need it."""

    @property
    def settings(self) -> ProducerSettings: ...
    @property
    def state(self) -> State: ...
    @property
    def guard(self) -> ReentrantLock: ...
    @property
    def accumulator(self) -> RecordAccumulator: ...
    @property
    def intake(self) -> RecordIntake[Any]: ...
    @property
    def deferred(self) -> DeferredSends[Any]: ...

    def refusal(self) -> BaseException:
        """Why no record is taken now."""


class Transactions:
    """Opens and closes a producer's intake as its transactions begin and end.

    Args:
        core: of the producer.
        manager: decides which calls are legal.
        wake: wakes the sender.
    """

    def __init__(self, core: Transacting, manager: TransactionManager, wake: Callable[[], None]) -> None:
        self._core = core
        self._manager = manager
        self._wake = wake
        self.refusal = core.intake.refuse_between = manager.refusal
        manager.on_change = self._changed

    @property
    def timeout(self) -> float:
        """Limit of a call in seconds: ``max_block_ms``."""
        return self._core.settings.max_block_ms / 1000

    @property
    def can_abort(self) -> bool:
        """Whether there is a transaction to abort."""
        return self._manager.can_abort

    @property
    def over(self) -> bool:
        """Whether the last transaction has ended, or is prepared."""
        return self._manager.state in (TransactionState.READY, TransactionState.PREPARED)

    @property
    def needs_init(self) -> bool:
        """Whether ``init`` was not called, or has to be called again to wait for its end."""
        if self._manager.state is TransactionState.UNINITIALIZED:
            return True
        return self._core.guard.run(self._manager.awaits_init)

    @property
    def unattended(self) -> PendingCall | None:
        """The call whose caller was cancelled and that nobody waits for; usually None."""
        return self._core.guard.run(self._manager.unattended)

    def init(self) -> PendingCall:
        """See ``TransactionManager.init``."""
        return self._call(self._manager.init, Operation.INIT.value)

    def begin(self) -> None:
        """Begin a transaction; records are taken from now on."""
        self._check("begin_transaction")
        self._core.guard.run(self._manager.begin)

    def prepare(self) -> PendingCall:
        """Take no more records, and prepare once the queued ones are delivered."""
        return self._call(self._manager.prepare, Operation.PREPARE.value)

    def commit(self) -> PendingCall:
        """Take no more records, and commit once the queued ones are delivered."""
        return self._call(self._manager.commit, Operation.COMMIT.value)

    def abort(self) -> PendingCall:
        """Take no more records, fail unsent ones, and abort."""
        return self._call(self._manager.abort, Operation.ABORT.value)

    def abort_unattended(self) -> None:
        """As `abort`, without waiting; the sender completes it."""
        self._core.guard.run(self._manager.abort_unattended)
        self._wake()

    def send_offsets(self, offsets: Mapping[Any, Any], group_metadata: Any) -> PendingCall | None:
        """Add consumed offsets; without offsets there is nothing to wait for, and the result is None."""
        group, read = group_of(group_metadata), offsets_of(offsets)
        if not read:
            return None
        return self._call(lambda: self._manager.send_offsets(read, group), Operation.OFFSETS.value)

    def wait_in_thread(self, call: PendingCall, timeout: float | None = None) -> None:
        """Block until ``call`` has ended, by default for ``max_block_ms`` at most. Raises as ``finish``."""
        wait_in_thread(call.finished, self.timeout if timeout is None else timeout)
        self.finish(call)

    async def wait_in_trio(self, call: PendingCall, timeout: float | None = None) -> None:
        """As ``wait_in_thread``, in a trio task. If that is cancelled, the call is `unattended`."""
        call.left = False
        try:
            with trio.move_on_after(self.timeout if timeout is None else timeout):
                await wait_in_trio(call.finished)
                await trio.lowlevel.checkpoint()
        except BaseException:
            # The call goes on without a caller, who may come back; else the next
            # ``begin_transaction`` waits for it.
            call.left = True
            raise
        self.finish(call)

    async def wait_in_asyncio(self, call: PendingCall, timeout: float | None = None) -> None:
        """As ``wait_in_thread``, in an asyncio task. If that is cancelled, the call is `unattended`."""
        call.left = False
        try:
            await wait_in_asyncio(call.finished, self.timeout if timeout is None else timeout)
        except BaseException:
            call.left = True
            raise
        self.finish(call)

    def finish(self, call: PendingCall) -> None:
        """Complete the wait for ``call``.

        Raises:
            KafkaTimeoutError: it has not ended; it continues, and may be called again.
            KafkaError: it has failed.
        """
        if not call.finished.opened:
            raise self._timed_out(call)
        # Before its error is raised, so that the application may call again.
        self._core.guard.run(self._manager.acknowledge, call)
        call.result()

    def refuse_deferred(self) -> None:
        """Raise if records from callbacks still wait for memory after the timeout of a commit.

        Raises:
            KafkaTimeoutError: such records are left.
        """
        if self._core.deferred.waiting:
            raise KafkaTimeoutError(
                SettingText(
                    "nothing is committed: {count} records sent from callbacks have waited for"
                    " {block_ms:g} ms; {failure}",
                    count=self._core.deferred.waiting,
                    block_ms=self._core.settings.max_block_ms,
                    failure=self._core.intake.last_failure(),
                )
            )

    def log_failed_abort(self, error: KafkaError) -> None:
        """Log a failed abort; the application gets the error that caused the abort."""
        name = self._core.settings.client_id
        about = fields(client_id=name, error=type(error).__name__)
        logger.warning("%s: the transaction could not be aborted: %s", name, error, extra=about)

    def _call(self, make: Callable[[], PendingCall], name: str) -> PendingCall:
        self._check(name)
        call = self._core.guard.run(make)
        # A call with nothing to do has ended here, without a turn of the sender.
        self._manager.run_ended()
        self._wake()
        return call

    def _check(self, name: str) -> None:
        core = self._core
        if core.state is not State.RUNNING:
            raise core.refusal()
        refuse_inside_a_send(f"{name}()")

    def _changed(self) -> None:
        """Open or close the intake after a change of state. The guard is held."""
        core = self._core
        if core.state is not State.RUNNING:
            return  # the intake is closed for good
        intake = core.intake
        if self._manager.state is TransactionState.IN_TRANSACTION:
            intake.refuse = None
        elif intake.refuse is None:
            intake.refuse = self.refusal
            # A record that waits for memory compares it when it is appended, and is refused.
            intake.transaction += 1
            # An append on the fast path may have passed the check of `refuse`; it finds no open batch now.
            core.accumulator.close_batches()

    def _timed_out(self, call: PendingCall) -> KafkaTimeoutError:
        manager, core = self._manager, self._core
        return KafkaTimeoutError(
            SettingText(
                "{call}() has not ended within {block_ms:g} ms, the producer is {state}: call it again to"
                " continue waiting; {failure}",
                call=call.operation.value,
                block_ms=core.settings.max_block_ms,
                state=manager.state.name,
                failure=manager.last_error or core.intake.last_failure(),
            )
        )


_MAX_METADATA_BYTES = 32767


def offsets_of(offsets: Mapping[Any, Any]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Read offsets by partition, from our or kafka-python's values, similar tuples, or plain numbers.

    Raises:
        TypeError: it is not a mapping of these.
        ValueError: a topic name is illegal, or a number is negative.
    """
    if not isinstance(offsets, Mapping):
        raise TypeError(f"offsets must be a dict of TopicPartition to offset, not {type(offsets).__name__}")
    return {_partition(where): _offset(where, read) for where, read in offsets.items()}


def group_of(group_metadata: Any) -> ConsumerGroupMetadata:
    """Read the consumer group, from our or kafka-python's value, or from its name.

    Raises:
        TypeError: it is of another type.
        ValueError: the group id is empty.
    """
    if isinstance(group_metadata, str):
        group_metadata = ConsumerGroupMetadata(group_metadata)
    try:
        group = ConsumerGroupMetadata(
            *(getattr(group_metadata, name) for name in ConsumerGroupMetadata._fields)
        )
    except AttributeError:
        raise TypeError(
            "group_metadata must be a ConsumerGroupMetadata or the name of a group,"
            f" not {type(group_metadata).__name__}"
        ) from None
    if not group.group_id:
        raise ValueError(f"group_metadata names no group: {group_metadata!r}")
    return group


def _partition(where: Any) -> TopicPartition:
    if not isinstance(where, tuple) or len(where) != 2:
        raise TypeError(f"offsets are given by TopicPartition, not by {where!r}")
    topic, number = where
    try:
        topic_partition = TopicPartition(check_topic_name(topic), operator.index(number))
    except TypeError:
        raise TypeError(f"offsets are given by TopicPartition, not by {where!r}") from None
    if not 0 <= topic_partition.partition <= MAX_INT:
        raise ValueError(f"there is no partition {topic_partition.partition} of topic {topic!r}")
    return topic_partition


def _fields(read: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(OffsetAndMetadata(*read))


def _offset(where: Any, read: Any) -> OffsetAndMetadata:
    if not isinstance(read, tuple):
        read = (read,)
    try:
        offset, metadata, epoch = _fields(read)
        made = OffsetAndMetadata(operator.index(offset), metadata or "", -1 if epoch is None else epoch)
    except TypeError:
        raise TypeError(f"the offset of {where!r} must be an OffsetAndMetadata or a number") from None
    if made.offset < 0:
        raise ValueError(f"the offset of {where!r} is negative: {made.offset}")
    if made.offset > MAX_LONG:
        raise ValueError(f"the offset of {where!r} does not fit 64 bits: {made.offset}")
    if not isinstance(made.metadata, str):
        raise TypeError(f"the metadata of {where!r} must be str, not {type(made.metadata).__name__}")
    size = len(made.metadata.encode())
    if size > _MAX_METADATA_BYTES:
        raise ValueError(
            f"the metadata of {where!r} takes {size} bytes, and the protocol has room for"
            f" {_MAX_METADATA_BYTES}; brokers take 4096 by default (offset.metadata.max.bytes)"
        )
    return made
