"""InitProducerId 0–5: a producer id that no restart hands out again, and under a transactional id its epoch.

As in Kafka an idempotent producer always gets a new id with epoch 0, whatever id it names. For a
transactional id the coordinator answers: earlier producers are fenced, an open transaction is aborted.
"""

from __future__ import annotations

from functools import partial

from splashdam.embedded_broker.internal_topics import answer_when_safe
from splashdam.embedded_broker.registry import Answer, RequestContext, handles
from splashdam.embedded_broker.transactions.answers import client_code
from splashdam.embedded_broker.transactions.metadata import ProducerIdentity
from splashdam.model.errors import BrokerResponseError
from splashdam.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_FIRST_FENCED_VERSION = 4


@handles(InitProducerIdRequest, versions=range(6))
def init_producer_id(request: InitProducerIdRequest, context: RequestContext) -> Answer:
    """An id and an epoch."""
    broker, transactional_id = context.broker, request.transactional_id
    refuse = partial(_refused, context.version)
    try:
        if transactional_id is None:
            return InitProducerIdResponse(producer_id=broker.producer_ids.next_id(), producer_epoch=0)
        expected = None
        if request.producer_id >= 0:
            expected = ProducerIdentity(request.producer_id, request.producer_epoch)
        producer_id, epoch = broker.transactions.initialize(
            transactional_id, request.transaction_timeout_ms, expected
        )
        answer = InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)
        return answer_when_safe(broker.transactions.log_of(transactional_id), answer, refuse)
    except BrokerResponseError as error:
        return refuse(error)


def _refused(version: int, error: BrokerResponseError) -> InitProducerIdResponse:
    code = client_code(error, knows_fenced=version >= _FIRST_FENCED_VERSION)
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
