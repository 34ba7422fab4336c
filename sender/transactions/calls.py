"""What applications ask of a transactional producer, and how it is answered to them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from splashdam.model.broker_errors import ProducerFencedError
from splashdam.model.errors import FatalTransactionError, KafkaError, TransactionFailedError
from splashdam.model.transactions import ConsumerGroupMetadata, OffsetAndMetadata, PreparedTransaction
from splashdam.model.values import TopicPartition
from splashdam.record.kernel.outcomes.outcome import fresh
from splashdam.sender.wakeup import Latch


class Operation(Enum):
    """The calls that wait, by their public names."""

    INIT = "init_transactions"
    PREPARE = "prepare_transaction"
    COMMIT = "commit_transaction"
    ABORT = "abort_transaction"
    OFFSETS = "send_offsets_to_transaction"


class PendingCall:
    """A call that may take a while; it can be waited for again after a timeout.

    Attributes:
        operation: which one.
        decided: it has ended.
        finished: opens soon after that, outside the guard.
        error: why it failed, None where it did not.
        detached: nobody comes back to ask how it ended.
        prepared: what was prepared, where that was asked for and has succeeded.
    """

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self.decided = False
        self.finished = Latch()
        self.error: KafkaError | None = None
        self.detached = False
        self.prepared: PreparedTransaction | None = None

    def result(self) -> None:
        """Once it is finished: returns, or raises what went wrong."""
        if self.error is not None:
            raise fresh(self.error)


class OffsetsCall(PendingCall):
    """A call of ``send_offsets_to_transaction``.

    Attributes:
        offsets: what was read.
        group: by whom.
    """

    def __init__(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        super().__init__(Operation.OFFSETS)
        self.offsets = dict(offsets)
        self.group = group

    def same_as(self, other: OffsetsCall) -> bool:
        """Whether it asks for the same."""
        return (self.offsets, self.group) == (other.offsets, other.group)


def abortable(cause: BaseException) -> KafkaError:
    """What calls raise once ``cause`` has made the transaction fail."""
    error = TransactionFailedError(f"the transaction can only be aborted, because of: {cause}")
    error.__cause__ = cause
    return error


def fatal(cause: BaseException) -> KafkaError:
    """What calls raise once ``cause`` has ended the producer: the like of it, where its class is fatal."""
    if isinstance(cause, KafkaError) and cause.fatal:
        copy = fresh(cause)
        assert isinstance(copy, KafkaError)
        return copy
    error = FatalTransactionError(f"this producer is finished, because of: {cause}")
    error.__cause__ = cause
    return error


def fenced(transactional_id: str, answer: KafkaError) -> KafkaError:
    """A newer producer has taken over, whichever of the two codes said so."""
    error = ProducerFencedError(
        f"a newer producer with transactional_id {transactional_id!r} has taken over: {answer}"
    )
    error.__cause__ = answer
    return error
