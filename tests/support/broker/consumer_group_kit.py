"""A consumer group in memory, and members that speak to it as clients do."""

from __future__ import annotations

from collections.abc import Iterable

from splashdam.embedded_broker.groups.consumer.context import DecisionContext, PatternMatches
from splashdam.embedded_broker.groups.consumer.group import ConsumerGroup, Draft, TopicShape
from splashdam.embedded_broker.groups.consumer.heartbeat import (
    Heartbeat,
    HeartbeatOutcome,
    apply_heartbeat,
    fence,
    leave,
)
from splashdam.embedded_broker.groups.consumer.member import LEAVING, Share, TopicIdPartition
from splashdam.embedded_broker.groups.consumer.records import decode_change, encode_change


def topic_id(name: str, life: int = 0) -> bytes:
    """The id that a topic of this name has in its n-th life."""
    return f"{name}#{life}".encode().ljust(16, b".")[:16]


class FakeTopics:
    """Topics by name that come, grow and go."""

    def __init__(self, **partitions: int) -> None:
        self.by_name = {name: TopicShape(topic_id(name), count) for name, count in partitions.items()}

    def names(self) -> Iterable[str]:
        """All of them."""
        return list(self.by_name)

    def shape(self, name: str) -> TopicShape | None:
        """One of them."""
        return self.by_name.get(name)

    def shapes(self, names: frozenset[str]) -> dict[str, TopicShape]:
        """Those of them that are there."""
        return {name: self.by_name[name] for name in names if name in self.by_name}


class GroupInMemory:
    """A group, its log as a list of records, and the decisions that lead from one to the next."""

    def __init__(self, topics: FakeTopics, assignor: str = "uniform", max_size: int = 1000) -> None:
        self.group = ConsumerGroup("g")
        self.topics = topics
        self.log: list[tuple[bytes, bytes | None]] = []
        others = [each for each in ("uniform", "range") if each != assignor]
        self.context = DecisionContext(
            topics=topics,
            matches=PatternMatches(),
            assignors=[assignor, *others],
            max_size=max_size,
            wall_ms=1_000,
        )

    def apply_heartbeat(self, asked: Heartbeat) -> HeartbeatOutcome:
        """A heartbeat and its answer."""
        draft = Draft(self.group)
        answer = apply_heartbeat(draft, asked, self.context)
        self._keep(draft)
        return answer

    def leave(self, asked: Heartbeat) -> None:
        """A heartbeat that leaves."""
        draft = Draft(self.group)
        leave(draft, asked, self.context)
        self._keep(draft)

    def fence(self, member_id: str) -> None:
        """A session that ended."""
        draft = Draft(self.group)
        fence(draft, member_id, self.context)
        self._keep(draft)

    def _keep(self, draft: Draft) -> None:
        self.log += [encode_change("g", each) for each in draft.changes]
        self.group = draft.group

    def replayed(self, log: Iterable[tuple[bytes, bytes | None]] | None = None) -> ConsumerGroup:
        """What a broker reads from the log."""
        group = ConsumerGroup("g")
        for key, value in self.log if log is None else log:
            found = decode_change(key, value)
            assert found is not None
            assert found.group_id == "g"
            group.apply(found.change)
        return group

    def compacted(self) -> list[tuple[bytes, bytes | None]]:
        """The log with the last record of each key, tombstones left out, in their order."""
        last = {key: number for number, (key, _) in enumerate(self.log)}
        return [
            (key, value)
            for number, (key, value) in enumerate(self.log)
            if last[key] == number and value is not None
        ]


class FakeMember:
    """A client: owns what it was told, gives up what it is told no longer, and says so in a heartbeat."""

    def __init__(self, group: GroupInMemory, member_id: str, topics: Iterable[str], **more: str) -> None:
        self._group = group
        self.member_id = member_id
        self.topics = frozenset(topics)
        self.more = more
        self.epoch = 0
        self.owned: Share = frozenset()
        self.assigned: Share = frozenset()

    def beat(self, *, is_heard: bool = True, gives_up: bool = True) -> HeartbeatOutcome:
        """A heartbeat; ``is_heard``: its answer arrives; ``gives_up``: first it revokes what it should."""
        if gives_up:
            self.owned &= self.assigned
        answer = self._group.apply_heartbeat(self.request())
        if is_heard:
            self.epoch = answer.member.current.member_epoch
            if answer.assigned is not None:
                self.assigned = frozenset(answer.assigned)
            if not self.owned - self.assigned:
                self.owned = self.assigned
        return answer

    def request(self, **more: object) -> Heartbeat:
        """What it sends."""
        if self.epoch == 0:
            self.owned = self.assigned = frozenset()
        names = {"topic_names": self.topics, "rebalance_timeout_ms": 60_000, "owned": self.owned}
        return Heartbeat(self.member_id, self.epoch, **{**names, **self.more, **more})  # type: ignore[arg-type]  # a mapping of all kinds

    def leave(self) -> None:
        """Goes for good."""
        self._group.leave(self.request()._replace(member_epoch=LEAVING))
        self.epoch, self.owned, self.assigned = 0, frozenset(), frozenset()


def partitions(*names_and_numbers: tuple[str, int]) -> Share:
    """Partitions by topic name."""
    return frozenset(TopicIdPartition(topic_id(name), number) for name, number in names_and_numbers)


def all_partitions(topics: FakeTopics, names: Iterable[str]) -> Share:
    """Every partition of some topics."""
    return frozenset(
        TopicIdPartition(topics.by_name[name].topic_id, number)
        for name in names
        if name in topics.by_name
        for number in range(topics.by_name[name].partitions)
    )
