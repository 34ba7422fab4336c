"""Random members, timers, refusing disks and restarts: what always holds of a classic group, without I/O."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import pytest
from hypothesis import settings as budget
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.running.examples import examples

from splashdam.embedded_broker.configs.broker_settings import BrokerSettings
from splashdam.embedded_broker.configs.groups import GroupSettings
from splashdam.embedded_broker.groups.classic.join_group import join
from splashdam.embedded_broker.groups.classic.members import (
    AssignorProtocol,
    JoinRequest,
    JoinResult,
    SyncResult,
)
from splashdam.embedded_broker.groups.classic.membership import (
    TRANSITIONS,
    ClassicMembership,
    GroupEvent,
    GroupState,
)
from splashdam.embedded_broker.groups.timers import Timers
from splashdam.model.broker_errors import BrokerResponseError, NotCoordinatorError
from splashdam.model.errors import IllegalStateError
from splashdam.model.lifecycle import next_state

SUBSCRIPTION = b"\0\0" + b"\0\0\0\1" + b"\0\1t" + b"\xff\xff\xff\xff"
SESSION_MS, REBALANCE_MS = 10_000, 30_000


class MemoryHost:
    """Time that stands still until it is told to go on, and a log that is a list."""

    def __init__(self) -> None:
        self.settings = BrokerSettings(groups=GroupSettings(group_max_size=4))
        self.timers = Timers()
        self.time_ms = 0.0
        self.refuses = False
        self.log: list[tuple[bytes, bytes | None]] = []
        self._ids = count()

    def now_ms(self) -> float:
        """The time."""
        return self.time_ms

    def wall_ms(self) -> int:
        """The same."""
        return int(self.time_ms)

    def new_id(self) -> str:
        """A number."""
        return str(next(self._ids))

    def append(self, group_id: str, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Keeps them, or not."""
        if self.refuses:
            raise NotCoordinatorError("the disk is full")
        self.log += records

    def advance(self, by_ms: float) -> None:
        """Time goes by, in steps of what is due."""
        end_ms = self.time_ms + by_ms
        while self.timers.next_ms <= end_ms:
            self.time_ms = max(self.time_ms, self.timers.next_ms)
            self.timers.step(self.time_ms)
        self.time_ms = end_ms


