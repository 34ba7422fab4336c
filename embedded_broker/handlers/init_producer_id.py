"""InitProducerId 0–5: a producer id that no restart hands out again.

As in Kafka an idempotent producer always gets a new id with epoch 0, whatever id it names. Transactional ids
are refused with 53, which every client takes as final (librdkafka repeats 35 until its time is up): this
broker has no transaction coordinator yet.
"""

from __future__ import annotations

from splashdam.embedded_broker.registry import RequestContext, handles
from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.error_codes import ErrorCode
from splashdam.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


@handles(InitProducerIdRequest, versions=range(6))
def init_producer_id(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    """A new id and epoch 0."""
    if request.transactional_id is not None:
        code = ErrorCode.INVALID_REQUEST
        if request.transactional_id:
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    try:
        producer_id = context.broker.producer_ids.next_id()
    except KafkaStorageError as error:
        return InitProducerIdResponse(error_code=error.code, producer_id=-1, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
