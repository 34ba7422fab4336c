"""InitProducerId 0–5: hand out a producer id, or the id and next epoch of a transactional id.

As in Kafka an idempotent producer always gets a new id with epoch 0, whatever id it names. For a
transactional id the coordinator answers: earlier producers are fenced, an open transaction is aborted.
"""

from __future__ import annotations

from functools import partial

from splashdam.embedded_broker.execution.answers import Answer
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.embedded_broker.topics.internal_topics import answer_when_safe
from splashdam.embedded_broker.transactions.error_mapping import client_code
from splashdam.embedded_broker.transactions.metadata import ProducerIdentity
from splashdam.model.broker_errors import BrokerResponseError, KafkaStorageError
from splashdam.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_FIRST_FENCED_VERSION = 4


@handles(InitProducerIdRequest, versions=range(6))
def init_producer_id(request: InitProducerIdRequest, context: RequestContext) -> Answer:
    """Answer with producer id and epoch."""
    if request.transactional_id is None:
        return _new_id(context)
    coordinator = context.broker.transactions
    refuse = partial(_refused, context.version)
    expected = None
    if request.producer_id >= 0:
        expected = ProducerIdentity(request.producer_id, request.producer_epoch)
    try:
        producer_id, epoch = coordinator.initialize(
            request.transactional_id, request.transaction_timeout_ms, expected
        )
        log = coordinator.log_of(request.transactional_id)
    except BrokerResponseError as error:
        return refuse(error)
    return answer_when_safe(
        log, InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch), refuse
    )


def _new_id(context: RequestContext) -> InitProducerIdResponse:
    try:
        producer_id = context.broker.producer_ids.next_id()
    except KafkaStorageError as error:
        return InitProducerIdResponse(error_code=error.code, producer_id=-1, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refused(version: int, error: BrokerResponseError) -> InitProducerIdResponse:
    code = client_code(error, knows_fenced=version >= _FIRST_FENCED_VERSION)
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
