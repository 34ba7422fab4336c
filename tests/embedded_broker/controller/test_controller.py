"""The controller as a state machine: brokers come and go, leaders change the ISR, replicas are reassigned."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from splashdam.embedded_broker.controller.controller import Controller
from splashdam.embedded_broker.controller.election import moved
from splashdam.embedded_broker.controller.journal import Journal
from splashdam.embedded_broker.controller.producer_ids import ProducerIds
from splashdam.embedded_broker.controller.reassignment import begun, cancelled
from splashdam.embedded_broker.controller.state import (
    NOBODY,
    ClusterChange,
    ClusterState,
    IsrProposal,
    PartitionState,
)
from splashdam.model.broker_errors import BrokerResponseError
from splashdam.model.values import TopicPartition
from splashdam.storage.files.memory import MemoryFiles
from splashdam.storage.manager.topic_registry import NewTopic

NODES = (1, 2, 3, 4)
UNCLEAN = "unclean.leader.election.enable"
TOPICS = {"clean": {}, "unclean": {UNCLEAN: "true"}}
nodes, topics = st.sampled_from(NODES), st.sampled_from(sorted(TOPICS))


def is_unclean(configs: Mapping[str, str]) -> bool:
    """Whether the topic's options say so."""
    return configs.get(UNCLEAN) == "true"


@attrs.define(eq=False)
class Recorder:
    """A member that keeps what it is told."""

    node_id: int
    state: ClusterState = attrs.field(factory=ClusterState)
    epoch: int = -1

    def apply(self, change: ClusterChange) -> None:
        """Takes it in."""
        self.state.apply(change)


def expect(error: BrokerResponseError, *codes: int) -> None:
    """It is one of these."""
    assert error.code in codes, error


