"""Members of consumer groups, heartbeat by heartbeat over a connection."""

from __future__ import annotations

from typing import Any

from splashdam.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    DescribedGroup,
)
from splashdam.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from support.broker.broker_talk import Talk

LATEST = 1


class WireMember:
    """A member that owns what it is told as soon as it is told, and gives up likewise.

    Args:
        talk: its connection.
        member_id: its id.
        group_id: its group.
        names: what it subscribes to.
        more: further fields of its requests.
    """

    def __init__(self, talk: Talk, member_id: str, *names: str, group_id: str = "g", **more: Any) -> None:
        self._talk = talk
        self.member_id = member_id
        self.group_id = group_id
        self.names: list[str] | None = list(names)
        self.more = more
        self.epoch = 0
        self.owned: list[TopicPartitions] = []

    @property
    def partitions(self) -> list[int]:
        """The numbers of what it owns."""
        return sorted(number for each in self.owned for number in each.partitions)

    async def ask(self, version: int = LATEST, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """A heartbeat that says everything; ``fields`` replace what it says."""
        said = {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": self.names,
            "topic_partitions": self.owned,
        }
        request = ConsumerGroupHeartbeatRequest(**{**said, **self.more, **fields})
        return await self._talk.ask(request, version)

    async def beat(self, version: int = LATEST) -> ConsumerGroupHeartbeatResponse:
        """A heartbeat that has to succeed."""
        answer = await self.ask(version)
        assert answer.error_code == 0, answer.error_message
        self.member_id, self.epoch = answer.member_id or "", answer.member_epoch
        if answer.assignment is not None:
            self.owned = answer.assignment.topic_partitions
        return answer

    async def leave(self, epoch: int = -1) -> ConsumerGroupHeartbeatResponse:
        """Goes, or with -2 for a while."""
        answer = await self.ask(member_epoch=epoch)
        self.epoch, self.owned = 0, []
        return answer


async def settle(*members: WireMember) -> None:
    """Heartbeats of all until nothing moves any more."""
    for _ in range(4):
        for member in members:
            await member.beat()


async def describe(talk: Talk, group_id: str = "g", version: int = LATEST) -> DescribedGroup:
    """What the broker says of a group."""
    answer = await talk.ask(ConsumerGroupDescribeRequest(group_ids=[group_id]), version)
    return answer.groups[0]
