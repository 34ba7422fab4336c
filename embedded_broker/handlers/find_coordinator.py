"""FindCoordinator 0–6: the leader of the partition that keeps a consumer group or transactional id.

Answered at once, so that no client waits for a timeout: with 15 if the partition has no leader. A single
broker coordinates everything, and creates the topic with the first record. Share groups (key type 2) are
refused with 42.
"""

from __future__ import annotations

from splashdam.embedded_broker.execution.turns import Steps, units_of_names
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.embedded_broker.topics.internal_topics import InternalTopic
from splashdam.model.broker_errors import BrokerResponseError, CoordinatorNotAvailableError, ErrorCode
from splashdam.model.log_text import quoted
from splashdam.model.values import TopicPartition
from splashdam.storage.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from splashdam.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_TOPICS = {0: CONSUMER_OFFSETS, 1: TRANSACTION_STATE}
"""The internal topic for each type of key."""

_NO_ERROR = "NONE"
"""The text beside code 0 up to version 3, as in Kafka; from version 4 on the text is empty, not null."""


@handles(FindCoordinatorRequest, versions=range(7))
def find_coordinator(
    request: FindCoordinatorRequest, context: RequestContext
) -> Steps[FindCoordinatorResponse]:
    """Answer with the coordinator of the key, or from version 4 on of each key."""
    if context.version < 4:
        found = _coordinator(request.key, request.key_type, context)
        return FindCoordinatorResponse(
            error_code=found.error_code,
            error_message=found.error_message if found.error_code else _NO_ERROR,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )
    answer = FindCoordinatorResponse()
    for key in request.coordinator_keys:
        yield units_of_names(key)
        answer.coordinators.append(_coordinator(key, request.key_type, context))
    return answer


def _coordinator(key: str, key_type: int, context: RequestContext) -> Coordinator:
    if key_type not in _TOPICS:
        return Coordinator(
            key=key,
            node_id=-1,
            port=-1,
            error_code=ErrorCode.INVALID_REQUEST,
            error_message=f"this broker coordinates consumer groups (0) and transactions (1), not {key_type}",
        )
    try:
        node_id = _leader(key, _TOPICS[key_type], context)
    except BrokerResponseError as error:
        return Coordinator(key=key, node_id=-1, port=-1, error_code=error.code, error_message=error.message)
    address = context.broker.leadership.brokers(context.address)[node_id]
    return Coordinator(key=key, node_id=node_id, host=address.host, port=address.port)


def _leader(key: str, name: str, context: RequestContext) -> int:
    """Return the coordinator of a key; create its topic if that is missing.

    Raises:
        CoordinatorNotAvailableError: nobody leads the partition, or the topic cannot be made.
    """
    broker = context.broker
    topic = InternalTopic(name, broker)
    # Of the answers that a coordinator gives, only this one has a text: it says why the topic is missing.
    if not broker.controller.is_alone or name in broker.refused_topics:
        topic.make()
    leader = broker.leadership.leader_of(TopicPartition(name, topic.partition_for(key)))
    if leader is None:
        return broker.node_id
    if leader.node_id not in broker.leadership.brokers(context.address):
        raise CoordinatorNotAvailableError(f"nobody leads the partition of {name} that holds {quoted(key)}")
    return leader.node_id
