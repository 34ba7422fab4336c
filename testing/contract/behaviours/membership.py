"""Members of a group of the classic protocol."""

from __future__ import annotations

import struct

from splashdam.model.broker_errors import ErrorCode
from splashdam.testing.contract.behaviour import Run, behaviour, expect
from splashdam.testing.contract.raw_connection import RawConnection, coordinator_of
from splashdam.testing.contract.vocabulary import PROTOCOL
from splashdam.wire.messages.heartbeat import HeartbeatRequest
from splashdam.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from splashdam.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from splashdam.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

NON_EMPTY_GROUP = "NON_EMPTY_GROUP"

SESSION_TIMEOUT_MS = 30_000
SUBSCRIPTION = struct.pack(">hii", 0, 0, -1)
"""A member's subscription for its assignor: version 0, no topics, no data. Kafka's broker decodes it."""


def join_of(
    group: str,
    member: str = "",
    *,
    instance: str | None = None,
    session_timeout_ms: int = SESSION_TIMEOUT_MS,
    protocol_type: str = "consumer",
) -> JoinGroupRequest:
    """Build a JoinGroup request of a member that knows one assignor."""
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=10_000,
        member_id=member,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
    )


def joined(conn: RawConnection, group: str) -> JoinGroupResponse:
    """Join the group as a new member: alone, or as the last that the rebalance waits for."""
    member = conn.ask(join_of(group), 5).member_id
    answer = conn.ask(join_of(group, member), 5)
    expect(answer.error_code, 0, "error code of JoinGroup")
    return answer


def synced(
    conn: RawConnection, group: str, who: JoinGroupResponse, shares: dict[str, bytes] | None = None
) -> SyncGroupResponse:
    """Send SyncGroup; the leader passes the assignments of all members."""
    request = SyncGroupRequest(
        group_id=group,
        generation_id=who.generation_id,
        member_id=who.member_id,
        assignments=[
            SyncGroupRequestAssignment(member_id=member, assignment=share)
            for member, share in (shares or {}).items()
        ],
    )
    return conn.ask(request, 3)


def beat(conn: RawConnection, group: str, generation: int, member: str, instance: str | None = None) -> int:
    """Send a heartbeat and return its error code."""
    request = HeartbeatRequest(
        group_id=group, generation_id=generation, member_id=member, group_instance_id=instance
    )
    return conn.ask(request, 3).error_code


def left(conn: RawConnection, group: str, member: str) -> int:
    """Leave the group and return the error code."""
    answer = conn.ask(LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=member)]), 3)
    return answer.members[0].error_code


@behaviour(PROTOCOL)
def a_member_is_given_its_id_first(run: Run) -> None:
    """The first JoinGroup is answered with MEMBER_ID_REQUIRED and the id to join with (KIP-394)."""
    group = run.group()
    with coordinator_of(run, group) as conn:
        first = conn.ask(join_of(group), 5)
        expect(
            (first.error_code, first.member_id != ""),
            (ErrorCode.MEMBER_ID_REQUIRED, True),
            "the first answer",
        )
        second = conn.ask(join_of(group, first.member_id), 5)
        expect((second.error_code, second.leader), (0, first.member_id), "error code and leader")
        expect(left(conn, group, first.member_id), 0, "error code of LeaveGroup")


@behaviour(PROTOCOL)
def join_requests_are_validated(run: Run) -> None:
    """A wrong group id, session timeout or member id has its own error code."""
    group = run.group()
    with coordinator_of(run, group) as conn:
        wrong = {
            ErrorCode.INVALID_GROUP_ID: join_of(""),
            ErrorCode.INVALID_SESSION_TIMEOUT: join_of(group, session_timeout_ms=1),
            ErrorCode.UNKNOWN_MEMBER_ID: join_of(group, "nobody"),
        }
        for error, request in wrong.items():
            expect(conn.ask(request, 5).error_code, error, "error code of JoinGroup")
        expect(beat(conn, group, 1, "nobody"), ErrorCode.UNKNOWN_MEMBER_ID, "error code of Heartbeat")


