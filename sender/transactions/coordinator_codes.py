"""What to do with a coordinator's answer, by request and error code. The whole table is here.

Source: the response handlers of Kafka's ``TransactionManager``.
"""

from __future__ import annotations

from enum import auto
from typing import NamedTuple

from splashdam.model.broker_errors import error_class
from splashdam.model.error_codes import ErrorCode
from splashdam.model.lifecycle import Stage


class Asked(Stage):
    """The requests, in the order in which they go."""

    FIND_COORDINATOR = auto()
    INIT_PRODUCER_ID = auto()
    ADD_PARTITIONS = auto()
    ADD_OFFSETS = auto()
    COMMIT_OFFSETS = auto()
    END = auto()


class Ruling(Stage):
    """What becomes of a request, and of the producer."""

    DONE = auto()
    RETRY = auto()
    FIND_AGAIN = auto()
    """The coordinator is another one: find it, then retry."""
    DENY = auto()
    """The call fails; it may be repeated once the rights are granted."""
    ABORT = auto()
    """The transaction can only be aborted."""
    RENEW = auto()
    """As ABORT, and the producer needs a new epoch, which some brokers cannot give: then DIE."""
    FENCE = auto()
    """A newer producer has taken over: fatal."""
    DIE = auto()


class Row(NamedTuple):
    """One row of the table: a ruling for each request, in the order of `Asked`."""

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
"""Other codes are retried where Kafka calls them retriable, and else `_ELSE`."""

_COLUMNS = {asked: Row._fields.index(asked.name.lower()) for asked in Asked}


def ruling_on(asked: Asked, error_code: int) -> Ruling:
    """The ruling on a request that was answered with ``error_code``."""
    row = ROWS.get(error_code)
    if row is None:
        row = _ELSE_RETRIABLE if error_class(error_code).retriable else _ELSE
    return row[_COLUMNS[asked]]


_GRAVEST_FIRST = (_FENCE, _DIE, _FIND, _RETRY, _DENY, _RENEW, _ABORT, _DONE)


def gravest(asked: Asked, error_codes: list[int]) -> int:
    """The code that decides where each partition has one: that of the gravest ruling.

    29 goes before other reasons to abort, and 55 (not tried because of another one) comes last.
    """
    codes = sorted(error_codes, key=lambda code: (code != ErrorCode.TOPIC_AUTHORIZATION_FAILED, code == 55))
    return min(codes, key=lambda code: _GRAVEST_FIRST.index(ruling_on(asked, code)), default=0)
