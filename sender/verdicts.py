"""What happens to a batch, by the error code of its answer: delivered, retried, split, refused, or fatal.

Source: Kafka's ``Errors``, ``Sender.completeBatch`` and ``TransactionManager``. Without idempotence,
retriable errors are retried and all others fail the batch. ``Completion`` carries the verdicts out.
"""

from __future__ import annotations

from enum import auto
from typing import NamedTuple

from splashdam.model.broker_errors import ErrorCode
from splashdam.model.lifecycle import Stage


class Verdict(Stage):
    """What becomes of a batch."""

    DELIVERED = auto()
    DUPLICATE = auto()
    """The broker has the batch already; its offset is unknown."""
    RETRY = auto()
    RETRY_STALE = auto()
    """Retry after a metadata update: our metadata are stale."""
    SPLIT = auto()
    """Too large: split it, or fail it if it holds a single record."""
    REFUSE = auto()
    """The broker did not write it and never will: fail this batch and continue with the next."""
    OUT_OF_ORDER = auto()
    """The batch does not have the sequence number that the broker expects."""
    UNKNOWN_PRODUCER = auto()
    """The broker has no state for this producer id."""
    FATAL = auto()
    """No later batch of this producer can succeed."""


class Row(NamedTuple):
    """The verdicts of one error code, with and without idempotence."""

    idempotent: Verdict
    plain: Verdict


_STALE = Row(Verdict.RETRY_STALE, Verdict.RETRY_STALE)
_RETRY = Row(Verdict.RETRY, Verdict.RETRY)
_FATAL = Row(Verdict.FATAL, Verdict.REFUSE)
REFUSED = Row(Verdict.REFUSE, Verdict.REFUSE)
"""Every code that has no row of its own."""

VERDICTS: dict[int, Row] = {
    ErrorCode.NONE: Row(Verdict.DELIVERED, Verdict.DELIVERED),
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: Row(Verdict.DUPLICATE, Verdict.DUPLICATE),
    # The leader has moved or is unavailable.
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _STALE,
    ErrorCode.LEADER_NOT_AVAILABLE: _STALE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: _STALE,
    ErrorCode.REPLICA_NOT_AVAILABLE: _STALE,
    ErrorCode.NETWORK_EXCEPTION: _STALE,
    ErrorCode.KAFKA_STORAGE_ERROR: _STALE,
    ErrorCode.LISTENER_NOT_FOUND: _STALE,
    ErrorCode.FENCED_LEADER_EPOCH: _STALE,
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: _STALE,
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: _STALE,
    ErrorCode.ELECTION_NOT_NEEDED: _STALE,
    ErrorCode.UNKNOWN_TOPIC_ID: _STALE,
    ErrorCode.INCONSISTENT_TOPIC_ID: _STALE,
    # Transient errors.
    ErrorCode.CORRUPT_MESSAGE: _RETRY,
    ErrorCode.REQUEST_TIMED_OUT: _RETRY,
    ErrorCode.NOT_ENOUGH_REPLICAS: _RETRY,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: _RETRY,
    ErrorCode.UNKNOWN_LEADER_EPOCH: _RETRY,
    ErrorCode.OFFSET_NOT_AVAILABLE: _RETRY,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: _RETRY,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _RETRY,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: _RETRY,
    ErrorCode.NOT_COORDINATOR: _RETRY,
    ErrorCode.NOT_CONTROLLER: _RETRY,
    ErrorCode.CONCURRENT_TRANSACTIONS: _RETRY,
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: _RETRY,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: _RETRY,
    ErrorCode.UNSTABLE_OFFSET_COMMIT: _RETRY,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: _RETRY,
    ErrorCode.SHARE_SESSION_NOT_FOUND: _RETRY,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH: _RETRY,
    ErrorCode.MESSAGE_TOO_LARGE: Row(Verdict.SPLIT, Verdict.SPLIT),
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: Row(Verdict.OUT_OF_ORDER, Verdict.REFUSE),
    ErrorCode.UNKNOWN_PRODUCER_ID: Row(Verdict.UNKNOWN_PRODUCER, Verdict.REFUSE),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: _FATAL,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _FATAL,
    ErrorCode.PRODUCER_FENCED: _FATAL,
    ErrorCode.UNSUPPORTED_VERSION: _FATAL,
    # Not retriable. Listed, although they equal the default, because readers look for them here.
    ErrorCode.UNKNOWN_SERVER_ERROR: REFUSED,
    ErrorCode.INVALID_TOPIC_EXCEPTION: REFUSED,
    ErrorCode.RECORD_LIST_TOO_LARGE: REFUSED,
    ErrorCode.INVALID_REQUIRED_ACKS: REFUSED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: REFUSED,
    ErrorCode.INVALID_TIMESTAMP: REFUSED,
    ErrorCode.INVALID_REQUEST: REFUSED,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: REFUSED,
    ErrorCode.POLICY_VIOLATION: REFUSED,
    ErrorCode.INVALID_PRODUCER_EPOCH: REFUSED,
    ErrorCode.INVALID_TXN_STATE: REFUSED,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: REFUSED,
    ErrorCode.INVALID_RECORD: REFUSED,
    ErrorCode.TRANSACTION_ABORTABLE: REFUSED,
}

NOT_WRITTEN = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)
"""Retriable codes that prove that this attempt was not written. After all others it may have been.

NOT_LEADER_OR_FOLLOWER is not among them: a leader that resigns while it waits for its followers answers it,
too.
"""


def verdict_for(error_code: int, *, idempotent: bool) -> Verdict:
    """Return what to do with a batch whose response has ``error_code``."""
    row = VERDICTS.get(error_code, REFUSED)
    return row.idempotent if idempotent else row.plain
