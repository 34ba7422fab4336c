"""The controller: one for all brokers of a cluster, in their process and loop; calls instead of requests.

Pure functions decide on a change; it is made durable, takes effect, and is then applied by the brokers, all
changes in the same order. Nothing here waits. A single broker has a controller of its own, whose journal is
the broker's directory.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Protocol

import attrs

from splashdam.embedded_broker.controller.election import IsEligible, changed, without_broker
from splashdam.embedded_broker.controller.journal import ChangeStore, DirectoryJournal
from splashdam.embedded_broker.controller.producer_ids import ProducerIdSource
from splashdam.embedded_broker.controller.reassignment import advanced, check_replicas
from splashdam.embedded_broker.controller.replica_placement import placed
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
from splashdam.embedded_broker.execution.answers import Address
from splashdam.model.broker_errors import (
    BrokerResponseError,
    ErrorCode,
    FencedLeaderEpochError,
    InvalidRequestError,
    KafkaStorageError,
    UnknownTopicOrPartitionError,
    error_for,
)
from splashdam.model.log_text import quoted
from splashdam.model.values import TopicPartition
from splashdam.storage.directories.partition_metadata import format_uuid, new_uuid
from splashdam.storage.manager.topic_registry import NewTopic, Topic, new_topics
from splashdam.storage.topic_names import INTERNAL_TOPICS

_log = logging.getLogger(__name__)

_CLUSTER = Resource("cluster", "")

IsUnclean = Callable[[Mapping[str, str]], bool]
"""Tells whether a topic with these options allows unclean leader election."""


class Member(Protocol):
    """A running broker, as its controller sees it."""

    @property
    def node_id(self) -> int: ...

    def apply(self, change: ClusterChange) -> None:
        """Apply a change that has already taken effect in the controller's state.

        It may call the controller; changes that follow from that are applied later, in order.
        """
        ...


class Controller:
    """Owns the cluster's metadata: brokers, topics, partition leaders.

    Args:
        journal: makes changes durable.
        producer_ids: hands out producer ids, unique in the cluster.
        is_unclean: tells whether a topic's options allow unclean leader election.
        random: draws the placement of new partitions.

    Attributes:
        state: the present metadata; anybody may read it.
        changes: number of changes since the start.
        producer_ids: as given.
        has_ended: all brokers end; further changes are refused.
    """

    def __init__(
        self,
        journal: ChangeStore,
        producer_ids: ProducerIdSource,
        is_unclean: IsUnclean,
        random: Random | None = None,
    ) -> None:
        self.state = ClusterState()
        self.changes = 0
        self.producer_ids = producer_ids
        self.has_ended = False
        self._journal = journal
        self._only_directory = journal if isinstance(journal, DirectoryJournal) else None
        self._is_unclean = is_unclean
        self._random = random or Random()
        self._members: dict[int, Member] = {}
        self._pending: deque[ClusterChange] = deque()
        self._is_applying = False
        if self._only_directory is not None:
            self.state = self._only_directory.read({})

    @property
    def is_alone(self) -> bool:
        """Whether this is the controller of a single broker: a change that the broker cannot apply fails."""
        return self._only_directory is not None

    def begin(self, kept: ClusterState) -> None:
        """Take over the stored state; called once, before any broker registers.

        All brokers went down together, so each leads again what it led before when it registers. Once all
        brokers have registered that will, ``settle`` elects leaders for the rest.

        Raises:
            KafkaStorageError: the journal cannot be written.
        """
        self.state = kept
        if not self.cluster_id:
            self._commit(ClusterChange(resources={_CLUSTER: {"id": format_uuid(new_uuid())}}))
        # Not written to the journal: every start begins with all brokers fenced.
        down = {node: attrs.evolve(each, is_fenced=True) for node, each in self.state.brokers.items()}
        self.state.apply(ClusterChange(brokers=down))

    def settle(self) -> None:
        """Move the leaderships of all brokers that have not registered: they are down.

        Raises:
            KafkaStorageError: as ``leave``.
        """
        for broker in list(self.state.brokers.values()):
            if broker.is_fenced:
                self._remove_leadership(broker)

    @property
    def cluster_id(self) -> str:
        """The id of the cluster; "" before ``begin``, and for a single broker, whose directory has the id."""
        return self.state.resources.get(_CLUSTER, {}).get("id", "")

    # --- brokers --------------------------------------------------------------------------------------------

    @property
    def node_id(self) -> int:
        """The broker that answers name as controller: the first unfenced one, `NOBODY` if all are fenced."""
        return next((node for node, each in sorted(self.state.brokers.items()) if not each.is_fenced), NOBODY)

    def register(self, member: Member, listeners: Mapping[str, Address], rack: str | None = None) -> int:
        """Register a broker that has just started, and have it apply the whole state.

        It leads again the partitions for which no other leader could be elected meanwhile.

        Args:
            member: the broker; it applies every change until ``leave``.
            listeners: its advertised addresses.
            rack: its ``broker.rack``.

        Returns:
            Its broker epoch, to be named in its later calls.

        Raises:
            KafkaStorageError: the registration cannot be made durable.
        """
        node_id = member.node_id
        if node_id in self._members:
            self.leave(node_id, self.state.brokers[node_id].epoch)
        epoch = 1 + max((each.epoch for each in self.state.brokers.values()), default=0)
        broker = BrokerState(node_id, epoch, dict(listeners), rack=rack)
        self._commit(ClusterChange(brokers={node_id: broker}, partitions=self._resumed_leadership(node_id)))
        # Behind the commit: the whole state that it gets now has that change already.
        self._members[node_id] = member
        member.apply(self.state.as_change())
        # Behind ``apply``: the member must have the partition before it may lead it.
        self._commit(self._elections(self._leaderless_of(node_id)))
        return epoch

    def _resumed_leadership(self, node_id: int) -> dict[TopicPartition, PartitionState]:
        """Return the partitions that a broker led when all brokers went down, in the next leader epoch."""
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
        """Refuse changes from now on: all brokers end together, and leaders stay for the next start."""
        self.has_ended = True

    def leave(self, node_id: int, broker_epoch: int) -> None:
        """Unregister a broker that has ended: it applies no more changes, and its leaderships move.

        Raises:
            KafkaStorageError: the change is not durable, but takes effect until all brokers have ended.
        """
        broker = self.state.brokers.get(node_id)
        if broker is not None and broker.epoch == broker_epoch and not self.has_ended:
            self._members.pop(node_id, None)
            self.fence(node_id)

    def fence(self, node_id: int) -> None:
        """Fence a broker that is down: its leaderships move.

        Raises:
            KafkaStorageError: as ``leave``.
        """
        broker = self.state.brokers[node_id]
        if not broker.is_fenced:
            self._remove_leadership(attrs.evolve(broker, is_fenced=True, is_shutting_down=False))

    def begin_shutdown(self, node_id: int, broker_epoch: int) -> bool:
        """Begin a broker's controlled shutdown: its leaderships move, if others are in sync.

        Returns:
            Whether it leads nothing any more.

        Raises:
            BrokerResponseError: STALE_BROKER_EPOCH (77); KafkaStorageError.
        """
        broker = self._registered(node_id, broker_epoch)
        self._remove_leadership(attrs.evolve(broker, is_shutting_down=True))
        return all(each.leader != node_id for each in self.state.partitions.values())

    def lose_replicas(self, node_id: int, topic_partitions: Iterable[TopicPartition]) -> None:
        """Move the leadership of replicas whose disk has failed to other brokers.

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

    def _remove_leadership(self, broker: BrokerState) -> None:
        """Remove a broker that is no longer eligible from leaderships and ISRs."""
        node_id = broker.node_id
        partitions = {}
        for topic_partition, before in self.state.partitions.items():
            if node_id == before.leader or node_id in before.isr:
                after = self._without(before, node_id, topic_partition)
                # in controlled shutdown it leads to its end if nobody else can
                if broker.is_fenced or after.leader != NOBODY:
                    partitions[topic_partition] = after
        self._commit(ClusterChange(brokers={node_id: broker}, partitions=partitions))

    def _registered(self, node_id: int, broker_epoch: int) -> BrokerState:
        broker = self.state.brokers.get(node_id)
        if broker is None or broker.epoch != broker_epoch or broker.is_fenced:
            raise error_for(ErrorCode.STALE_BROKER_EPOCH, f"node {node_id} is not in epoch {broker_epoch}")
        return broker

    # --- partitions -----------------------------------------------------------------------------------------

    def partition(self, topic_partition: TopicPartition) -> PartitionState:
        """Return the state of a partition.

        Raises:
            UnknownTopicOrPartitionError: there is no such partition.
        """
        found = self.state.partitions.get(topic_partition)
        if found is None:
            raise UnknownTopicOrPartitionError(f"there is no partition {quoted(str(topic_partition))}")
        return found

    def alter_partitions(
        self, node_id: int, broker_epoch: int, proposals: Mapping[TopicPartition, IsrProposal]
    ) -> dict[TopicPartition, IsrAnswer]:
        """Accept the ISRs that a leader proposes, and complete reassignments that waited for them.

        All legal proposals become one change: after a restart a leader proposes hundreds at once, and each
        sync of the journal takes milliseconds.

        Args:
            node_id: the leader.
            broker_epoch: the return value of ``register``.
            proposals: by partition.

        Returns:
            For each partition its new state, or the error that refuses the proposal:
            UNKNOWN_TOPIC_OR_PARTITION (3), NOT_CONTROLLER (41): epochs of the future, FENCED_LEADER_EPOCH
            (74), INVALID_REQUEST (42): not the leader, or no legal ISR, INVALID_UPDATE_VERSION (95): based on
            an older state, INELIGIBLE_REPLICA (107): a new member is down; or NEW_LEADER_ELECTED (108): the
            ISR was accepted, and another broker leads now.

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
        """Replace the states of partitions, in one change.

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
        """Elect leaders for partitions that have none and can have one."""
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
        """Create topics, all or none, and return them (or what they would be).

        Raises:
            BrokerResponseError: as ``created_topics``; KafkaStorageError.
        """
        change = created_topics(wanted, self.state, check_configs, default_replication_factor, self._random)
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
        """Add partitions to a topic, up to ``count`` in all.

        Raises:
            BrokerResponseError: as ``added_partitions``; KafkaStorageError.
        """
        change = added_partitions(self.state, name, count, assignments, self._random)
        if not validate_only:
            self._commit(change)

    def configure_topic(self, name: str, configs: Mapping[str, str]) -> None:
        """Replace a topic's options, which the caller has checked.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
            KafkaStorageError: nothing has changed.
        """
        topic = known_topic(self.state, name)
        self._commit(ClusterChange(topics={name: attrs.evolve(topic, configs=dict(configs))}))

    def delete_topic(self, name: str) -> None:
        """Delete a topic.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
            KafkaStorageError: the change cannot be made durable.
        """
        self._commit(ClusterChange(deleted=(known_topic(self.state, name),)))

    def put_resources(self, resources: Mapping[Resource, Mapping[str, str]]) -> None:
        """Replace options that all brokers share (of brokers, users, quotas…); empty options are deleted.

        Raises:
            KafkaStorageError: nothing has changed.
        """
        self._commit(ClusterChange(resources=resources))

    # --- one change after the other -------------------------------------------------------------------------

    def _commit(self, change: ClusterChange) -> None:
        if not change:
            return
        if self.has_ended:
            raise error_for(ErrorCode.NOT_CONTROLLER, "the cluster is shutting down")
        try:
            self._keep(change)
            self.state.apply(change)
            self.changes += 1
            self._pending.append(change)
            # A member may call the controller while it applies a change. Its change waits, so that all
            # members apply changes in the same order.
            if not self._is_applying:
                self._apply_pending()
        except BrokerResponseError:
            if self._only_directory is not None:  # the broker could not apply it, or not all of it
                self.state = self._only_directory.read(self.state.brokers)
            raise

    def _keep(self, change: ClusterChange) -> None:
        try:
            self._journal.keep(change, self.state)
        except KafkaStorageError as error:
            if not any(broker.is_fenced for broker in change.brokers.values()):
                raise
            # The broker is down in any case, so the change takes effect without being durable.
            _log.error("cannot write to the journal that a broker is down: %s", error.message)

    def _apply_pending(self) -> None:
        self._is_applying = True
        try:
            while self._pending:
                change = self._pending.popleft()
                for member in list(self._members.values()):
                    self._apply_to(member, change)
        finally:
            self._is_applying = False

    def _apply_to(self, member: Member, change: ClusterChange) -> None:
        """Have a broker apply a change; the failure of one must not affect other brokers."""
        try:
            member.apply(change)
        except Exception:
            if self.is_alone:
                raise
            _log.exception("node %d could not apply a change of the cluster", member.node_id)