@behaviour(PROTOCOL)
def a_second_member_starts_a_rebalance(run: Run) -> None:
    """REBALANCE_IN_PROGRESS in the first member's heartbeat; both rejoin and get the leader's assignments."""
    group = run.group()
    with coordinator_of(run, group) as first, coordinator_of(run, group) as second:
        alone = joined(first, group)
        expect(synced(first, group, alone, {alone.member_id: b"all"}).assignment, b"all", "share")
        expect(beat(first, group, alone.generation_id, alone.member_id), 0, "error code of Heartbeat")

        newcomer = second.ask(join_of(group), 5).member_id
        second.send(join_of(group, newcomer), 5)
        run.eventually(
            lambda: expect(
                beat(first, group, alone.generation_id, alone.member_id),
                ErrorCode.REBALANCE_IN_PROGRESS,
                "heartbeat",
            )
        )
        leader = first.ask(join_of(group, alone.member_id), 5)
        follower = second.answer()
        expect({leader.generation_id, follower.generation_id}, {alone.generation_id + 1}, "generation")
        members = {each.member_id for each in leader.members}
        expect(members, {alone.member_id, newcomer}, "members in the leader's answer")
        expect(follower.members, [], "members in the other's answer")

        shares = {alone.member_id: b"one half", newcomer: b"the other"}
        expect(synced(first, group, leader, shares).assignment, b"one half", "the leader's share")
        expect(synced(second, group, follower).assignment, b"the other", "the follower's share")
        late = beat(first, group, alone.generation_id, alone.member_id)
        expect(late, ErrorCode.ILLEGAL_GENERATION, "error code of the old generation")
        for member in members:
            expect(left(first, group, member), 0, "error code of LeaveGroup")


@behaviour(PROTOCOL)
def members_must_share_a_protocol_type(run: Run) -> None:
    """Another protocol type is INCONSISTENT_GROUP_PROTOCOL."""
    group = run.group()
    with coordinator_of(run, group) as conn:
        alone = joined(conn, group)
        synced(conn, group, alone, {alone.member_id: b""})
        answer = conn.ask(join_of(group, protocol_type="connect"), 5)
        expect(answer.error_code, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "error code")
        left(conn, group, alone.member_id)


@behaviour(PROTOCOL)
def a_static_member_gets_its_assignment_back(run: Run) -> None:
    """A rejoining static member starts no generation; its old member id is FENCED_INSTANCE_ID (KIP-345)."""
    group = run.group()
    with coordinator_of(run, group) as conn:
        first = conn.ask(join_of(group, instance="a"), 5)
        expect(first.error_code, 0, "error code of JoinGroup")
        synced(conn, group, first, {first.member_id: b"its share"})
        again = conn.ask(join_of(group, instance="a"), 5)
        expect((again.error_code, again.generation_id), (0, first.generation_id), "error code, generation")
        expect(synced(conn, group, again).assignment, b"its share", "share")
        old = beat(conn, group, first.generation_id, first.member_id, "a")
        expect(old, ErrorCode.FENCED_INSTANCE_ID, "error code of the member that was replaced")
        gone = MemberIdentity(group_instance_id="a")
        answer = conn.ask(LeaveGroupRequest(group_id=group, members=[gone]), 3)
        expect(answer.members[0].error_code, 0, "error code of LeaveGroup")


@behaviour(PROTOCOL)
def a_group_with_members_cannot_be_deleted(run: Run) -> None:
    """NON_EMPTY_GROUP; and a client that is no member cannot commit for it."""
    group, topic = run.group(), run.topic()
    with coordinator_of(run, group) as conn:
        alone = joined(conn, group)
        synced(conn, group, alone, {alone.member_id: b""})
        with run.refused(NON_EMPTY_GROUP):
            run.helper.call("delete_group", group=group)
        with run.refused("UNKNOWN_MEMBER_ID"):
            run.helper.commit(group, topic, {0: (1, "")})
        left(conn, group, alone.member_id)
