"""Members of a group, as the classic protocol has them."""

from __future__ import annotations

import struct

from splashdam.testing.contract.behaviour import Run, behaviour, expect
from splashdam.testing.contract.conversation import Conversation, coordinator_of
from splashdam.testing.contract.vocabulary import SPEAK
from splashdam.wire.messages.heartbeat import HeartbeatRequest
from splashdam.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from splashdam.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from splashdam.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

ILLEGAL_GENERATION = 22
INCONSISTENT_GROUP_PROTOCOL = 23
INVALID_GROUP_ID = 24
UNKNOWN_MEMBER = 25
INVALID_SESSION_TIMEOUT = 26
REBALANCE_IN_PROGRESS = 27
NON_EMPTY_GROUP = "NON_EMPTY_GROUP"
MEMBER_ID_REQUIRED = 79
FENCED_INSTANCE_ID = 82

SESSION_TIMEOUT_MS = 30_000
SUBSCRIPTION = struct.pack(">hii", 0, 0, -1)
"""What an assignor is told: version 0, no topics, no data. Kafka reads it."""


def join_of(
    group: str,
    member: str = "",
    *,
    instance: str | None = None,
    session_timeout_ms: int = SESSION_TIMEOUT_MS,
    protocol_type: str = "consumer",
) -> JoinGroupRequest:
    """A request of a member that knows one assignor."""
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=10_000,
        member_id=member,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
    )


def joined(talk: Conversation, group: str) -> JoinGroupResponse:
    """A member that has joined; alone, or as the last of those who were waited for."""
    member = talk.ask(join_of(group), 5).member_id
    answer = talk.ask(join_of(group, member), 5)
    expect(answer.error_code, 0, "error code of JoinGroup")
    return answer


def synced(
    talk: Conversation, group: str, who: JoinGroupResponse, shares: dict[str, bytes] | None = None
) -> SyncGroupResponse:
    """Hears the share of a member; the leader tells those of all."""
    request = SyncGroupRequest(
        group_id=group,
        generation_id=who.generation_id,
        member_id=who.member_id,
        assignments=[
            SyncGroupRequestAssignment(member_id=member, assignment=share)
            for member, share in (shares or {}).items()
        ],
    )
    return talk.ask(request, 3)


def beat(talk: Conversation, group: str, generation: int, member: str, instance: str | None = None) -> int:
    """The error code of a heartbeat."""
    request = HeartbeatRequest(
        group_id=group, generation_id=generation, member_id=member, group_instance_id=instance
    )
    return talk.ask(request, 3).error_code


def left(talk: Conversation, group: str, member: str) -> int:
    """The error code of a member that leaves."""
    answer = talk.ask(LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=member)]), 3)
    return answer.members[0].error_code


@behaviour(SPEAK)
def a_member_is_given_its_id_first(run: Run) -> None:
    """MEMBER_ID_REQUIRED and an id, with which it joins (KIP-394)."""
    group = run.group()
    with coordinator_of(run, group) as talk:
        first = talk.ask(join_of(group), 5)
        expect((first.error_code, first.member_id != ""), (MEMBER_ID_REQUIRED, True), "the first answer")
        second = talk.ask(join_of(group, first.member_id), 5)
        expect((second.error_code, second.leader), (0, first.member_id), "error code and leader")
        expect(left(talk, group, first.member_id), 0, "error code of LeaveGroup")


@behaviour(SPEAK)
def what_a_member_says_is_checked(run: Run) -> None:
    """The group's name, the session's time, the member's id."""
    group = run.group()
    with coordinator_of(run, group) as talk:
        wrong = {
            INVALID_GROUP_ID: join_of(""),
            INVALID_SESSION_TIMEOUT: join_of(group, session_timeout_ms=1),
            UNKNOWN_MEMBER: join_of(group, "nobody"),
        }
        for error, request in wrong.items():
            expect(talk.ask(request, 5).error_code, error, "error code of JoinGroup")
        expect(beat(talk, group, 1, "nobody"), UNKNOWN_MEMBER, "error code of Heartbeat")


