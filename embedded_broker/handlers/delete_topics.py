"""DeleteTopics 1–6: by name, from version 6 on also by id. A topic that is created again has a new id."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Container

from splashdam.embedded_broker.execution.turns import CHANGE_UNITS, PARTITION_UNITS, Steps
from splashdam.embedded_broker.handlers.create_topics import (
    PARTITIONS_TOGETHER,
    TOPICS_TOGETHER,
)
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.model.broker_errors import (
    BrokerResponseError,
    ErrorCode,
    InvalidRequestError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    error_for,
)
from splashdam.model.log_text import quoted
from splashdam.storage.manager.topic_registry import Topic
from splashdam.wire.fields import NO_UUID
from splashdam.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

_FIRST_STRICT_VERSION = 5
"""First version in which the controller mutation quota refuses requests (KIP-599)."""


@handles(DeleteTopicsRequest, versions=range(1, 7))
def delete_topics(request: DeleteTopicsRequest, context: RequestContext) -> Steps[DeleteTopicsResponse]:
    """Answer with a result for each topic; fetches that wait for a deleted topic are answered at once."""
    asked = (
        request.topics
        if context.version >= 6
        else [DeleteTopicState(name=name) for name in request.topic_names]
    )
    times = Counter((topic.name, topic.topic_id) for topic in asked)
    once = deque({(topic.name, topic.topic_id): topic for topic in asked}.items())
    answer = DeleteTopicsResponse()
    try:
        while once:
            yield CHANGE_UNITS
            group = _Group(context)
            while once and not group.is_full:
                key, topic = once.popleft()
                group.take(topic, times[key] > 1)
            group.delete()
            answer.responses += group.results
            yield min(group.partitions, PARTITIONS_TOGETHER) * PARTITION_UNITS
            yield from context.broker.topics.remove_directories()
        yield CHANGE_UNITS
    finally:  # also if the client disconnects meanwhile
        context.broker.topics.free_names()
    return answer


class _Group:
    """Topics that are deleted together, in one step.

    Attributes:
        results: the results of all topics taken.
        partitions: the number of partitions to delete.
    """

    def __init__(self, context: RequestContext) -> None:
        self.results: list[DeletableTopicResult] = []
        self.partitions = 0
        self._context = context
        self._to_delete: dict[str, tuple[Topic, DeletableTopicResult]] = {}

    @property
    def is_full(self) -> bool:
        """Whether the next topic belongs to another step."""
        return len(self.results) >= TOPICS_TOGETHER or self.partitions >= PARTITIONS_TOGETHER

    def take(self, asked: DeleteTopicState, is_repeated: bool) -> None:
        """Look up a topic, and count its partitions against the mutation quota."""
        result = DeletableTopicResult(name=asked.name, topic_id=asked.topic_id)
        self.results.append(result)
        try:
            if is_repeated:
                raise InvalidRequestError("the request names the topic more than once")
            topic = _find(asked, self._context, self._to_delete)
            result.name, result.topic_id = topic.name, topic.topic_id
            self._context.record_mutations(len(topic.partitions), strict_from=_FIRST_STRICT_VERSION)
        except BrokerResponseError as error:
            self._refuse(result, error)
        else:
            self._to_delete[topic.name] = topic, result
            self.partitions += len(topic.partitions)

    def delete(self) -> None:
        """Delete the topics of this step."""
        refused = self._context.broker.topics.delete_all([topic for topic, _ in self._to_delete.values()])
        for name, error in refused.items():
            self._refuse(self._to_delete[name][1], error)

    def _refuse(self, result: DeletableTopicResult, error: BrokerResponseError) -> None:
        self._context.broker.disk_failures.change_failed(f"delete topic {quoted(result.name)}", error)
        result.error_code = error.code
        result.error_message = error.message


def _find(asked: DeleteTopicState, context: RequestContext, to_delete: Container[str]) -> Topic:
    """Return the topic; one that this request is about to delete counts as deleted."""
    broker = context.broker
    if not broker.settings.delete_topic_enable:
        code = ErrorCode.TOPIC_DELETION_DISABLED if context.version >= 3 else ErrorCode.INVALID_REQUEST
        raise error_for(code, "delete.topic.enable is false")
    if asked.name is None and asked.topic_id == NO_UUID:
        raise InvalidRequestError("a topic is named by its name or by its id, not by neither")
    if asked.name is None:
        topic = broker.topics.by_id(asked.topic_id)
        if topic is None or topic.name in to_delete:
            raise UnknownTopicIdError
        return topic
    if asked.topic_id != NO_UUID:
        raise InvalidRequestError("a topic is named by its name or by its id, not by both")
    topic = broker.topics.get(asked.name)
    if topic is None or topic.name in to_delete:
        raise UnknownTopicOrPartitionError
    return topic
