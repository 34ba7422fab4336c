"""Members come, go, die, lose answers and dawdle, topics come and grow; no partition is ever owned twice."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.broker.consumer_group_kit import FakeMember, FakeTopics, GroupInMemory, all_partitions, topic_id

from splashdam.embedded_broker.groups.consumer.group import TopicShape
from splashdam.embedded_broker.groups.consumer.member import MemberState

NAMES = ("a", "b", "c")
MEMBERS = st.integers(0, 3)
SOME_TOPICS = st.sets(st.sampled_from(NAMES), min_size=1)


class GroupMachine(RuleBasedStateMachine):
    """A group with up to four members, each of which may be anybody's fault."""

    @initialize(assignor=st.sampled_from(["uniform", "range"]))
    def begin(self, assignor: str) -> None:
        """Two topics and nobody."""
        self.topics = FakeTopics(a=3, b=4)
        self.group = GroupInMemory(self.topics, assignor)
        self.members: dict[int, FakeMember] = {}
        self.lives = 0

    @rule(number=MEMBERS, topics=SOME_TOPICS)
    def join(self, number: int, topics: set[str]) -> None:
        """Somebody comes."""
        if number not in self.members:
            member = FakeMember(self.group, f"m{number}-{len(self.group.log)}", topics)
            self.members[number] = member
            member.beat()

    @precondition(lambda self: self.members)
    @rule(number=MEMBERS, is_heard=st.booleans(), gives_up=st.booleans())
    def beat(self, number: int, is_heard: bool, gives_up: bool) -> None:
        """A heartbeat, whose answer may get lost, of somebody who may take its time."""
        if number in self.members and self.members[number].epoch:
            self.members[number].beat(is_heard=is_heard, gives_up=gives_up)
            if not is_heard:  # the client says all of it again
                self.members[number].beat(gives_up=False)

    @precondition(lambda self: self.members)
    @rule(number=MEMBERS, topics=SOME_TOPICS)
    def subscribe(self, number: int, topics: set[str]) -> None:
        """Somebody wants something else."""
        if number in self.members:
            self.members[number].topics = frozenset(topics)
            self.members[number].beat()

    @precondition(lambda self: self.members)
    @rule(number=MEMBERS, is_dead=st.booleans())
    def go(self, number: int, is_dead: bool) -> None:
        """Somebody leaves, or its session ends."""
        if number in self.members:
            member = self.members.pop(number)
            if is_dead:
                self.group.fence(member.member_id)
            else:
                member.leave()

    @rule(name=st.sampled_from(NAMES), count=st.integers(0, 6))
    def change_topic(self, name: str, count: int) -> None:
        """A topic comes, grows, goes, or is made anew."""
        known = self.topics.by_name.pop(name, None)
        if count and known is not None and count >= known.partitions:
            self.topics.by_name[name] = known._replace(partitions=count)
        elif count:
            self.lives += 1
            self.topics.by_name[name] = TopicShape(topic_id(name, self.lives), count)

    @invariant()
    def nothing_is_owned_twice(self) -> None:
        """Neither as the members see it nor as the group does."""
        owned = [each for member in self.members.values() for each in member.owned]
        assert len(owned) == len(set(owned))
        held = [each for member in self.group.group.members.values() for each in member.current.holds()]
        assert len(held) == len(set(held)) == len(self.group.group.holders)

    @invariant()
    def nobody_owns_what_the_group_does_not_know(self) -> None:
        """The group knows every partition that a member reads as held by it."""
        for member in self.members.values():
            known = self.group.group.members[member.member_id].current.holds()
            assert member.owned <= known.keys()

    @invariant()
    def the_log_says_the_same(self) -> None:
        """A broker that reads the records, all of them or compacted, knows what this one knows."""
        assert self.group.replayed() == self.group.group
        assert self.group.replayed(self.group.compacted()) == self.group.group

    def teardown(self) -> None:
        """Left alone, everybody gets its share of everything that it wants, within a few rounds."""
        if not getattr(self, "members", None):
            return
        for _ in range(8):
            for member in self.members.values():
                member.beat()
        group = self.group.group
        assert group.state == "Stable"
        assert all(each.current.state is MemberState.STABLE for each in group.members.values())
        wanted = frozenset[str]().union(*(each.topics for each in self.members.values()))
        everything = frozenset().union(*(each.owned for each in self.members.values()))
        assert everything == all_partitions(self.topics, wanted)
        for member in self.members.values():
            assert member.owned <= all_partitions(self.topics, member.topics)
        epoch = group.epoch
        for member in self.members.values():
            member.beat()
        assert self.group.group.epoch == epoch


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
