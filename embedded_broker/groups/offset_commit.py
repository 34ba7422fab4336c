"""What OffsetCommit and TxnOffsetCommit have in common: which of their offsets can be committed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from splashdam.embedded_broker.execution.turns import PARTITIONS_IN_A_UNIT, UNIT_BYTES, Steps, in_steps
from splashdam.embedded_broker.groups.offset_records import CommittedOffset, NewOffset
from splashdam.model.broker_errors import BrokerResponseError, ErrorCode
from splashdam.model.values import TopicPartition

if TYPE_CHECKING:
    from splashdam.embedded_broker.configs.broker_settings import BrokerSettings
    from splashdam.embedded_broker.topics.topics import Topics
    from splashdam.net.clock import Clock
    from splashdam.storage.manager.topic_registry import Topic

Answered = TypeVar("Answered")


class HasTopics(Protocol):
    """What the checks need of a broker; the attributes are those of `Broker`."""

    settings: BrokerSettings
    clock: Clock
    topics: Topics


class AskedPartition(Protocol):
    """One partition of a request."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


class AskedTopic(Protocol):
    """One topic of a request."""

    name: str
    topic_id: bytes

    @property
    def partitions(self) -> Sequence[AskedPartition]: ...


class AnsweredPartition(Protocol):
    """The answer for one partition."""

    error_code: int


class AnsweredTopic(Protocol):
    """One topic of an answer."""

    @property
    def partitions(self) -> Sequence[AnsweredPartition]: ...


class CommitAnswer(Protocol):
    """An answer of either request."""

    @property
    def topics(self) -> Sequence[AnsweredTopic]: ...


Committed = TypeVar("Committed", bound=CommitAnswer)


class CheckedOffsets:
    """The offsets of one request: those to commit, and the error codes of the others.

    Args:
        topics: of the request.
        broker: which must have the partitions.
        expire_timestamp_ms: when the offsets expire, if the request says so.
        missing_topic: the error code for an unknown topic.
        names_ids: the request names topics by id; each gets its name.

    Attributes:
        offsets: to commit, once ``check`` has finished.
        codes: error codes of the others.
    """

    def __init__(
        self,
        topics: Sequence[AskedTopic],
        broker: HasTopics,
        expire_timestamp_ms: int | None = None,
        missing_topic: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        *,
        names_ids: bool = False,
    ) -> None:
        self._names_ids = names_ids
        self._topics = topics
        self._broker = broker
        self._expire_timestamp_ms = expire_timestamp_ms
        self._missing_topic = missing_topic
        self.offsets: dict[TopicPartition, NewOffset] = {}
        self.codes: dict[TopicPartition, int] = {}

    def check(self) -> Steps[None]:
        """Check each offset, in steps; an offset whose topic is deleted meanwhile is not committed."""
        broker, now_ms = self._broker, self._broker.clock.wall_ms()
        seen: dict[str, bytes] = {}
        wanted: dict[TopicPartition, CommittedOffset] = {}
        for topic in self._topics:
            yield 1
            known = self._known(topic)
            if known is not None:
                seen.setdefault(topic.name, known.topic_id)
            for number, asked in enumerate(topic.partitions, 1):
                if number % PARTITIONS_IN_A_UNIT == 0:
                    yield 1
                topic_partition = TopicPartition(topic.name, asked.partition_index)
                metadata = asked.committed_metadata or ""
                if len(metadata) >= UNIT_BYTES:
                    yield len(metadata) // UNIT_BYTES
                if known is None:
                    self.codes[topic_partition] = self._missing_topic
                elif not has_partition(known.partitions, asked.partition_index):
                    self.codes[topic_partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif is_too_large(metadata, broker.settings.groups.offset_metadata_max_bytes):
                    self.codes[topic_partition] = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    wanted[topic_partition] = CommittedOffset(
                        asked.committed_offset,
                        metadata,
                        asked.committed_leader_epoch,
                        now_ms,
                        self._expire_timestamp_ms,
                    )
        yield from self._encode(wanted)
        # The steps above took turns: an offset of a topic that was deleted meanwhile would outlive its
        # tombstone.
        gone = {
            name
            for name, topic_id in seen.items()
            if (now := broker.topics.get(name)) is None or now.topic_id != topic_id
        }
        for topic_partition in [each for each in self.offsets if each.topic in gone] if gone else ():
            del self.offsets[topic_partition]
            self.codes[topic_partition] = self._missing_topic

    def _known(self, topic: AskedTopic) -> Topic | None:
        if not self._names_ids:
            return self._broker.topics.get(topic.name)
        known = self._broker.topics.by_id(topic.topic_id)
        topic.name = "" if known is None else known.name
        return known

    def _encode(self, wanted: Mapping[TopicPartition, CommittedOffset]) -> Steps[None]:
        """Encode the offsets; of a partition that is named twice the last counts."""
        for number, (topic_partition, committed) in enumerate(wanted.items(), 1):
            self.offsets[topic_partition] = NewOffset.of(topic_partition, committed)
            if number % PARTITIONS_IN_A_UNIT == 0:
                yield 1

    def refuse(self, code: int) -> None:
        """Refuse all offsets that were to be committed."""
        self.codes.update(dict.fromkeys(self.offsets, code))

    def answers(self, answer_with: Callable[..., Answered]) -> Steps[list[tuple[str, list[Answered]]]]:
        """Return the answers of all partitions by topic, in the order of the request."""
        found: list[tuple[str, list[Answered]]] = []
        for topic in self._topics:
            yield 1
            answer = partial(self._answer, answer_with, topic.name)
            found.append((topic.name, (yield from in_steps(topic.partitions, answer))))
        return found

    def _answer(self, answer_with: Callable[..., Answered], topic: str, asked: AskedPartition) -> Answered:
        number = asked.partition_index
        code = self.codes.get(TopicPartition(topic, number), ErrorCode.NONE)
        return answer_with(partition_index=number, error_code=code)


def not_committed(answer: Committed, _: BrokerResponseError) -> Committed:
    """Turn every success into NOT_COORDINATOR (16): another broker leads, which may not have the offsets."""
    for topic in answer.topics:
        for each in topic.partitions:
            each.error_code = each.error_code or ErrorCode.NOT_COORDINATOR
    return answer


def checked_offsets(
    topics: Sequence[AskedTopic],
    broker: HasTopics,
    *,
    names_ids: bool,
    expire_timestamp_ms: int | None = None,
) -> Steps[CheckedOffsets]:
    """Check the offsets of a request, whose version names topics by id or by name.

    Args:
        topics: of the request.
        broker: which must have the partitions.
        names_ids: whether topics are named by id.
        expire_timestamp_ms: see `CheckedOffsets`.
    """
    missing = ErrorCode.UNKNOWN_TOPIC_ID if names_ids else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    found = CheckedOffsets(topics, broker, expire_timestamp_ms, missing, names_ids=names_ids)
    yield from found.check()
    return found


def has_partition(partitions: Sequence[int], number: int) -> bool:
    """Whether a topic has a partition; a linear search in 18,000 took 0.1 ms."""
    place = bisect_left(partitions, number)
    return place < len(partitions) and partitions[place] == number


def is_too_large(metadata: str, limit: int) -> bool:
    """Whether metadata exceed ``offset.metadata.max.bytes``: Kafka counts UTF-16 units, and calls them bytes.

    The text is encoded only if its length alone does not decide.
    """
    if len(metadata) > limit:
        return True
    if metadata.isascii() or 2 * len(metadata) <= limit:
        return False
    return len(metadata.encode("utf-16-le", "surrogatepass")) > 2 * limit
