"""The controller: one for all brokers of a cluster, in their process and loop; calls instead of requests.

A change is decided by pure functions, made durable, and takes effect; then the brokers are told, in the order
of what happened. Nothing here waits. A broker that is alone has a controller of its own, whose topics are
those of the broker's directory.

What a leader must get right when it says who is in sync; the order of the checks is KRaft's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random

import attrs

from splashdam.embedded_broker.answering.answers import Address
from splashdam.embedded_broker.controller import assignment
from splashdam.embedded_broker.controller.committing import Committing, Member
from splashdam.embedded_broker.controller.election import IsEligible, changed, without_broker
from splashdam.embedded_broker.controller.journal import Keeps
from splashdam.embedded_broker.controller.producer_ids import HandsOutIds
from splashdam.embedded_broker.controller.reassignment import advanced
from splashdam.embedded_broker.controller.state import (
    NOBODY,
    BrokerState,
    ClusterChange,
    ClusterState,
    IsrAnswer,
    IsrProposal,
    PartitionState,
    Resource,
)
from splashdam.model.broker_errors import (
    BrokerResponseError,
    ErrorCode,
    FencedLeaderEpochError,
    InvalidRequestError,
    UnknownTopicOrPartitionError,
    error_for,
)
from splashdam.model.log_text import quoted
from splashdam.model.values import TopicPartition
from splashdam.storage.directories.partition_metadata import format_uuid, new_uuid
from splashdam.storage.manager.topic_registry import NewTopic, Topic

_log = logging.getLogger(__name__)

_CLUSTER = Resource("cluster", "")

IsUnclean = Callable[[Mapping[str, str]], bool]
"""Whether a topic with these options lets a replica lead that is not in sync."""


class Controller(Committing):
    """Who is in the cluster, which topics there are, who leads; it alone says so.

    Args:
        journal: keeps what must not be forgotten.
        producer_ids: hands out ids that are unique in the cluster.
        is_unclean: says what a topic's options say about unclean elections.
        random: draws the placement of new partitions.

    Attributes:
        state: what is the case; everybody may read it.
        producer_ids: as given.
        is_alone: there is one broker, and what it cannot do does not happen.
        has_ended: nothing changes any more.
    """

    def __init__(
        self, journal: Keeps, producer_ids: HandsOutIds, is_unclean: IsUnclean, random: Random | None = None
    ) -> None:
        super().__init__(journal)
        self.producer_ids = producer_ids
        self._is_unclean = is_unclean
        self._random = random or Random()

    def begin(self, kept: ClusterState) -> None:
        """Begins with what was kept; once, before any broker registers.

        All brokers are down then, and were so together: whoever led before leads again when it registers.
        When all that are to come have come, ``settle`` finds leaders for the rest.

        Raises:
            KafkaStorageError: the disk refuses.
        """
        self.state = kept
        if not self.cluster_id:
            self._commit(ClusterChange(resources={_CLUSTER: {"id": format_uuid(new_uuid())}}))
        down = {node: attrs.evolve(each, is_fenced=True) for node, each in self.state.brokers.items()}
        self.state.apply(ClusterChange(brokers=down))

    def settle(self) -> None:
        """Nobody else is coming: who is not here is down.

        Raises:
            KafkaStorageError: as ``leave``.
        """
        for broker in list(self.state.brokers.values()):
            if broker.is_fenced:
                self._take_leads(broker)

    @property
    def cluster_id(self) -> str:
        """The id of the cluster; "" before ``begin``, and where the directory of the only broker has it."""
        return self.state.resources.get(_CLUSTER, {}).get("id", "")

    # --- brokers --------------------------------------------------------------------------------------------

    @property
    def node_id(self) -> int:
        """The broker that is named as controller: the first that is alive, `NOBODY` where none is."""
        return next((node for node, each in sorted(self.state.brokers.items()) if not each.is_fenced), NOBODY)

    def register(self, member: Member, listeners: Mapping[str, Address], rack: str | None = None) -> int:
        """Takes in a broker that has just started, and tells it everything.

        It leads again where nobody else could meanwhile.

        Args:
            member: the broker; told of everything that happens until ``leave``.
            listeners: where clients reach it.
            rack: where it stands.

        Returns:
            Its broker epoch, which it names in what it asks.

        Raises:
            KafkaStorageError: it could not be kept.
        """
        node_id = member.node_id
        if node_id in self._members:
            self.leave(node_id, self.state.brokers[node_id].epoch)
        epoch = 1 + max((each.epoch for each in self.state.brokers.values()), default=0)
        broker = BrokerState(node_id, epoch, dict(listeners), rack=rack)
        self._commit(ClusterChange(brokers={node_id: broker}, partitions=self._led_again_by(node_id)))
        self._members[node_id] = member
        member.apply(self.state.as_change())
        self._commit(self._elections(self._leaderless_of(node_id)))
        return epoch

    def _led_again_by(self, node_id: int) -> dict[TopicPartition, PartitionState]:
        """What a broker led when all went down it leads in the next epoch."""
        if self.is_alone:
            return {}
        return {
            each: before._replace(
                leader_epoch=before.leader_epoch + 1, partition_epoch=before.partition_epoch + 1
            )
            for each, before in self.state.partitions.items()
            if before.leader == node_id
        }

    def end(self) -> None:
        """All brokers end now, together: who leads what stays as it is for the next start."""
        self.has_ended = True

    def leave(self, node_id: int, broker_epoch: int) -> None:
        """A broker has ended, however: it is told nothing any more, and others lead what it led.

        Raises:
            KafkaStorageError: that could not be kept; it counts all the same, until all brokers have ended.
        """
        broker = self.state.brokers.get(node_id)
        if broker is not None and broker.epoch == broker_epoch and not self.has_ended:
            self._members.pop(node_id, None)
            self.fence(node_id)

    def fence(self, node_id: int) -> None:
        """A broker is down, or not heard of: others lead what it led.

        Raises:
            KafkaStorageError: as ``leave``.
        """
        broker = self.state.brokers[node_id]
        if not broker.is_fenced:
            self._take_leads(attrs.evolve(broker, is_fenced=True, is_shutting_down=False))

    def begin_shutdown(self, node_id: int, broker_epoch: int) -> bool:
        """A broker is about to end in order: its leads move first, where others are in sync.

        Returns:
            Whether it leads nothing any more.

        Raises:
            BrokerResponseError: STALE_BROKER_EPOCH (77); KafkaStorageError.
        """
        broker = self._registered(node_id, broker_epoch)
        self._take_leads(attrs.evolve(broker, is_shutting_down=True))
        return all(each.leader != node_id for each in self.state.partitions.values())

    def lose_replicas(self, node_id: int, topic_partitions: Iterable[TopicPartition]) -> None:
        """The disk below some replicas of a broker has failed: others lead what it led.

        Raises:
            KafkaStorageError: as ``leave``.
        """
        partitions = {}
        for topic_partition in topic_partitions:
            before = self.state.partitions.get(topic_partition)
            if before is not None and node_id in (before.leader, *before.isr):
                partitions[topic_partition] = self._without(before, node_id, topic_partition)
        self._commit(ClusterChange(partitions=partitions))

    def _without(self, before: PartitionState, node_id: int, where: TopicPartition) -> PartitionState:
        return without_broker(
            before,
            node_id,
            lambda node: node != node_id and self.state.is_eligible(node),
            unclean=self._unclean(where),
        )

    def _take_leads(self, broker: BrokerState) -> None:
        """The broker is not eligible any more."""
        node_id = broker.node_id
        partitions = {}
        for topic_partition, before in self.state.partitions.items():
            if node_id == before.leader or node_id in before.isr:
                after = self._without(before, node_id, topic_partition)
                if broker.is_fenced or after.leader != NOBODY:  # one that ends in order leads to its end
                    partitions[topic_partition] = after
        self._commit(ClusterChange(brokers={node_id: broker}, partitions=partitions))

    def _registered(self, node_id: int, broker_epoch: int) -> BrokerState:
        broker = self.state.brokers.get(node_id)
        if broker is None or broker.epoch != broker_epoch or broker.is_fenced:
            raise error_for(ErrorCode.STALE_BROKER_EPOCH, f"node {node_id} is not in epoch {broker_epoch}")
        return broker

    # --- partitions -----------------------------------------------------------------------------------------

    def partition(self, topic_partition: TopicPartition) -> PartitionState:
        """Who keeps and leads a partition.

        Raises:
            UnknownTopicOrPartitionError: there is none.
        """
        found = self.state.partitions.get(topic_partition)
        if found is None:
            raise UnknownTopicOrPartitionError(f"there is no partition {quoted(str(topic_partition))}")
        return found

    def alter_partitions(
        self, node_id: int, broker_epoch: int, proposals: Mapping[TopicPartition, IsrProposal]
    ) -> dict[TopicPartition, IsrAnswer]:
        """Takes the ISRs that a leader proposes, and completes reassignments that waited for them.

        All that it may say happens at once, as one change that is made durable once.

        Args:
            node_id: the leader.
            broker_epoch: what ``register`` answered it.
            proposals: by partition.

        Returns:
            For each partition its state from now on, of which members hear, too; or why it stays as it was:
            UNKNOWN_TOPIC_OR_PARTITION (3), NOT_CONTROLLER (41): epochs of the future, FENCED_LEADER_EPOCH
            (74), INVALID_REQUEST (42): not the leader, or no legal ISR, INVALID_UPDATE_VERSION (95): it goes
            by an older state, INELIGIBLE_REPLICA (107): somebody is down; or NEW_LEADER_ELECTED (108): done,
            and with it another one leads.

        Raises:
            BrokerResponseError: STALE_BROKER_EPOCH (77); KafkaStorageError: nothing has changed.
        """
        self._registered(node_id, broker_epoch)
        answers: dict[TopicPartition, IsrAnswer] = {}
        changes: dict[TopicPartition, PartitionState] = {}
        for topic_partition, proposal in proposals.items():
            try:
                before = self.partition(topic_partition)
                after = self._with_isr(topic_partition, before, node_id, proposal)
            except BrokerResponseError as error:
                answers[topic_partition] = error
                continue
            answers[topic_partition] = after
            if after is not before:
                changes[topic_partition] = after
        self._commit(ClusterChange(partitions=changes))
        for topic_partition, after in changes.items():
            if after.leader != node_id:
                answers[topic_partition] = error_for(
                    ErrorCode.NEW_LEADER_ELECTED, f"{topic_partition} is led by {after.leader}"
                )
        return answers

    def _with_isr(
        self, where: TopicPartition, before: PartitionState, node_id: int, proposal: IsrProposal
    ) -> PartitionState:
        check_epochs(before, node_id, proposal.leader_epoch, proposal.partition_epoch)
        check_isr(before, proposal.isr, self.state.is_eligible)
        return advanced(before, before, proposal.isr, self.state.is_eligible, unclean=self._unclean(where))

    def change_partitions(self, partitions: Mapping[TopicPartition, PartitionState]) -> None:
        """Gives partitions states that pure functions have made of their present ones, all at once.

        Raises:
            KafkaStorageError: nothing has changed.
        """
        state = self.state.partitions
        self._commit(
            ClusterChange(
                partitions={each: after for each, after in partitions.items() if after != state[each]}
            )
        )

    def _elections(self, topic_partitions: Iterable[TopicPartition]) -> ClusterChange:
        """Leaders where there is none, as far as somebody may."""
        partitions = {}
        for each in topic_partitions:
            before = self.state.partitions[each]
            after = changed(before, self.state.is_eligible, unclean=self._unclean(each))
            if after is not before:
                partitions[each] = after
        return ClusterChange(partitions=partitions)

    def _leaderless_of(self, node_id: int) -> list[TopicPartition]:
        return [
            topic_partition
            for topic_partition, each in self.state.partitions.items()
            if each.leader == NOBODY and node_id in each.replicas
        ]

    def _unclean(self, topic_partition: TopicPartition) -> bool:
        return self._is_unclean(self.state.topics[topic_partition.topic].configs)

    # --- topics and what else is shared ---------------------------------------------------------------------

    def create_topics(
        self,
        wanted: Sequence[NewTopic],
        check_configs: Callable[[Mapping[str, str]], object],
        default_replication_factor: int = 1,
        *,
        validate_only: bool = False,
    ) -> list[Topic]:
        """Makes topics, all or none, and returns them as they are (or would be).

        Raises:
            BrokerResponseError: as ``assignment.created``; KafkaStorageError.
        """
        change = assignment.created(
            wanted, self.state, check_configs, default_replication_factor, self._random
        )
        if not validate_only:
            self._commit(change)
        return list(change.topics.values())

    def create_partitions(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] = (),
        *,
        validate_only: bool = False,
    ) -> None:
        """More partitions for a topic, ``count`` in all.

        Raises:
            BrokerResponseError: as ``assignment.extended``; KafkaStorageError.
        """
        change = assignment.extended(self.state, name, count, assignments, self._random)
        if not validate_only:
            self._commit(change)

    def configure_topic(self, name: str, configs: Mapping[str, str]) -> None:
        """Replaces a topic's options, which the caller has checked.

        Raises:
            UnknownTopicOrPartitionError: there is none.
            KafkaStorageError: nothing has changed.
        """
        self._commit(assignment.configured(self.state, name, configs))

    def delete_topic(self, name: str) -> None:
        """Deletes a topic.

        Raises:
            UnknownTopicOrPartitionError: there is none.
            KafkaStorageError: the disk refuses.
        """
        self._commit(assignment.deleted(self.state, name))

    def put_resources(self, resources: Mapping[Resource, Mapping[str, str]]) -> None:
        """Replaces options that all brokers share (of brokers, users, quotas…); none at all: nothing is kept.

        Raises:
            KafkaStorageError: nothing has changed.
        """
        self._commit(ClusterChange(resources=resources))


def check_epochs(before: PartitionState, node_id: int, leader_epoch: int, partition_epoch: int) -> None:
    """Whether a broker leads a partition, and goes by its present state.

    Raises:
        BrokerResponseError: NOT_CONTROLLER (41): epochs of the future; FENCED_LEADER_EPOCH (74);
            INVALID_REQUEST (42): it does not lead; INVALID_UPDATE_VERSION (95): it goes by an older state.
    """
    if leader_epoch > before.leader_epoch or partition_epoch > before.partition_epoch:
        raise error_for(ErrorCode.NOT_CONTROLLER, "the epochs are ahead of the controller's")
    if leader_epoch < before.leader_epoch:
        raise FencedLeaderEpochError(f"the leader epoch is {before.leader_epoch}, not {leader_epoch}")
    if node_id != before.leader:
        raise InvalidRequestError(f"node {before.leader} leads, not {node_id}")
    if partition_epoch < before.partition_epoch:
        raise error_for(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"the partition epoch is {before.partition_epoch}, not {partition_epoch}",
        )


def check_isr(before: PartitionState, new_isr: Sequence[int], is_eligible: IsEligible) -> None:
    """Whether a partition may have this ISR.

    Raises:
        BrokerResponseError: INVALID_REQUEST (42): it is none, or is without the leader; INELIGIBLE_REPLICA
            (107): somebody who would join is down, or about to end.
    """
    is_legal = len(set(new_isr)) == len(new_isr) and set(new_isr) <= set(before.replicas)
    if not is_legal or before.leader not in new_isr:
        raise InvalidRequestError(f"{list(new_isr)} is no ISR of replicas {list(before.replicas)}")
    for node in new_isr:
        if node not in before.isr and not is_eligible(node):
            raise error_for(ErrorCode.INELIGIBLE_REPLICA, f"node {node} is down or about to end")
