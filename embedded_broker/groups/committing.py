"""What OffsetCommit and TxnOffsetCommit have in common: which of their offsets are fit to be kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from splashdam.embedded_broker.groups.offset_records import CommittedOffset
from splashdam.model.error_codes import ErrorCode
from splashdam.model.values import TopicPartition

if TYPE_CHECKING:
    from splashdam.embedded_broker.broker import Broker
    from splashdam.embedded_broker.registry import RequestContext


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
    def partitions(self) -> Sequence[AskedPartition]:
        """Its partitions."""
        ...


class Sorted:
    """The offsets of one request: those to commit, and the codes of those that cannot be.

    Args:
        topics: as asked.
        broker: which must have the partitions.
        expire_timestamp_ms: when the offsets are forgotten, where the request says so.
        missing_topic: what is told of a topic that is not there.
    """

    def __init__(
        self,
        topics: Sequence[AskedTopic],
        broker: Broker,
        expire_timestamp_ms: int | None = None,
        missing_topic: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ) -> None:
        self._topics = topics
        self.offsets: dict[TopicPartition, CommittedOffset] = {}
        self.codes: dict[TopicPartition, int] = {}
        now_ms = broker.clock.wall_ms()
        for topic in topics:
            known = broker.topics.get(topic.name)
            for asked in topic.partitions:
                topic_partition = TopicPartition(topic.name, asked.partition_index)
                metadata = asked.committed_metadata or ""
                if known is None:
                    self.codes[topic_partition] = missing_topic
                elif asked.partition_index not in known.partitions:
                    self.codes[topic_partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif _is_too_large(metadata, broker.settings.offset_metadata_max_bytes):
                    self.codes[topic_partition] = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    self.offsets[topic_partition] = CommittedOffset(
                        asked.committed_offset,
                        metadata,
                        asked.committed_leader_epoch,
                        now_ms,
                        expire_timestamp_ms,
                    )

    def refuse(self, code: int) -> None:
        """None of those that were to be committed is."""
        self.codes.update(dict.fromkeys(self.offsets, code))

    def answers(self) -> list[tuple[str, list[dict[str, int]]]]:
        """By topic, as asked, the fields of each partition's answer; code 0 where nothing is wrong."""
        return [
            (
                topic.name,
                [
                    {
                        "partition_index": asked.partition_index,
                        "error_code": self.codes.get(
                            TopicPartition(topic.name, asked.partition_index), ErrorCode.NONE
                        ),
                    }
                    for asked in topic.partitions
                ],
            )
            for topic in self._topics
        ]


def sorted_topics(
    topics: Sequence[AskedTopic],
    context: RequestContext,
    *,
    names_ids: bool,
    expire_timestamp_ms: int | None = None,
) -> Sorted:
    """The offsets of a request whose version names topics by id, or by name; each gets its name.

    Args:
        topics: as asked.
        context: of the request.
        names_ids: whether they have ids.
        expire_timestamp_ms: as `Sorted` has it.
    """
    if names_ids:
        for topic in topics:
            known = context.broker.topics.by_id(topic.topic_id)
            topic.name = "" if known is None else known.name
    missing = ErrorCode.UNKNOWN_TOPIC_ID if names_ids else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return Sorted(topics, context.broker, expire_timestamp_ms, missing)


def _is_too_large(metadata: str, limit: int) -> bool:
    """Kafka counts UTF-16 units, and calls them bytes."""
    return len(metadata) + sum(letter > "\uffff" for letter in metadata) > limit