class ControllerMachine(RuleBasedStateMachine):
    """Four brokers, two topics of one partition each."""

    @initialize(seed=st.integers(0, 100))
    def begin(self, seed: int) -> None:
        """All brokers run."""
        self.files = MemoryFiles()
        self.files.make_directory("/c")
        self.controller = self.opened()
        self.members: dict[int, Recorder] = {}
        for node in NODES:
            self.start(node)
        wanted = [NewTopic(name, 1, configs, replication_factor=3) for name, configs in TOPICS.items()]
        self.controller.create_topics(wanted, dict)
        self.leaders: dict[tuple[TopicPartition, int], int] = {}
        self.seen = dict(self.controller.state.partitions)

    def opened(self) -> Controller:
        """A controller on the disk."""
        ids = ProducerIds(self.files, "/c", above=-1)
        self.journal = Journal(self.files, "/c")
        controller = Controller(self.journal, ids, is_unclean, Random(1))
        controller.begin(self.journal.read())
        return controller

    @rule(node=nodes)
    def start(self, node: int) -> None:
        """A broker that is down comes up, and one that is up comes up anew."""
        member = self.members[node] = Recorder(node)
        member.epoch = self.controller.register(member, {})

    @rule(node=nodes, orderly=st.booleans())
    def end(self, node: int, orderly: bool) -> None:
        """A broker ends."""
        member = self.members.pop(node, None)
        if member is not None:
            if orderly:
                self.controller.begin_shutdown(node, member.epoch)
            self.controller.leave(node, member.epoch)

    @rule(topic=topics, isr=st.lists(nodes, unique=True), behind=st.sampled_from([0, 0, 0, 1, -1]))
    def alter(self, topic: str, isr: list[int], behind: int) -> None:
        """The leader proposes another ISR."""
        where = TopicPartition(topic, 0)
        before = self.controller.state.partitions[where]
        member = self.members.get(before.leader)
        if member is None:
            assert before.leader == NOBODY
            return
        proposal = IsrProposal(tuple(isr), before.leader_epoch, before.partition_epoch - behind)
        answers = self.controller.alter_partitions(member.node_id, member.epoch, {where: proposal})
        after = answers[where]
        if isinstance(after, BrokerResponseError):
            expect(after, 41, 42, 95, 107, 108)
        else:
            assert behind == 0
            assert after.leader in after.isr

    @rule(topic=topics, replicas=st.lists(nodes, unique=True, min_size=1))
    def reassign(self, topic: str, replicas: list[int]) -> None:
        """Other replicas are wanted."""
        state, where = self.controller.state, TopicPartition(topic, 0)
        after = begun(state.partitions[where], replicas, state.is_eligible)
        self.controller.change_partitions({where: after})

    @rule(topic=topics)
    def cancel(self, topic: str) -> None:
        """The reassignment is called off."""
        state, where = self.controller.state, TopicPartition(topic, 0)
        try:
            after = cancelled(state.partitions[where], state.is_eligible)
        except BrokerResponseError as error:
            expect(error, 39, 85)
        else:
            self.controller.change_partitions({where: after})

    @rule(topic=topics, node=nodes)
    def move(self, topic: str, node: int) -> None:
        """Somebody else is to lead."""
        state, where = self.controller.state, TopicPartition(topic, 0)
        try:
            after = moved(state.partitions[where], node, state.is_eligible)
        except BrokerResponseError as error:
            expect(error, 107)
        else:
            self.controller.change_partitions({where: after})

    @rule()
    def restart_all(self) -> None:
        """All processes are killed and start again."""
        before = self.controller.state
        self.journal.close()
        self.controller = self.opened()
        assert self.controller.state.topics == before.topics
        for where, each in self.controller.state.partitions.items():
            assert each.replicas == before.partitions[where].replicas
            assert each.leader_epoch >= before.partitions[where].leader_epoch
        running, self.members = list(self.members), {}
        for node in running:
            self.start(node)
        self.controller.settle()

    @invariant()
    def holds(self) -> None:
        """The invariants."""
        state = self.controller.state
        for where, each in state.partitions.items():
            self.check_one(where, each)
            for node in each.isr:
                assert state.is_eligible(node) or len(each.isr) == 1 or where.topic == "unclean", each
            if each.leader == NOBODY:
                assert not any(map(state.is_eligible, each.isr))
        for member in self.members.values():
            assert member.state.partitions == state.partitions
            assert member.state.brokers == state.brokers

    def check_one(self, where: TopicPartition, now: PartitionState) -> None:
        """One leader in each epoch, in the ISR; epochs rise; the ISR is of the replicas."""
        before = self.seen[where]
        assert now.isr
        assert set(now.isr) <= set(now.replicas)
        assert set(now.adding_replicas) <= set(now.replicas)
        assert set(now.removing_replicas) <= set(now.replicas)
        assert now == before or now.partition_epoch > before.partition_epoch
        assert now.leader == before.leader or now.leader_epoch > before.leader_epoch
        assert now.leader_epoch >= before.leader_epoch
        if now.leader != NOBODY:
            assert now.leader in now.isr
            assert self.controller.state.is_eligible(now.leader)
            assert self.leaders.setdefault((where, now.leader_epoch), now.leader) == now.leader
        self.seen[where] = now


ControllerMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestController = ControllerMachine.TestCase


def test_isrs_of_one_question_are_one_change_each_with_its_own_answer() -> None:
    """A refused change does not affect the others, and all are written to the disk at once."""
    files = MemoryFiles()
    files.make_directory("/c")
    journal = Journal(files, "/c")
    controller = Controller(journal, ProducerIds(files, "/c", above=-1), is_unclean, Random(1))
    controller.begin(journal.read())
    epochs = {node: controller.register(Recorder(node), {}) for node in (1, 2, 3)}
    controller.create_topics([NewTopic("t", 4, {}, assignments=[(1, 2, 3)] * 3 + [(2, 3, 1)])], dict)
    where = [TopicPartition("t", number) for number in range(4)]
    before, changes = dict(controller.state.partitions), controller.changes
    answers = controller.alter_partitions(
        1,
        epochs[1],
        {
            where[0]: IsrProposal((1,), 0, 0),
            where[1]: IsrProposal((1, 2), 0, 1),
            where[2]: IsrProposal((1, 3), 0, 0),
            where[3]: IsrProposal((1, 2), 0, 0),
            TopicPartition("unknown", 0): IsrProposal((1,), 0, 0),
        },
    )
    codes = [each.code if isinstance(each, BrokerResponseError) else each.isr for each in answers.values()]
    assert codes == [(1,), 41, (1, 3), 42, 3]
    assert controller.changes == changes + 1
    assert Journal(files, "/c").read().partitions == controller.state.partitions
    assert [controller.state.partitions[each] == before[each] for each in where] == [False, True, False, True]
