"""Members of a group of the new protocol (KIP-848), whose coordinator assigns the partitions."""

from __future__ import annotations

from secrets import token_urlsafe
from typing import Any

from splashdam.model.broker_errors import ErrorCode
from splashdam.testing.contract.behaviour import Run, behaviour, expect
from splashdam.testing.contract.raw_connection import RawConnection, coordinator_of
from splashdam.testing.contract.vocabulary import NOT_IN_CLIENT, PROTOCOL, Refused
from splashdam.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)


class Member:
    """A member that takes and gives up partitions as soon as the coordinator says so.

    Args:
        conn: connection to the coordinator.
        group: group id.
        topic: the topic it subscribes to.
    """

    def __init__(self, conn: RawConnection, group: str, topic: str) -> None:
        conn.version_of(ConsumerGroupHeartbeatRequest)
        self._connection = conn
        self._group = group
        self._topic = topic
        self.member_id = token_urlsafe(16)
        self.epoch = 0
        self.owned: list[TopicPartitions] = []

    @property
    def partitions(self) -> list[int]:
        """Numbers of the partitions it owns."""
        return sorted(number for each in self.owned for number in each.partitions)

    def ask(self, **changes: Any) -> ConsumerGroupHeartbeatResponse:
        """Send a full heartbeat; ``changes`` replace its fields."""
        fields = {
            "group_id": self._group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": [self._topic],
            "topic_partitions": self.owned,
        }
        answer = self._connection.ask(ConsumerGroupHeartbeatRequest(**{**fields, **changes}))
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            raise Refused(NOT_IN_CLIENT, "the cluster has this protocol switched off")
        return answer

    def beat(self) -> list[int]:
        """Send a heartbeat that must succeed, and return the partitions it owns then."""
        answer = self.ask()
        expect(answer.error_code, 0, f"error code of ConsumerGroupHeartbeat ({answer.error_message})")
        self.member_id, self.epoch = answer.member_id or self.member_id, answer.member_epoch
        if answer.assignment is not None:
            self.owned = answer.assignment.topic_partitions
        return self.partitions

    def leave(self) -> None:
        """Leave the group."""
        expect(self.ask(member_epoch=-1).error_code, 0, "error code of a member that leaves")


def need_this_protocol(run: Run) -> None:
    """Send one heartbeat.

    Raises:
        Refused: the cluster does not have this protocol, or has it switched off.
    """
    group = run.group()
    with coordinator_of(run, group) as conn:
        Member(conn, group, "").ask(subscribed_topic_names=None)


@behaviour(PROTOCOL)
def the_coordinator_shares_out_the_partitions(run: Run) -> None:
    """A second member gets its half once the first has given it up, and the first gets it back at the end."""
    topic, group = run.topic(partitions=4), run.group()
    with coordinator_of(run, group) as conn:
        first, second = Member(conn, group, topic), Member(conn, group, topic)
        run.eventually(lambda: expect(first.beat(), [0, 1, 2, 3], "partitions of the first"))
        expect(second.beat(), [], "partitions of the second at once")

        def shared() -> None:
            halves = (len(first.beat()), len(second.beat()))
            expect(halves, (2, 2), "numbers of partitions")

        run.eventually(shared)
        expect(sorted(first.partitions + second.partitions), [0, 1, 2, 3], "partitions of both")
        second.leave()
        run.eventually(lambda: expect(first.beat(), [0, 1, 2, 3], "partitions of the first, alone again"))
        first.leave()


@behaviour(PROTOCOL)
def epochs_of_members_are_checked(run: Run) -> None:
    """An epoch above the group's is FENCED_MEMBER_EPOCH, an unknown member UNKNOWN_MEMBER_ID."""
    topic, group = run.topic(), run.group()
    with coordinator_of(run, group) as conn:
        member = Member(conn, group, topic)
        member.beat()
        expect(
            member.ask(member_epoch=1000).error_code,
            ErrorCode.FENCED_MEMBER_EPOCH,
            "error code of a later epoch",
        )
        stranger = member.ask(member_id=token_urlsafe(16), member_epoch=1)
        expect(stranger.error_code, ErrorCode.UNKNOWN_MEMBER_ID, "error code of a stranger")
        member.leave()


@behaviour(PROTOCOL)
def first_heartbeats_are_validated(run: Run) -> None:
    """A missing subscription, a wrong rebalance timeout and an unknown assignor are refused."""
    topic, group = run.topic(), run.group()
    with coordinator_of(run, group) as conn:
        member = Member(conn, group, topic)
        answer = member.ask(subscribed_topic_names=None)
        expect(answer.error_code, ErrorCode.INVALID_REQUEST, "error code without topics")
        answer = member.ask(rebalance_timeout_ms=-1)
        expect(answer.error_code, ErrorCode.INVALID_REQUEST, "error code without a rebalance time-out")
        answer = member.ask(server_assignor="chance")
        expect(answer.error_code, ErrorCode.UNSUPPORTED_ASSIGNOR, "error code of an unknown assignor")


@behaviour(PROTOCOL)
def members_of_the_new_protocol_protect_their_group(run: Run) -> None:
    """While the group has members, no other client deletes it or commits for it."""
    topic, group = run.topic(), run.group()
    with coordinator_of(run, group) as conn:
        member = Member(conn, group, topic)
        member.beat()
        with run.refused("NON_EMPTY_GROUP"):
            run.helper.call("delete_group", group=group)
        with run.refused("UNKNOWN_MEMBER_ID"):
            run.helper.commit(group, topic, {0: (1, "")})
        member.leave()
        run.helper.commit(group, topic, {0: (1, "")})
