"""What happens to a transactional producer, by request and error code: retry, abort, a new epoch, or fatal.

Source: the response handlers of Kafka's ``TransactionManager``; ours carries the rulings out.
"""

from __future__ import annotations

from enum import auto
from typing import NamedTuple

from splashdam.model.broker_errors import ErrorCode, error_class
from splashdam.model.lifecycle import Stage


class RequestKind(Stage):
    """The kinds of requests, in the order in which they are sent."""

    FIND_COORDINATOR = auto()
    INIT_PRODUCER_ID = auto()
    ADD_PARTITIONS = auto()
    ADD_OFFSETS = auto()
    COMMIT_OFFSETS = auto()
    END = auto()


class Ruling(Stage):
    """What happens to a request and to the producer."""

    DONE = auto()
    RETRY = auto()
    FIND_AGAIN = auto()
    """The coordinator has moved: find it, then retry."""
    DENY = auto()
    """The call fails; it may be repeated once authorization is granted."""
    ABORT = auto()
    """The transaction can only be aborted."""
    RENEW = auto()
    """As ABORT, with a new epoch; DIE if the broker cannot bump epochs."""
    FENCE = auto()
    """A newer producer has taken over: fatal."""
    DIE = auto()


class Row(NamedTuple):
    """The rulings of one error code, in the order of `RequestKind`."""

    find_coordinator: Ruling
    init_producer_id: Ruling
    add_partitions: Ruling
    add_offsets: Ruling
    commit_offsets: Ruling
    end: Ruling


_DONE, _RETRY, _FIND, _DENY = Ruling.DONE, Ruling.RETRY, Ruling.FIND_AGAIN, Ruling.DENY
_ABORT, _RENEW, _FENCE, _DIE = Ruling.ABORT, Ruling.RENEW, Ruling.FENCE, Ruling.DIE

_ELSE = Row(_DIE, _DIE, _ABORT, _DIE, _DIE, _DIE)
_ELSE_RETRIABLE = Row(_RETRY, _RETRY, _RETRY, _RETRY, _RETRY, _RETRY)
_MOVED = Row(_RETRY, _FIND, _FIND, _FIND, _FIND, _FIND)
_FENCED = Row(_DIE, _FENCE, _FENCE, _FENCE, _FENCE, _FENCE)
_ABORTABLE = Row(_DIE, _DIE, _ABORT, _ABORT, _ABORT, _ABORT)

ROWS: dict[int, Row] = {
    ErrorCode.NONE: Row(_DONE, _DONE, _DONE, _DONE, _DONE, _DONE),
    ErrorCode.REQUEST_TIMED_OUT: Row(_RETRY, _RETRY, _RETRY, _RETRY, _FIND, _RETRY),
    ErrorCode.COORDINATOR_NOT_AVAILABLE: _MOVED,
    ErrorCode.NOT_COORDINATOR: _MOVED,
    ErrorCode.INVALID_PRODUCER_EPOCH: _FENCED,
    ErrorCode.PRODUCER_FENCED: _FENCED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: Row(_DIE, _DENY, _ABORT, _DIE, _DIE, _DIE),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Row(_DIE, _DENY, _DIE, _DIE, _DIE, _DIE),
    ErrorCode.INVALID_TXN_STATE: Row(_DIE, _DIE, _DIE, _DIE, _DIE, _DIE),
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: Row(_DIE, _DIE, _RENEW, _RENEW, _DIE, _RENEW),
    ErrorCode.UNKNOWN_PRODUCER_ID: Row(_DIE, _DIE, _RENEW, _RENEW, _DIE, _RENEW),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: _ABORTABLE,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: Row(_ABORT, _DIE, _ABORT, _ABORT, _ABORT, _ABORT),
    ErrorCode.OPERATION_NOT_ATTEMPTED: _ABORTABLE,
    ErrorCode.ILLEGAL_GENERATION: _ABORTABLE,
    ErrorCode.UNKNOWN_MEMBER_ID: _ABORTABLE,
    ErrorCode.FENCED_INSTANCE_ID: _ABORTABLE,
    ErrorCode.TRANSACTION_ABORTABLE: Row(_ABORT, _ABORT, _ABORT, _ABORT, _ABORT, _ABORT),
}
"""Other codes are retried if Kafka calls them retriable; the rest get `_ELSE`."""

_COLUMNS = {asked: Row._fields.index(asked.name.lower()) for asked in RequestKind}


def ruling_on(asked: RequestKind, error_code: int) -> Ruling:
    """Return what to do after a response with ``error_code``."""
    row = ROWS.get(error_code)
    if row is None:
        row = _ELSE_RETRIABLE if error_class(error_code).retriable else _ELSE
    return row[_COLUMNS[asked]]


_GRAVEST_FIRST = (_FENCE, _DIE, _FIND, _RETRY, _DENY, _RENEW, _ABORT, _DONE)


def gravest(asked: RequestKind, error_codes: list[int]) -> int:
    """Return the code that decides for a response with one code per partition: that of the gravest ruling.

    TOPIC_AUTHORIZATION_FAILED (29) comes before other reasons to abort, OPERATION_NOT_ATTEMPTED (55) last.
    """
    codes = sorted(error_codes, key=lambda code: (code != ErrorCode.TOPIC_AUTHORIZATION_FAILED, code == 55))
    return min(codes, key=lambda code: _GRAVEST_FIRST.index(ruling_on(asked, code)), default=0)
