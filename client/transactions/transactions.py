"""A producer's transactions: when records are taken, and the calls up to where somebody has to wait."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from splashdam.client.running.guard import refuse_inside_a_send
from splashdam.client.running.lifecycle import State
from splashdam.client.transactions.offsets import group_of, offsets_of
from splashdam.model.errors import KafkaError, KafkaTimeoutError
from splashdam.model.log_fields import fields
from splashdam.sender.transactions.calls import Operation, PendingCall
from splashdam.sender.transactions.manager import TransactionManager, TransactionState

if TYPE_CHECKING:
    from splashdam.accumulator.accumulator import RecordAccumulator
    from splashdam.client.sending.intake import RecordIntake
    from splashdam.client.sending.late import LateRecords
    from splashdam.client.settings.producer_settings import ProducerSettings
    from splashdam.net.guard import Guard

logger = logging.getLogger("splashdam.client")


class Transacting(Protocol):
    """A producer's core, as far as its transactions need it."""

    @property
    def settings(self) -> ProducerSettings: ...
    @property
    def state(self) -> State: ...
    @property
    def guard(self) -> Guard: ...
    @property
    def accumulator(self) -> RecordAccumulator: ...
    @property
    def intake(self) -> RecordIntake: ...
    @property
    def late(self) -> LateRecords: ...

    def refusal(self) -> BaseException:
        """Why no record is taken now."""


class Transactions:
    """Opens and closes a producer's intake as its transactions begin and end. Never waits.

    Args:
        core: the producer's.
        manager: decides what is legal.
        wake: the sender takes a turn soon.
    """

    def __init__(self, core: Transacting, manager: TransactionManager, wake: Callable[[], None]) -> None:
        self._core = core
        self._manager = manager
        self._wake = wake
        self.refusal = core.intake.between = manager.refusal
        manager.on_change = self._changed

    @property
    def timeout(self) -> float:
        """Seconds that a call may wait."""
        return self._core.settings.max_block_ms / 1000

    @property
    def can_abort(self) -> bool:
        """Whether there is a transaction to be given up."""
        return self._manager.can_abort

    @property
    def over(self) -> bool:
        """Whether nothing is left to be done for the last transaction: it has ended, or others end it."""
        return self._manager.state in (TransactionState.READY, TransactionState.PREPARED)

    def init(self) -> PendingCall:
        """See ``TransactionManager.init``."""
        return self._call(self._manager.init, Operation.INIT.value)

    def begin(self) -> None:
        """Records are taken from now on."""
        self._check("begin_transaction")
        self._core.guard.run(self._manager.begin)

    def prepare(self) -> PendingCall:
        """No record is taken any more; those there are are delivered, and then somebody else decides."""
        return self._call(self._manager.prepare, Operation.PREPARE.value)

    def commit(self) -> PendingCall:
        """No record is taken any more; those there are decide how this ends."""
        return self._call(self._manager.commit, Operation.COMMIT.value)

    def abort(self) -> PendingCall:
        """No record is taken any more, and those that were not sent fail."""
        return self._call(self._manager.abort, Operation.ABORT.value)

    def abort_unattended(self) -> None:
        """As `abort`, for who is in a hurry; the sender sees to the rest."""
        self._core.guard.run(self._manager.abort_unattended)
        self._wake()

    def send_offsets(self, offsets: Mapping[Any, Any], group_metadata: Any) -> PendingCall | None:
        """Part of the transaction from now on; None: there are none."""
        group, read = group_of(group_metadata), offsets_of(offsets)
        if not read:
            return None
        return self._call(lambda: self._manager.send_offsets(read, group), Operation.OFFSETS.value)

    def finish(self, call: PendingCall) -> None:
        """The wait for ``call`` is over.

        Raises:
            KafkaTimeoutError: it has not ended; it may be made again, and goes on.
            KafkaError: it has failed.
        """
        if not call.finished.opened:
            raise self._timed_out(call)
        self._core.guard.run(self._manager.acknowledge, call)
        call.result()

    def refuse_late(self) -> None:
        """Records sent in callbacks still wait for memory when a commit's time is up.

        Raises:
            KafkaTimeoutError: they do.
        """
        if self._core.late.waiting:
            raise KafkaTimeoutError(
                f"nothing is committed: {self._core.late.waiting} records sent from callbacks have waited for"
                f" {self._core.settings.max_block_ms:g} ms; {self._core.intake.last_failure()}"
            )

    def log_failed_abort(self, error: KafkaError) -> None:
        """The application hears of what made it abort, not of this."""
        name = self._core.settings.client_id
        about = fields(client_id=name, error=type(error).__name__)
        logger.warning("%s: the transaction could not be aborted: %s", name, error, extra=about)

    def _call(self, make: Callable[[], PendingCall], name: str) -> PendingCall:
        self._check(name)
        call = self._core.guard.run(make)
        self._manager.run_ended()
        self._wake()
        return call

    def _check(self, name: str) -> None:
        core = self._core
        if core.state is not State.RUNNING:
            raise core.refusal()
        refuse_inside_a_send(f"{name}()")

    def _changed(self) -> None:
        """The guard is held."""
        core = self._core
        if core.state is not State.RUNNING:
            return  # nothing is taken any more, and that stays so
        intake = core.intake
        if self._manager.state is TransactionState.IN_TRANSACTION:
            intake.refuse = None
        elif intake.refuse is None:
            intake.refuse = self.refusal
            intake.transaction += 1
            core.accumulator.close_batches()  # whoever is about to append to one finds it closed

    def _timed_out(self, call: PendingCall) -> KafkaTimeoutError:
        manager, core = self._manager, self._core
        return KafkaTimeoutError(
            f"{call.operation.value}() has not ended within {core.settings.max_block_ms:g} ms,"
            f" the producer is {manager.state.name}: call it again, which goes on waiting;"
            f" {manager.last_error or core.intake.last_failure()}"
        )
