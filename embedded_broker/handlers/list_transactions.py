"""ListTransactions 0–2: the transactional ids that this broker coordinates, by producer, state, age and name.

Version 2 (KIP-1152) has a pattern in RE2's syntax that ids must match as a whole; one that costs too much is
refused with 128.
"""

from __future__ import annotations

from collections.abc import Sequence

from splashdam.embedded_broker.execution.turns import PARTITIONS_IN_A_UNIT, Steps
from splashdam.embedded_broker.groups.patterns import Compilation, Pattern
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.embedded_broker.transactions.metadata import TransactionMetadata
from splashdam.embedded_broker.transactions.metadata import TransactionState as State
from splashdam.model.acls import Operation, ResourceType
from splashdam.model.broker_errors import ErrorCode
from splashdam.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)


@handles(ListTransactionsRequest, versions=range(3))
def list_transactions(
    request: ListTransactionsRequest, context: RequestContext
) -> Steps[ListTransactionsResponse]:
    """Answer with the transactions that pass every filter and that the client may describe."""
    by_name = {state.kafka_name: state for state in State}
    known = list(context.broker.transactions.states.values())  # some come and go between two turns
    now_ms = context.broker.clock.wall_ms()
    answer = ListTransactionsResponse()
    states: set[State] = set()
    for number, name in enumerate(request.state_filters, 1):
        yield from _of_one(name, number)
        if name in by_name:
            states.add(by_name[name])
        else:
            answer.unknown_state_filters.append(name)
    producer_ids = frozenset(request.producer_id_filters)
    matching = None
    if request.transactional_id_pattern:
        ids = [each.transactional_id for each in known]
        try:
            matching = yield from _matching(ids, request.transactional_id_pattern)
        except ValueError:
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)

    def passes(metadata: TransactionMetadata) -> bool:
        return (
            (not producer_ids or metadata.producer_id in producer_ids)
            and (not request.state_filters or metadata.state in states)
            and (request.duration_filter < 0 or now_ms - metadata.start_ms > request.duration_filter)
            and (matching is None or metadata.transactional_id in matching)
        )

    for number, each in enumerate(known, 1):
        yield from _of_one(each.transactional_id, number)
        if passes(each) and context.authorize(
            Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, each.transactional_id
        ):
            answer.transaction_states.append(
                TransactionState(
                    transactional_id=each.transactional_id,
                    producer_id=each.producer_id,
                    transaction_state=each.state.kafka_name,
                )
            )
    return answer


def _of_one(name: str, number: int) -> Steps[None]:
    """Count the cost of the ``number``-th of many names: some are long."""
    units = len(name) // 1024 + (number % PARTITIONS_IN_A_UNIT == 0)
    if units:
        yield units


def _matching(ids: Sequence[str], pattern: str) -> Steps[frozenset[str]]:
    """Return the ids that match a pattern.

    Raises:
        ValueError: the pattern is invalid, or takes too many steps to match.
    """
    letters: set[str] = set()
    for number, each in enumerate(ids, 1):
        letters.update(each)
        yield from _of_one(each, number)
    compiled: Pattern = yield Compilation(pattern, frozenset(letters))
    return (yield from compiled.matching_in_steps(ids))
