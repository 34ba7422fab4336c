"""The life of a transactional producer as a table; Kafka's states, from ``TransactionManager``."""

from __future__ import annotations

from enum import auto

from splashdam.model.lifecycle import Stage


class TransactionState(Stage):
    """Where a transactional producer is."""

    UNINITIALIZED = auto()
    INITIALIZING = auto()
    """A producer id and epoch are asked for: the first ones, or new ones after an abort."""
    READY = auto()
    IN_TRANSACTION = auto()
    PREPARING = auto()
    """No more records; those there are go out, and then nothing more."""
    PREPARED = auto()
    """All is in the logs, and somebody, here or elsewhere, commits or aborts it (the name is KIP-939's)."""
    COMMITTING = auto()
    """No more records; those there are go out, then the coordinator is told."""
    ABORTING = auto()
    """What was not sent fails; what is under way is awaited, then the coordinator is told."""
    ABORTABLE_ERROR = auto()
    """Something of the transaction failed: it can only be aborted."""
    FATAL_ERROR = auto()


class TransactionEvent(Stage):
    """What can happen to it."""

    INITIALIZE = auto()
    GRANT = auto()
    """The coordinator gave a producer id and epoch."""
    DENY = auto()
    """It did not, for lack of rights: to be asked again once they are granted."""
    BEGIN = auto()
    PREPARE = auto()
    HOLD = auto()
    """All that was to be prepared is in the logs."""
    COMMIT = auto()
    ABORT = auto()
    COMPLETE = auto()
    """The transaction has ended."""
    RENEW = auto()
    """It is aborted, and a new epoch is needed."""
    FAIL = auto()
    DIE = auto()


_S, _E = TransactionState, TransactionEvent

TRANSITIONS: dict[tuple[TransactionState, TransactionEvent], TransactionState] = {
    (_S.UNINITIALIZED, _E.INITIALIZE): _S.INITIALIZING,
    (_S.INITIALIZING, _E.GRANT): _S.READY,
    (_S.INITIALIZING, _E.DENY): _S.UNINITIALIZED,  # in Java by way of ABORTABLE_ERROR
    (_S.INITIALIZING, _E.FAIL): _S.ABORTABLE_ERROR,
    (_S.READY, _E.BEGIN): _S.IN_TRANSACTION,
    (_S.IN_TRANSACTION, _E.COMMIT): _S.COMMITTING,
    (_S.IN_TRANSACTION, _E.ABORT): _S.ABORTING,
    (_S.IN_TRANSACTION, _E.FAIL): _S.ABORTABLE_ERROR,
    (_S.IN_TRANSACTION, _E.PREPARE): _S.PREPARING,
    (_S.PREPARING, _E.HOLD): _S.PREPARED,
    (_S.PREPARING, _E.FAIL): _S.ABORTABLE_ERROR,
    (_S.PREPARED, _E.COMMIT): _S.COMMITTING,
    (_S.PREPARED, _E.ABORT): _S.ABORTING,
    (_S.COMMITTING, _E.COMPLETE): _S.READY,
    (_S.COMMITTING, _E.FAIL): _S.ABORTABLE_ERROR,
    (_S.ABORTING, _E.COMPLETE): _S.READY,
    (_S.ABORTING, _E.RENEW): _S.INITIALIZING,
    (_S.ABORTING, _E.FAIL): _S.ABORTING,
    (_S.ABORTABLE_ERROR, _E.ABORT): _S.ABORTING,
    (_S.ABORTABLE_ERROR, _E.FAIL): _S.ABORTABLE_ERROR,
    **{(state, _E.DIE): _S.FATAL_ERROR for state in _S if state is not _S.FATAL_ERROR},
}