def check_epochs(before: PartitionState, node_id: int, leader_epoch: int, partition_epoch: int) -> None:
    """Check that a broker leads a partition and knows its present state. The order of the checks is KRaft's.

    Raises:
        BrokerResponseError: NOT_CONTROLLER (41): epochs of the future; FENCED_LEADER_EPOCH (74);
            INVALID_REQUEST (42): it does not lead; INVALID_UPDATE_VERSION (95): it knows an older state.
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
    """Check a proposed ISR.

    Raises:
        BrokerResponseError: INVALID_REQUEST (42): it is no set of replicas, or lacks the leader;
            INELIGIBLE_REPLICA (107): a new member is down or shutting down.
    """
    is_legal = len(set(new_isr)) == len(new_isr) and set(new_isr) <= set(before.replicas)
    if not is_legal or before.leader not in new_isr:
        raise InvalidRequestError(f"{list(new_isr)} is no ISR of replicas {list(before.replicas)}")
    for node in new_isr:
        if node not in before.isr and not is_eligible(node):
            raise error_for(ErrorCode.INELIGIBLE_REPLICA, f"node {node} is down or shutting down")


def known_topic(state: ClusterState, name: str) -> Topic:
    """Return the topic of this name.

    Raises:
        UnknownTopicOrPartitionError: there is no such topic.
    """
    topic = state.topics.get(name)
    if topic is None:
        raise UnknownTopicOrPartitionError(f"there is no topic {quoted(name)}")
    return topic


def created_topics(
    wanted: Sequence[NewTopic],
    state: ClusterState,
    check_configs: Callable[[Mapping[str, str]], object],
    default_replication_factor: int,
    random: Random,
) -> ClusterChange:
    """Return the change that creates topics, all or none, each with an id and placed replicas.

    Raises:
        BrokerResponseError: as ``new_topics``, ``placed`` ``check_replicas``, for the first refused.
    """
    topics = new_topics(wanted, state.topics, check_configs, state.names_by_fold)
    partitions: dict[TopicPartition, PartitionState] = {}
    for new, topic in zip(wanted, topics, strict=True):
        factor = new.replication_factor if new.replication_factor > 0 else default_replication_factor
        if new.name in INTERNAL_TOPICS:  # Kafka waits until there are enough brokers
            factor = min(factor, len(state.brokers))
        replicas = new.assignments or placed(new.partitions, factor, state, random)
        partitions |= _partitions(topic.name, 0, replicas, state)
    return ClusterChange(topics={topic.name: topic for topic in topics}, partitions=partitions)


def added_partitions(
    state: ClusterState, name: str, count: int, assignments: Sequence[Sequence[int]], random: Random
) -> ClusterChange:
    """Return the change that adds partitions to a topic, with as many replicas as its first one has.

    Raises:
        BrokerResponseError: UNKNOWN_TOPIC_OR_PARTITION (3); INVALID_PARTITIONS (37): not more than there are;
            INVALID_REPLICA_ASSIGNMENT (39): an assignment that does not fit; as ``placed``.
    """
    topic = known_topic(state, name)
    present = len(topic.partitions)
    if count <= present:
        raise error_for(
            ErrorCode.INVALID_PARTITIONS, f"topic {quoted(name)} has {present} partitions already"
        )
    factor = len(state.partitions[TopicPartition(name, topic.partitions[0])].replicas)
    if assignments and any(len(replicas) != factor for replicas in assignments):
        raise error_for(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"each partition of {quoted(name)} has {factor} replicas"
        )
    if assignments and len(assignments) != count - present:
        raise error_for(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{count - present} partitions are new, {len(assignments)} are assigned",
        )
    behind = [state.partitions[TopicPartition(name, number)].replicas for number in topic.partitions]
    replicas = assignments or placed(count - present, factor, state, random, behind=behind)
    longer = attrs.evolve(topic, partitions=tuple(range(count)))
    return ClusterChange(topics={name: longer}, partitions=_partitions(name, present, replicas, state))


def _partitions(
    name: str, first: int, replicas: Sequence[Sequence[int]], state: ClusterState
) -> dict[TopicPartition, PartitionState]:
    begun = {each: _new_partition(each, state) for each in set(map(tuple, replicas))}
    return {TopicPartition(name, number): begun[tuple(each)] for number, each in enumerate(replicas, first)}


def _new_partition(replicas: Sequence[int], state: ClusterState) -> PartitionState:
    """Return the first state of a partition: all eligible replicas are in sync, the first of them leads.

    Raises:
        BrokerResponseError: INVALID_REPLICA_ASSIGNMENT (39): as ``check_replicas``, or all are down.
    """
    check_replicas(replicas, state.brokers.__contains__)
    isr = tuple(node for node in replicas if state.is_eligible(node))
    if not isr:
        raise error_for(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"the brokers of the assignment {list(replicas)} are all down or shutting down",
        )
    return PartitionState(tuple(replicas), isr, isr[0])
