"""CreateTopics 2–7: create topics, or with ``validate_only`` only check them.

From version 5 on the answer carries the topic's whole configuration; the list is never null, which would
crash Java's kafka-topics. The controller places the replicas.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

from splashdam.embedded_broker.configs.described import ConfigEntry, topic_entries
from splashdam.embedded_broker.execution.turns import CHANGE_UNITS, PARTITION_UNITS, Steps
from splashdam.embedded_broker.serving.registry import RequestContext, handles
from splashdam.model.broker_errors import BrokerResponseError, ErrorCode, InvalidRequestError, error_for
from splashdam.model.log_text import quoted
from splashdam.storage.manager.topic_registry import NewTopic, Topic
from splashdam.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

MAX_PARTITIONS = 10_000
"""Partitions that one request may create: Kafka's ``ReplicationControlManager.MAX_PARTITIONS_PER_BATCH``."""

PARTITIONS_TOGETHER = 12
"""Partitions created or removed in one step of a request with many topics: about 5 ms, and two syncs."""

TOPICS_TOGETHER = 8
"""Topics in such a step; each is checked and described, too."""

_FIRST_STRICT_VERSION = 6
"""First version that the controller mutation quota refuses (KIP-599); earlier ones are throttled."""


@handles(CreateTopicsRequest, versions=range(2, 8))
def create_topics(request: CreateTopicsRequest, context: RequestContext) -> Steps[CreateTopicsResponse]:
    """Answer with a result for each topic; the others are created even if one fails."""
    times = Counter(topic.name for topic in request.topics)
    partitions = sum(_partitions_asked(topic, context) for topic in request.topics)
    once = deque({topic.name: topic for topic in request.topics}.values())
    answer = CreateTopicsResponse()
    while once:
        yield CHANGE_UNITS
        group = _Group(context)
        while once and not group.is_full:
            topic = once.popleft()
            if context.broker.topics.is_busy(topic.name):
                if group.results:
                    once.appendleft(topic)
                    break  # create what was checked before the turn ends
                yield from context.broker.topics.wait_for(topic.name)
            try:
                if partitions > MAX_PARTITIONS:
                    raise error_for(
                        ErrorCode.POLICY_VIOLATION,
                        f"the request asks for {partitions} partitions; {MAX_PARTITIONS} is the most at once",
                    )
                if times[topic.name] > 1:
                    raise InvalidRequestError("the request names the topic more than once")
                group.take(topic, request.validate_only)
            except BrokerResponseError as error:
                group.refuse(topic.name, error)
        yield from group.create()
        answer.topics += group.results.values()
    return answer


class _Group:
    """Topics that are created together, in one step.

    Attributes:
        results: the results of all topics taken, by name.
    """

    def __init__(self, context: RequestContext) -> None:
        self.results: dict[str, CreatableTopicResult] = {}
        self._context = context
        self._new: list[NewTopic] = []
        self._partitions = 0

    @property
    def is_full(self) -> bool:
        """Whether the next topic belongs to another step."""
        return len(self.results) >= TOPICS_TOGETHER or self._partitions >= PARTITIONS_TOGETHER

    def take(self, asked: CreatableTopic, validate_only: bool) -> None:
        """Check a topic, and count its partitions against the mutation quota.

        Raises:
            BrokerResponseError: it is refused.
        """
        new = _new_topic(asked, self._context)
        topic = self._context.broker.topics.create_new(new, validate_only=True)
        if not validate_only:
            self._context.record_mutations(new.partitions, strict_from=_FIRST_STRICT_VERSION)
            self._new.append(new)
        self._partitions += new.partitions
        self.results[new.name] = _created(new, topic.topic_id, self._context)

    def create(self) -> Steps[None]:
        """Create the checked topics in one change, or one by one if that change is refused.

        The partitions of a large topic are created first, in steps: no client may see the topic without them.
        """
        topics = self._context.broker.topics
        prepared: list[NewTopic] = []
        try:
            for new in self._new:
                try:
                    prepared.append((yield from topics.prepare(new)))
                except BrokerResponseError as error:
                    self.refuse(new.name, error)
            yield from self._add(prepared)
        finally:
            for new in prepared:
                topics.give_up(new)

    def _add(self, wanted: list[NewTopic]) -> Steps[None]:
        topics = self._context.broker.topics
        try:
            self._note_ids(topics.add(wanted))
        except BrokerResponseError as error:
            if len(wanted) == 1:
                self.refuse(wanted[0].name, error)
                return
            for new in wanted:
                yield CHANGE_UNITS + new.partitions * PARTITION_UNITS
                try:
                    self._note_ids(topics.add([new]))
                except BrokerResponseError as refused:
                    self.refuse(new.name, refused)
        else:
            yield self._partitions * PARTITION_UNITS

    def _note_ids(self, topics: Iterable[Topic]) -> None:
        for topic in topics:
            self.results[topic.name].topic_id = topic.topic_id

    def refuse(self, name: str, error: BrokerResponseError) -> None:
        """Answer that a topic was not created."""
        self._context.broker.disk_failures.change_failed(f"create topic {quoted(name)}", error)
        self.results[name] = CreatableTopicResult(
            name=name, error_code=error.code, error_message=error.message, configs=[]
        )