class Client:
    """The state of one client: its id, its generation, and the answer that it waits for."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.instance_id = f"i{number}" if number >= 3 else None
        self.member_id = ""
        self.generation_id = -1
        self.waits = ""
        self.asked_at_ms = 0.0
        self.share: bytes | None = None
        self.leads: tuple[str, ...] = ()

    def joined(self, result: JoinResult) -> None:
        """Takes the answer in, as a client does."""
        assert self.waits == "join"
        self.waits = ""
        if result.error_code == 79:
            self.member_id = result.member_id
        elif result.error_code:
            self.member_id = "" if result.error_code in {25, 82} else self.member_id
            self.generation_id = -1
        else:
            assert result.protocol_name in {"range", "sticky"}
            self.member_id, self.generation_id = result.member_id, result.generation_id
            self.leads = tuple(each.member_id for each in result.members)

    def synced(self, result: SyncResult) -> None:
        """Likewise."""
        assert self.waits == "sync"
        self.waits = ""
        self.share = result.assignment if not result.error_code else None


clients = st.integers(0, 5)
assignors = st.sampled_from([("range",), ("sticky", "range"), ("range", "sticky"), ("sticky",)])


class ClassicMachine(RuleBasedStateMachine):
    """Three clients with an instance id, three without."""

    @initialize()
    def begin(self) -> None:
        """A group that nobody has joined."""
        self.host = MemoryHost()
        self.membership = ClassicMembership.create("g", self.host)
        self.clients = [Client(number) for number in range(6)]
        self.highest = 0

    @rule(
        number=clients,
        protocols=assignors,
    )
    def join(self, number: int, protocols: tuple[str, ...]) -> None:
        """A client that waits for nothing joins, or joins again."""
        client = self.clients[number]
        if client.waits:
            return
        client.waits, client.asked_at_ms = "join", self.host.time_ms
        request = JoinRequest(
            client.member_id,
            client.instance_id,
            "c",
            "/h",
            REBALANCE_MS,
            SESSION_MS,
            "consumer",
            tuple(AssignorProtocol(name, SUBSCRIPTION) for name in protocols),
        )
        join(self.membership, request, client.joined)

    @rule(number=clients)
    def sync(self, number: int) -> None:
        """A client that has joined asks for its share."""
        client = self.clients[number]
        if client.waits or client.generation_id < 0:
            return
        client.waits, client.asked_at_ms = "sync", self.host.time_ms
        try:
            self.membership.validate(client.generation_id, client.member_id, client.instance_id)
            shares = {member_id: member_id.encode() for member_id in client.leads}
            self.membership.sync(client.member_id, shares, client.synced)
        except BrokerResponseError:
            client.waits = ""

    @rule(number=clients)
    def heartbeat(self, number: int) -> None:
        """Refused or not, it changes nobody's answers."""
        client = self.clients[number]
        code = 0
        try:
            self.membership.heartbeat(client.generation_id, client.member_id, client.instance_id)
        except BrokerResponseError as error:
            code = error.code
        assert code in {0, 22, 25, 27, 82}

    @rule(number=clients)
    def leave(self, number: int) -> None:
        """The request that waits with this id is answered."""
        client = self.clients[number]
        try:
            self.membership.leave(client.member_id, client.instance_id)
        except BrokerResponseError:
            return
        self.membership.left()
        assert client.waits != "join" or client.member_id not in self.membership.members.by_id

    @rule(number=clients)
    def forget(self, number: int) -> None:
        """A client dies, and its successor knows nothing: what its former self waited for is nobody's."""
        self.clients[number] = Client(number)

    @rule(by_ms=st.sampled_from([100, 3000, 9000, 31_000, 400_000]))
    def wait(self, by_ms: int) -> None:
        """Time passes."""
        self.host.advance(by_ms)

    @rule(refuses=st.booleans())
    def disk(self, refuses: bool) -> None:
        """It refuses from now on, or no longer."""
        self.host.refuses = refuses

    @rule()
    def restart(self) -> None:
        """Clients are told to look for the coordinator, which reads the log."""
        self.membership.dismiss(16)
        assert len(self.host.timers) == 0
        assert not any(each.waits for each in self.clients)
        _, value = self.host.log[-1]
        assert value is not None
        self.membership = ClassicMembership.from_record("g", self.host, value)
        self.membership.loaded()
        self.highest = self.membership.generation_id

    @invariant()
    def the_roster_agrees_with_itself(self) -> None:
        """Leader, waiting members, pending ids and timers belong together."""
        members, state = self.membership.members, self.membership.state
        assert (members.leader in members.by_id) == bool(members.by_id)
        assert members.joins.keys() <= members.by_id.keys()
        assert members.syncs.keys() <= members.by_id.keys()
        assert not members.pending & members.by_id.keys()
        assert bool(members.joins) <= (state is GroupState.PREPARING_REBALANCE)
        assert bool(members.syncs) <= (state is GroupState.COMPLETING_REBALANCE)
        assert state is not GroupState.EMPTY or not members.by_id
        assert len(members) <= self.host.settings.groups.group_max_size + len(members.joins)

    @invariant()
    def generations_only_grow(self) -> None:
        """In the memory of one coordinator."""
        assert self.membership.generation_id >= self.highest
        self.highest = self.membership.generation_id

    @invariant()
    def nobody_waits_for_ever(self) -> None:
        """Joins and syncs end with the rebalance timeouts; one that was never answered after five minutes."""
        for client in self.clients:
            if client.waits:
                assert self.host.time_ms - client.asked_at_ms <= 400_000

    @invariant()
    def shares_are_of_their_owners(self) -> None:
        """A stable group answers with its leader's assignment."""
        if self.membership.state is GroupState.STABLE:
            for member in self.membership.members.by_id.values():
                assert member.instance_id or member.assignment in {b"", member.member_id.encode()}

    @invariant()
    def somebody_is_waited_for_by_a_timer(self) -> None:
        """While members are in or ids are out, time alone brings the group on."""
        members = self.membership.members
        if members.by_id or members.pending:
            assert len(self.host.timers) > 0


TestClassicMachine = ClassicMachine.TestCase
TestClassicMachine.settings = budget(max_examples=examples(60), stateful_step_count=40, deadline=None)


def test_every_state_ends_and_others_follow_the_table() -> None:
    """A transition that is not in the table is refused, with both names."""
    for state in GroupState:
        assert next_state(TRANSITIONS, state, GroupEvent.END, "g") is GroupState.DEAD
    with pytest.raises(IllegalStateError, match="STABLE cannot JOIN"):
        next_state(TRANSITIONS, GroupState.STABLE, GroupEvent.JOIN, "group 'g'")
