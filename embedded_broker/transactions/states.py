"""The life of a transactional id as a table; states and their numbers are Kafka's ``TransactionState``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from splashdam.model.lifecycle import Stage


class TransactionState(Stage):
    """Where a transactional id is; the number is what stands in ``__transaction_state``."""

    EMPTY = 0  # a producer is known, and has begun nothing
    ONGOING = 1
    PREPARE_COMMIT = 2  # decided; markers are being written
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4  # every marker is in its log
    COMPLETE_ABORT = 5
    DEAD = 6  # expired; never written, a tombstone is
    PREPARE_EPOCH_FENCE = 7  # on the way from ONGOING to PREPARE_ABORT; never written

    @property
    def kafka_name(self) -> str:
        """As Kafka's clients are told it: ``PrepareCommit``."""
        return self.name.title().replace("_", "")


class TransactionEvent(Stage):
    """What happens to a transactional id."""

    INITIALIZE = "be initialized"
    ADD = "take partitions"
    COMMIT = "be committed"
    ABORT = "be aborted"
    FENCE = "be fenced"
    COMPLETE = "be completed"
    EXPIRE = "expire"


_S, _E = TransactionState, TransactionEvent

AT_REST: Final = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
"""No transaction is open, and no marker owed."""

PREPARED: Final = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
"""The outcome is decided, markers are owed."""

TRANSITIONS: Mapping[tuple[TransactionState, TransactionEvent], TransactionState] = {
    **{(state, _E.INITIALIZE): _S.EMPTY for state in AT_REST},
    **{(state, _E.ADD): _S.ONGOING for state in (*AT_REST, _S.ONGOING)},
    **{(state, _E.EXPIRE): _S.DEAD for state in AT_REST},
    # Since KIP-890 a producer may abort what it never added anything to, to get a new epoch.
    **{(state, _E.ABORT): _S.PREPARE_ABORT for state in (*AT_REST, _S.ONGOING, _S.PREPARE_EPOCH_FENCE)},
    (_S.ONGOING, _E.COMMIT): _S.PREPARE_COMMIT,
    (_S.ONGOING, _E.FENCE): _S.PREPARE_EPOCH_FENCE,
    (_S.PREPARE_COMMIT, _E.COMPLETE): _S.COMPLETE_COMMIT,
    (_S.PREPARE_ABORT, _E.COMPLETE): _S.COMPLETE_ABORT,
}
"""(state, event) → next state; what is missing is illegal."""
