"""What to do with a batch, by the error code the broker answered for it. The whole table is here.

Source: Kafka's ``Errors``, ``Sender.completeBatch`` and ``TransactionManager``. Without idempotence a
retriable error is retried and every other one fails the batch.
"""

from __future__ import annotations

from enum import auto
from typing import NamedTuple

from splashdam.model.error_codes import ErrorCode
from splashdam.model.lifecycle import Stage


class Verdict(Stage):
    """What becomes of a batch."""

    DELIVERED = auto()
    DUPLICATE = auto()
    """The broker has it already; its offset is not known."""
    RETRY = auto()
    RETRY_STALE = auto()
    """Retry, and what we know of the cluster is out of date."""
    SPLIT = auto()
    """Too large: divide it, or refuse it where it holds a single record."""
    REFUSE = auto()
    """The broker certainly did not write it and never will: fail this batch, go on with the next."""
    OUT_OF_ORDER = auto()
    """Not the sequence number the broker expects."""
    UNKNOWN_PRODUCER = auto()
    """The broker does not remember this producer."""
    FATAL = auto()
    """Nothing this producer sends can succeed any more."""


class Row(NamedTuple):
    """One row of the table: for a producer with idempotence, and for one without."""

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
    # The leader is another one, or away.
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
    # It may work the next time.
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
    # Refused as it is. These have rows because a reader looks for them here.
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
"""Codes of retried batches that rule out that this attempt was written; after the others it may have been.

6 is not among them: a leader that loses its office while it waits for its followers answers it, too.
"""


def verdict_for(error_code: int, *, idempotent: bool) -> Verdict:
    """The verdict on a batch that was answered with ``error_code``."""
    row = VERDICTS.get(error_code, REFUSED)
    return row.idempotent if idempotent else row.plain
