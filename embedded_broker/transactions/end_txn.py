"""What EndTxn means in each state: Kafka's two tables, before and since KIP-890 (EndTxn 5).

Since KIP-890 every end bumps the epoch, so a repeated EndTxn is recognized by its epoch, the one before the
present one; before, by the state alone. While markers are missing, the opposite outcome also gets
CONCURRENT_TRANSACTIONS (51), because Kafka checks for a pending transition before the state; once all are
written it gets INVALID_TXN_STATE (48). Since KIP-890 this check even precedes that of the producer.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from splashdam.embedded_broker.transactions.metadata import (
    EPOCH_BUMPS,
    MAX_EPOCH,
    ProducerIdentity,
    TransactionMetadata,
    TransactionState,
    concurrent_transactions,
)
from splashdam.model.broker_errors import ErrorCode, InvalidTxnStateError, error_for
from splashdam.model.log_text import quoted


class EndDecision(Enum):
    """Decision on a request to end a transaction."""

    PREPARE = "decide the outcome"
    DONE = "answer without doing anything: an earlier request has done it"
    WAIT = "refuse with CONCURRENT_TRANSACTIONS (51): it is under way"


_S, _D = TransactionState, EndDecision
_COMMIT, _ABORT, _REPEAT, _NEW = True, False, True, False

BEFORE_EPOCH_BUMPS: Final[Mapping[tuple[TransactionState, bool], EndDecision]] = {
    (_S.ONGOING, _COMMIT): _D.PREPARE,
    (_S.ONGOING, _ABORT): _D.PREPARE,
    (_S.PREPARE_COMMIT, _COMMIT): _D.WAIT,
    (_S.PREPARE_COMMIT, _ABORT): _D.WAIT,
    (_S.PREPARE_ABORT, _COMMIT): _D.WAIT,
    (_S.PREPARE_ABORT, _ABORT): _D.WAIT,
    (_S.COMPLETE_COMMIT, _COMMIT): _D.DONE,
    (_S.COMPLETE_ABORT, _ABORT): _D.DONE,
}
"""(state, is it a commit) → decision; missing pairs are INVALID_TXN_STATE (48)."""

WITH_EPOCH_BUMPS: Final[Mapping[tuple[TransactionState, bool, bool], EndDecision]] = {
    (_S.ONGOING, _COMMIT, _NEW): _D.PREPARE,
    (_S.ONGOING, _ABORT, _NEW): _D.PREPARE,
    (_S.EMPTY, _ABORT, _NEW): _D.PREPARE,
    (_S.COMPLETE_COMMIT, _ABORT, _NEW): _D.PREPARE,
    (_S.COMPLETE_ABORT, _ABORT, _NEW): _D.PREPARE,
    (_S.COMPLETE_COMMIT, _COMMIT, _REPEAT): _D.DONE,
    (_S.COMPLETE_ABORT, _ABORT, _REPEAT): _D.DONE,
}
"""(state, is it a commit, is it a repeat by its epoch) → decision; likewise.

Prepared states are missing: such requests get CONCURRENT_TRANSACTIONS (51) before the lookup.
"""


def decide_end(
    metadata: TransactionMetadata, producer: ProducerIdentity, *, is_commit: bool, client_version: int
) -> EndDecision:
    """Decide whether an EndTxn is to be carried out (``PREPARE``) or was already (``DONE``).

    Args:
        metadata: state of the transactional id.
        producer: id and epoch of the request.
        is_commit: commit or abort.
        client_version: 2 for EndTxn 5 and later.

    Raises:
        BrokerResponseError: INVALID_PRODUCER_ID_MAPPING (49), PRODUCER_FENCED (90), INVALID_TXN_STATE (48),
            CONCURRENT_TRANSACTIONS (51).
    """
    bumps = client_version >= EPOCH_BUMPS
    if bumps and metadata.is_prepared:
        raise concurrent_transactions(metadata.transactional_id)
    after_rotation = _is_repeat_across_rotation(metadata, producer)
    is_repeat = after_rotation or metadata.producer_epoch == producer.epoch + 1
    if producer.producer_id != metadata.producer_id and not (bumps and after_rotation):
        raise error_for(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            f"{quoted(metadata.transactional_id)} writes with producer id {metadata.producer_id}, not "
            f"{producer.producer_id}",
        )
    if not _is_current(metadata, producer, is_repeat=bumps and is_repeat):
        raise metadata.fenced(producer.epoch)
    if bumps:
        decision = WITH_EPOCH_BUMPS.get((metadata.state, is_commit, is_repeat))
    else:
        decision = BEFORE_EPOCH_BUMPS.get((metadata.state, is_commit))
    if decision is None:
        what = "commit" if is_commit else "abort"
        raise InvalidTxnStateError(
            f"{quoted(metadata.transactional_id)} is {metadata.state.name}; no {what} is possible"
        )
    if decision is EndDecision.WAIT:
        raise concurrent_transactions(metadata.transactional_id)
    return decision


def _is_repeat_across_rotation(metadata: TransactionMetadata, producer: ProducerIdentity) -> bool:
    """Whether the EndTxn repeats one that used up the last epoch and so gave the producer a new id."""
    return (
        metadata.previous_producer_id == producer.producer_id
        and metadata.producer_id != producer.producer_id
        and producer.epoch >= MAX_EPOCH - 1
        and metadata.producer_epoch == 0
    )


def _is_current(metadata: TransactionMetadata, producer: ProducerIdentity, *, is_repeat: bool) -> bool:
    """Whether a request of this epoch is legal in this state."""
    is_present = producer.epoch == metadata.producer_epoch
    if metadata.state is TransactionState.ONGOING or metadata.state is TransactionState.EMPTY:
        return is_present
    return is_present or is_repeat
