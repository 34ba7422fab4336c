"""EndTxn 0–5: commit or abort the producer's transaction.

The answer comes when decision and markers are in the logs, or the decision alone if a disk refuses a marker.
From version 5 on (KIP-890) every transaction has an epoch of its own; the answer names that of the next one.
"""

from __future__ import annotations

from functools import partial

from splashdam.embedded_broker.execution.answers import Answer, Parked
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.embedded_broker.topics.internal_topics import answer_when_safe, term_of
from splashdam.embedded_broker.transactions.error_mapping import client_code
from splashdam.embedded_broker.transactions.metadata import EPOCH_BUMPS, ProducerIdentity
from splashdam.model.broker_errors import BrokerResponseError
from splashdam.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

_FIRST_FENCED_VERSION, _FIRST_BUMPING_VERSION = 2, 5


@handles(EndTxnRequest, versions=range(6))
def end_txn(request: EndTxnRequest, context: RequestContext) -> Answer:
    """Answer with the producer id and epoch of the next transaction."""
    coordinator = context.broker.transactions
    refuse = partial(_refused, context.version)
    try:
        producer_id, epoch = coordinator.end(
            request.transactional_id,
            ProducerIdentity(request.producer_id, request.producer_epoch),
            is_commit=request.committed,
            client_version=EPOCH_BUMPS if context.version >= _FIRST_BUMPING_VERSION else 0,
        )
        log = coordinator.log_of(request.transactional_id)
    except BrokerResponseError as error:
        return refuse(error)
    answer = EndTxnResponse(producer_id=producer_id, producer_epoch=epoch)
    if not coordinator.is_ending(request.transactional_id):
        return answer_when_safe(log, answer, refuse)
    end_offset, term = log.log_end_offset, term_of(log)

    async def when_ended() -> EndTxnResponse:
        try:
            await coordinator.wait_ended(request.transactional_id, end_offset, term)
        except BrokerResponseError as error:
            return refuse(error)
        return answer

    return Parked(when_ended)


def _refused(version: int, error: BrokerResponseError) -> EndTxnResponse:
    return EndTxnResponse(error_code=client_code(error, knows_fenced=version >= _FIRST_FENCED_VERSION))