@behaviour(SPEAK)
def a_second_member_makes_the_group_share_anew(run: Run) -> None:
    """The first hears of it in its heartbeat, both join again, and the leader's shares reach both."""
    group = run.group()
    with coordinator_of(run, group) as first, coordinator_of(run, group) as second:
        alone = joined(first, group)
        expect(synced(first, group, alone, {alone.member_id: b"all"}).assignment, b"all", "share")
        expect(beat(first, group, alone.generation_id, alone.member_id), 0, "error code of Heartbeat")

        newcomer = second.ask(join_of(group), 5).member_id
        second.send(join_of(group, newcomer), 5)
        run.eventually(
            lambda: expect(
                beat(first, group, alone.generation_id, alone.member_id), REBALANCE_IN_PROGRESS, "heartbeat"
            )
        )
        leader = first.ask(join_of(group, alone.member_id), 5)
        follower = second.answer()
        expect({leader.generation_id, follower.generation_id}, {alone.generation_id + 1}, "generation")
        members = {each.member_id for each in leader.members}
        expect(members, {alone.member_id, newcomer}, "members that the leader hears of")
        expect(follower.members, [], "members that the other hears of")

        shares = {alone.member_id: b"one half", newcomer: b"the other"}
        expect(synced(first, group, leader, shares).assignment, b"one half", "the leader's share")
        expect(synced(second, group, follower).assignment, b"the other", "the follower's share")
        late = beat(first, group, alone.generation_id, alone.member_id)
        expect(late, ILLEGAL_GENERATION, "error code of the old generation")
        for member in members:
            expect(left(first, group, member), 0, "error code of LeaveGroup")


@behaviour(SPEAK)
def members_must_have_something_in_common(run: Run) -> None:
    """One of another protocol type is INCONSISTENT_GROUP_PROTOCOL."""
    group = run.group()
    with coordinator_of(run, group) as talk:
        alone = joined(talk, group)
        synced(talk, group, alone, {alone.member_id: b""})
        answer = talk.ask(join_of(group, protocol_type="connect"), 5)
        expect(answer.error_code, INCONSISTENT_GROUP_PROTOCOL, "error code")
        left(talk, group, alone.member_id)


@behaviour(SPEAK)
def a_static_member_comes_back_to_its_share(run: Run) -> None:
    """Without a new generation; who had its place before is FENCED_INSTANCE_ID (KIP-345)."""
    group = run.group()
    with coordinator_of(run, group) as talk:
        first = talk.ask(join_of(group, instance="a"), 5)
        expect(first.error_code, 0, "error code of JoinGroup")
        synced(talk, group, first, {first.member_id: b"its share"})
        again = talk.ask(join_of(group, instance="a"), 5)
        expect((again.error_code, again.generation_id), (0, first.generation_id), "error code, generation")
        expect(synced(talk, group, again).assignment, b"its share", "share")
        old = beat(talk, group, first.generation_id, first.member_id, "a")
        expect(old, FENCED_INSTANCE_ID, "error code of the member that was replaced")
        gone = MemberIdentity(group_instance_id="a")
        answer = talk.ask(LeaveGroupRequest(group_id=group, members=[gone]), 3)
        expect(answer.members[0].error_code, 0, "error code of LeaveGroup")


@behaviour(SPEAK)
def a_group_with_members_cannot_be_deleted(run: Run) -> None:
    """NON_EMPTY_GROUP, and nobody else commits for it."""
    group, topic = run.group(), run.topic()
    with coordinator_of(run, group) as talk:
        alone = joined(talk, group)
        synced(talk, group, alone, {alone.member_id: b""})
        with run.refused(NON_EMPTY_GROUP):
            run.helper.call("delete_group", group=group)
        with run.refused("UNKNOWN_MEMBER_ID"):
            run.helper.commit(group, topic, {0: (1, "")})
        left(talk, group, alone.member_id)
