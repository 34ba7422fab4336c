"""A follower's side of a fetch session (KIP-227): after one full request only what changed is said. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from splashdam.model.values import TopicPartition
from splashdam.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

_MAX_EPOCH = 2**31 - 1


class Wanted(NamedTuple):
    """What is asked of one partition."""

    topic_id: bytes
    partition: FetchPartition


class FetchSession:
    """The session with one leader, on one connection."""

    def __init__(self) -> None:
        self._id = 0
        self._epoch = 0
        self._said: dict[TopicPartition, Wanted] = {}

    @property
    def is_new(self) -> bool:
        """Whether the next request has to say everything."""
        return not self._id

    def fill(
        self,
        request: FetchRequest,
        wanted: Mapping[TopicPartition, Wanted],
        unwanted: Iterable[TopicPartition] = (),
    ) -> None:
        """Says in a request how what is wanted differs from what was said before.

        Args:
            request: without partitions.
            wanted: what may be news; everything where the session is new. In the order in which the leader
                shall read where not all fits into an answer.
            unwanted: what is not wanted any more, whether it was said or not.
        """
        if self.is_new:
            self._said = {}
        before = self._said
        changed = {each: ask for each, ask in wanted.items() if before.get(each) != ask}
        forgotten = {each: before[each] for each in unwanted if each in before and each not in wanted}
        # One that another topic of the same name took over is forgotten under its old id.
        forgotten |= {each: before[each] for each in changed if _is_another(before.get(each), wanted[each])}
        request.session_id, request.session_epoch = self._id, self._epoch
        request.topics = [
            FetchTopic(
                topic=name, topic_id=topic_id, partitions=[changed[each].partition for each in partitions]
            )
            for (name, topic_id), partitions in _by_topic(changed).items()
        ]
        request.forgotten_topics_data = [
            ForgottenTopic(topic=name, topic_id=topic_id, partitions=[each.partition for each in partitions])
            for (name, topic_id), partitions in _by_topic(forgotten).items()
        ]
        for each in forgotten:
            before.pop(each, None)
        before.update(changed)

    def answered(self, session_id: int) -> None:
        """An answer without an error came, of this session or of a new one; 0: the leader keeps none."""
        self._id = session_id
        self._epoch = 0 if not session_id else 1 if self._epoch == _MAX_EPOCH else self._epoch + 1

    def lost(self) -> None:
        """The leader does not know the session, or not in this epoch: the next request says everything."""
        self._id = self._epoch = 0


def _is_another(before: Wanted | None, now: Wanted) -> bool:
    return before is not None and before.topic_id != now.topic_id


def _by_topic(wanted: Mapping[TopicPartition, Wanted]) -> dict[tuple[str, bytes], list[TopicPartition]]:
    topics: dict[tuple[str, bytes], list[TopicPartition]] = {}
    for each, (topic_id, _) in wanted.items():
        topics.setdefault((each.topic, topic_id), []).append(each)
    return topics
