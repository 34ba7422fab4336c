"""Pending calls of a transactional producer, and the errors they raise."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from splashdam.model.broker_errors import ProducerFencedError
from splashdam.model.errors import FatalTransactionError, KafkaError, TransactionFailedError, message_of
from splashdam.model.transactions import ConsumerGroupMetadata, OffsetAndMetadata, PreparedTransaction
from splashdam.model.values import TopicPartition
from splashdam.record.kernel.outcomes.outcome import fresh
from splashdam.sender.wakeup import Latch


class Operation(Enum):
    """The blocking calls, by their public names."""

    INIT = "init_transactions"
    PREPARE = "prepare_transaction"
    COMMIT = "commit_transaction"
    ABORT = "abort_transaction"
    OFFSETS = "send_offsets_to_transaction"


class PendingCall:
    """A call in progress; after a timeout the application may call again and waits on.

    Attributes:
        operation: the call.
        decided: whether the call has ended.
        finished: opens soon after that, when the guard is released.
        error: why it failed, None if it did not.
        detached: whether no caller waits for its end.
        left: whether its caller was cancelled, and may come back for the result.
        prepared: the prepared transaction, after a successful prepare.
    """

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self.decided = False
        self.finished = Latch()
        self.error: KafkaError | None = None
        self.detached = False
        self.left = False
        self.prepared: PreparedTransaction | None = None

    def result(self) -> None:
        """Raise the error of a finished call, if it failed."""
        if self.error is not None:
            raise fresh(self.error)


class OffsetsCall(PendingCall):
    """A call of ``send_offsets_to_transaction``.

    Attributes:
        offsets: the consumed offsets.
        group: the consumer group.
    """

    def __init__(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        super().__init__(Operation.OFFSETS)
        self.offsets = dict(offsets)
        self.group = group

    def same_as(self, other: OffsetsCall) -> bool:
        """Whether both calls have the same offsets and group."""
        return (self.offsets, self.group) == (other.offsets, other.group)


def abortable(cause: BaseException) -> KafkaError:
    """Return the error of calls after ``cause`` left nothing but an abort."""
    error = TransactionFailedError(f"the transaction can only be aborted, because of: {cause}")
    error.__cause__ = cause
    return error


def fatal(cause: BaseException) -> KafkaError:
    """Return the error of calls after ``cause`` ended the producer: a copy of it if its class is fatal."""
    if isinstance(cause, KafkaError) and cause.fatal:
        copy = fresh(cause)
        assert isinstance(copy, KafkaError)
        return copy
    error = FatalTransactionError(f"this producer cannot continue, because of: {cause}")
    error.__cause__ = cause
    return error


def fenced(transactional_id: str, answer: KafkaError) -> KafkaError:
    """Return the error of a fenced producer; brokers tell it with either of two codes."""
    # The message alone: the remedy of code 47, to abort, is for answers to Produce and fails here.
    error = ProducerFencedError(
        f"a newer producer with transactional_id {transactional_id!r} has taken over: {message_of(answer)}"
    )
    error.__cause__ = answer
    return error
