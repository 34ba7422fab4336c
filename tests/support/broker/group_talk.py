"""Requests of members of a classic group, in every version."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from trio.testing import wait_all_tasks_blocked

from splashdam.net.memory import MemoryNetwork
from splashdam.wire.messages.heartbeat import HeartbeatRequest
from splashdam.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from splashdam.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from splashdam.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from support.broker.broker_talk import Talk

NEWEST_JOIN, NEWEST_SYNC = 9, 5
READS_T = b"\0\1" + b"\0\0\0\1" + b"\0\1t" + b"\xff\xff\xff\xff"
"""What a consumer says that reads topic ``t``."""


class RawMember:
    """One client with a connection of its own, which says just what it is told to.

    Attributes:
        talk: the connection.
        group_id: its group.
        member_id: as it was given.
        generation_id: as it last heard.
        instance_id: of a static member.
    """

    def __init__(self, talk: Talk, group_id: str = "g", instance_id: str | None = None) -> None:
        self.talk = talk
        self.group_id = group_id
        self.member_id = ""
        self.generation_id = -1
        self.instance_id = instance_id
        self.protocols = {"range": READS_T}

    def join_request(self, **fields: Any) -> JoinGroupRequest:
        """A JoinGroup as this member sends it; ``fields`` change it."""
        values: dict[str, Any] = {
            "group_id": self.group_id,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "protocol_type": "consumer",
            "protocols": [
                JoinGroupRequestProtocol(name=name, metadata=data) for name, data in self.protocols.items()
            ],
        }
        return JoinGroupRequest(**{**values, **fields})

    async def begin_join(self, version: int = NEWEST_JOIN, **fields: Any) -> None:
        """Sends a JoinGroup; comes again with the id that it is told to take."""
        await self.talk.send(self.join_request(**fields), version)
        has_id = self.member_id or fields.get("member_id") or self.instance_id is not None
        if version >= 4 and not has_id:
            answer = await self.talk.answer()
            assert answer.error_code == 79, answer
            self.member_id = answer.member_id
            await self.talk.send(self.join_request(**fields), version)
        await wait_all_tasks_blocked()  # whoever joins first leads

    async def joined(self) -> JoinGroupResponse:
        """The answer to that."""
        answer: JoinGroupResponse = await self.talk.answer()
        if not answer.error_code:
            self.member_id, self.generation_id = answer.member_id, answer.generation_id
        return answer

    async def join(self, version: int = NEWEST_JOIN, **fields: Any) -> JoinGroupResponse:
        """Both."""
        await self.begin_join(version, **fields)
        return await self.joined()

    async def begin_sync(
        self, shares: Mapping[str, bytes] | None = None, version: int = NEWEST_SYNC, **fields: Any
    ) -> None:
        """Sends a SyncGroup, with assignments by member id where it leads."""
        values: dict[str, Any] = {
            "group_id": self.group_id,
            "generation_id": self.generation_id,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id if version >= 3 else None,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [
                SyncGroupRequestAssignment(member_id=member_id, assignment=share)
                for member_id, share in (shares or {}).items()
            ],
        }
        await self.talk.send(SyncGroupRequest(**{**values, **fields}), version)
        await wait_all_tasks_blocked()

    async def sync(
        self, shares: Mapping[str, bytes] | None = None, version: int = NEWEST_SYNC, **fields: Any
    ) -> SyncGroupResponse:
        """The same, and its answer."""
        await self.begin_sync(shares, version, **fields)
        answer: SyncGroupResponse = await self.talk.answer()
        return answer

    async def heartbeat(self, version: int = 4, **fields: Any) -> int:
        """The code."""
        values: dict[str, Any] = {
            "group_id": self.group_id,
            "generation_id": self.generation_id,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id if version >= 3 else None,
        }
        code: int = (await self.talk.ask(HeartbeatRequest(**{**values, **fields}), version)).error_code
        return code

    async def leave(self, version: int = 5) -> int:
        """The code for this member."""
        return (await leave(self.talk, self.group_id, (self.member_id, self.instance_id), version=version))[0]


async def leave(talk: Talk, group_id: str, *members: tuple[str, str | None], version: int = 5) -> list[int]:
    """LeaveGroup of members by id and instance; their codes."""
    request = LeaveGroupRequest(group_id=group_id)
    if version >= 3:
        request.members = [
            MemberIdentity(member_id=member_id, group_instance_id=instance_id)
            for member_id, instance_id in members
        ]
    else:
        request.member_id = members[0][0]
    answer = await talk.ask(request, version)
    return [each.error_code for each in answer.members] if version >= 3 else [answer.error_code]


@asynccontextmanager
async def members_of(
    network: MemoryNetwork, count: int, *, address: tuple[str, int] = ("broker", 9092), group_id: str = "g"
) -> AsyncIterator[list[RawMember]]:
    """So many clients."""
    streams = [await network.connect(*address) for _ in range(count)]
    try:
        yield [RawMember(Talk(stream), group_id) for stream in streams]
    finally:
        for stream in streams:
            await stream.aclose()


async def settle(*members: RawMember) -> list[bytes]:
    """All join and hear their share: the first letters of the alphabet, in the order of ``members``."""
    for member in members:
        await member.begin_join()
    answers: list[JoinGroupResponse] = [await member.joined() for member in members]
    assert [each.error_code for each in answers] == [0] * len(members), answers
    shares = {member.member_id: b"abcdef"[n : n + 1] for n, member in enumerate(members)}
    for member in members:
        await member.begin_sync(shares if member.member_id == answers[0].leader else None)
    found: list[Any] = [await member.talk.answer() for member in members]
    assert [each.error_code for each in found] == [0] * len(members), found
    return [each.assignment for each in found]
