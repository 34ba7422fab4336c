"""DeleteTopics 1–6: by name, from version 6 on also by id. A topic made again has a new id."""

from __future__ import annotations

from collections import Counter

from splashdam.embedded_broker.registry import RequestContext, handles
from splashdam.embedded_broker.storage.topic_registry import Topic
from splashdam.embedded_broker.turns import CHANGE_UNITS, Steps
from splashdam.model.broker_errors import (
    InvalidRequestError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    error_for,
)
from splashdam.model.error_codes import ErrorCode
from splashdam.model.errors import BrokerResponseError
from splashdam.model.quoting import quoted
from splashdam.wire.fields import NO_UUID
from splashdam.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

_FIRST_STRICT_VERSION = 5
"""From here on the quota of mutations refuses what exceeds it (KIP-599)."""


@handles(DeleteTopicsRequest, versions=range(1, 7))
def delete_topics(request: DeleteTopicsRequest, context: RequestContext) -> Steps[DeleteTopicsResponse]:
    """One result for each topic; fetches that wait for a deleted topic are answered at once."""
    asked = (
        request.topics
        if context.version >= 6
        else [DeleteTopicState(name=name) for name in request.topic_names]
    )
    times = Counter((topic.name, topic.topic_id) for topic in asked)
    once = {(topic.name, topic.topic_id): topic for topic in asked}
    answer = DeleteTopicsResponse()
    for key, topic in once.items():
        yield CHANGE_UNITS
        answer.responses.append(_delete(topic, times[key] > 1, context))
    return answer


def _delete(asked: DeleteTopicState, is_repeated: bool, context: RequestContext) -> DeletableTopicResult:
    result = DeletableTopicResult(name=asked.name, topic_id=asked.topic_id)
    try:
        if is_repeated:
            raise InvalidRequestError("the request names the topic more than once")
        topic = _find(asked, context)
        result.name, result.topic_id = topic.name, topic.topic_id
        context.record_mutations(len(topic.partitions), strict_from=_FIRST_STRICT_VERSION)
        context.broker.topics.delete(topic)
    except BrokerResponseError as error:
        context.broker.disk_troubles.kept_from(f"delete topic {quoted(result.name)}", error)
        result.error_code = error.code
        result.error_message = error.message
    return result


def _find(asked: DeleteTopicState, context: RequestContext) -> Topic:
    broker = context.broker
    if not broker.settings.delete_topic_enable:
        code = ErrorCode.TOPIC_DELETION_DISABLED if context.version >= 3 else ErrorCode.INVALID_REQUEST
        raise error_for(code, "delete.topic.enable is false")
    if asked.name is None and asked.topic_id == NO_UUID:
        raise InvalidRequestError("a topic is named by its name or by its id, not by neither")
    if asked.name is None:
        topic = broker.topics.by_id(asked.topic_id)
        if topic is None:
            raise UnknownTopicIdError
        return topic
    if asked.topic_id != NO_UUID:
        raise InvalidRequestError("a topic is named by its name or by its id, not by both")
    topic = broker.topics.get(asked.name)
    if topic is None:
        raise UnknownTopicOrPartitionError
    return topic