def _new_topic(asked: CreatableTopic, context: RequestContext) -> NewTopic:
    partitions = _partition_count(asked, context)
    configs = {}
    for config in asked.configs:
        if config.value is None:
            raise error_for(ErrorCode.INVALID_CONFIG, f"{config.name} has no value")
        configs[config.name] = config.value
    assignments = [
        each.broker_ids for each in sorted(asked.assignments, key=lambda each: each.partition_index)
    ]
    return NewTopic(
        asked.name,
        partitions,
        configs,
        replication_factor=asked.replication_factor,
        assignments=assignments,
    )


def _created(new: NewTopic, topic_id: bytes, context: RequestContext) -> CreatableTopicResult:
    broker = context.broker
    return CreatableTopicResult(
        name=new.name,
        error_message=None,
        topic_id=topic_id,
        num_partitions=new.partitions,
        replication_factor=_replication_factor(new, broker.settings.default_replication_factor),
        configs=[_described(entry) for entry in topic_entries(broker.configs.layers, new.configs)],
    )


def _replication_factor(new: NewTopic, default: int) -> int:
    if new.assignments:
        return len(new.assignments[0])
    return default if new.replication_factor == -1 else new.replication_factor


def _partitions_asked(asked: CreatableTopic, context: RequestContext) -> int:
    """Return how many partitions are asked for, legal or not."""
    if asked.assignments:
        return len(asked.assignments)
    if asked.num_partitions == -1:
        return context.broker.settings.num_partitions
    return max(asked.num_partitions, 0)


def _partition_count(asked: CreatableTopic, context: RequestContext) -> int:
    """Return the number of partitions from the request, its assignments or the broker's default."""
    if asked.assignments:
        return _assigned_count(asked)
    if asked.replication_factor != -1 and asked.replication_factor < 1:
        raise error_for(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"the replication factor is {asked.replication_factor}; it must be 1 or more, or -1",
        )
    if asked.num_partitions == -1:
        return context.broker.settings.num_partitions
    if asked.num_partitions < 1:
        raise error_for(
            ErrorCode.INVALID_PARTITIONS,
            f"the number of partitions is {asked.num_partitions}; it must be 1 or more",
        )
    return asked.num_partitions


def _assigned_count(asked: CreatableTopic) -> int:
    if asked.num_partitions != -1 or asked.replication_factor != -1:
        raise InvalidRequestError(
            "with assignments the number of partitions and the replication factor must be -1"
        )
    assigned = sorted(assignment.partition_index for assignment in asked.assignments)
    if assigned != list(range(len(assigned))):
        raise error_for(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the partitions assigned are not 0, 1, 2, …")
    return len(assigned)


def _described(entry: ConfigEntry) -> CreatableTopicConfigs:
    return CreatableTopicConfigs(
        name=entry.name, value=entry.value, read_only=False, config_source=entry.source, is_sensitive=False
    )
