"""AddOffsetsToTxn 0–4: the group's partition of ``__consumer_offsets`` joins the producer's transaction."""

from __future__ import annotations

from functools import partial

from splashdam.embedded_broker.execution.answers import Answer
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.embedded_broker.topics.internal_topics import InternalTopic, answer_when_safe
from splashdam.embedded_broker.transactions.error_mapping import client_code
from splashdam.model.broker_errors import BrokerResponseError
from splashdam.model.values import TopicPartition
from splashdam.storage.topic_names import CONSUMER_OFFSETS
from splashdam.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

_FIRST_FENCED_VERSION = 2


@handles(AddOffsetsToTxnRequest, versions=range(5))
def add_offsets_to_txn(request: AddOffsetsToTxnRequest, context: RequestContext) -> Answer:
    """Add the partition; answer with the coordinator's error, if any."""
    broker = context.broker
    refuse = partial(_refused, context.version)
    partition = InternalTopic(CONSUMER_OFFSETS, broker).partition_for(request.group_id)
    try:
        broker.transactions.add_partitions(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            [TopicPartition(CONSUMER_OFFSETS, partition)],
            client_version=0,
        )
        log = broker.transactions.log_of(request.transactional_id)
    except BrokerResponseError as error:
        return refuse(error)
    return answer_when_safe(log, AddOffsetsToTxnResponse(), refuse)


def _refused(version: int, error: BrokerResponseError) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(
        error_code=client_code(error, knows_fenced=version >= _FIRST_FENCED_VERSION)
    )
