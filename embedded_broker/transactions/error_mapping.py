"""How errors of the coordinator are told to those who ask: Kafka's codes for each request and version."""

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
    """The code for a client; one that does not know PRODUCER_FENCED (90) yet gets 47.

    A disk that refuses is NOT_COORDINATOR (16): the client looks for one and asks again.
    """
    if isinstance(error, KafkaStorageError):
        return ErrorCode.NOT_COORDINATOR
    if error.code == ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error.code


def produce_error(error: BrokerResponseError, version: int) -> BrokerResponseError:
    """What a Produce answers where the coordinator refuses.

    Producers do not look for coordinators because of a Produce, so what goes by itself is
    NOT_ENOUGH_REPLICAS (19) to them: try again, without new metadata.
    """
    if error.code == ErrorCode.PRODUCER_FENCED:
        return InvalidProducerEpochError(error.message)
    if error.code == ErrorCode.TRANSACTION_ABORTABLE and version < FIRST_ABORTABLE_PRODUCE:
        return InvalidTxnStateError(error.message)
    is_unknown = error.code == ErrorCode.CONCURRENT_TRANSACTIONS and version < FIRST_IMPLICIT_PRODUCE
    if is_unknown or error.code in _COORDINATOR_CODES:
        return NotEnoughReplicasError(error.message)
    return error
