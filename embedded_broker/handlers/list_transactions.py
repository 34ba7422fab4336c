"""ListTransactions 0–2: the transactional ids that this broker coordinates, by producer, state, age and name.

Version 2 (KIP-1152) has a pattern in RE2's syntax that ids must match as a whole; one that costs too much is
refused with 128.
"""

from __future__ import annotations

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
def list_transactions(request: ListTransactionsRequest, context: RequestContext) -> ListTransactionsResponse:
    """Answer with the transactions that pass every filter and that the client may describe."""
    by_name = {state.kafka_name: state for state in State}
    names = frozenset(context.broker.transactions.states)
    try:
        matching = _matching(names, request.transactional_id_pattern)
    except ValueError:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    states = {by_name[name] for name in request.state_filters if name in by_name}
    producer_ids = frozenset(request.producer_id_filters)
    now_ms = context.broker.clock.wall_ms()

    def passes(metadata: TransactionMetadata) -> bool:
        return (
            (not producer_ids or metadata.producer_id in producer_ids)
            and (not request.state_filters or metadata.state in states)
            and (request.duration_filter < 0 or now_ms - metadata.start_ms > request.duration_filter)
            and metadata.transactional_id in matching
        )

    return ListTransactionsResponse(
        unknown_state_filters=[name for name in request.state_filters if name not in by_name],
        transaction_states=[
            TransactionState(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                transaction_state=each.state.kafka_name,
            )
            for each in context.broker.transactions.states.values()
            if passes(each)
            and context.authorize(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, each.transactional_id)
        ],
    )


def _matching(names: frozenset[str], pattern: str | None) -> frozenset[str]:
    """Return the names that match a pattern, or all without one.

    Raises:
        ValueError: the pattern is invalid, or takes too many steps to match.
    """
    if not pattern:
        return names
    from splashdam.embedded_broker.groups.patterns import Pattern

    return Pattern(pattern, frozenset("".join(names))).matching(names)
