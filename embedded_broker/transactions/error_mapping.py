"""Maps the coordinator's errors to the error codes that each request and version understands."""

from __future__ import annotations

from splashdam.model.broker_errors import (
    BrokerResponseError,
    ErrorCode,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KafkaStorageError,
    NotEnoughReplicasError,
)

FIRST_ABORTABLE_PRODUCE = 11
"""Produce version from which TRANSACTION_ABORTABLE (120) is understood."""

FIRST_IMPLICIT_PRODUCE = 12
"""Produce version from which a batch adds its partition to the transaction (KIP-890)."""

_COORDINATOR_CODES = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def client_code(error: BrokerResponseError, *, knows_fenced: bool) -> int:
    """Return the error code for a client; one that does not know PRODUCER_FENCED (90) gets 47.

    A disk error becomes NOT_COORDINATOR (16): the client looks for the coordinator and asks again.
    """
    if isinstance(error, KafkaStorageError):
        return ErrorCode.NOT_COORDINATOR
    if error.code == ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error.code


def produce_error(error: BrokerResponseError, version: int) -> BrokerResponseError:
    """Return the error of a Produce that the coordinator refused.

    A Produce does not make a producer look for its coordinator. So errors that pass by themselves become
    NOT_ENOUGH_REPLICAS (19): the producer tries again, without new metadata.
    """
    if error.code == ErrorCode.PRODUCER_FENCED:
        return InvalidProducerEpochError(error.message)
    if error.code == ErrorCode.TRANSACTION_ABORTABLE and version < FIRST_ABORTABLE_PRODUCE:
        return InvalidTxnStateError(error.message)
    is_unknown = error.code == ErrorCode.CONCURRENT_TRANSACTIONS and version < FIRST_IMPLICIT_PRODUCE
    if is_unknown or error.code in _COORDINATOR_CODES:
        return NotEnoughReplicasError(error.message)
    return error
