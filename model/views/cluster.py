"""What one sees of a cluster: the frozen values of ``splashdam.inspect``, with units in their names."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from splashdam.model.values import TopicPartition


@attrs.frozen(kw_only=True)
class PartitionView:
    """A partition.

    Attributes:
        topic_partition: which one.
        leader: id of the broker that leads it; -1 while no broker does.
        replicas: ids of the brokers that hold it, the preferred leader first.
        isr: ids of those that are in sync.
        first_offset: of its oldest record; None if its leader did not say.
        end_offset: of the next record, likewise.
        size_bytes: of the leader's segments; None if no broker said.
        newest_timestamp_ms: the largest timestamp of its records; None if there is none, or nobody said.
    """

    topic_partition: TopicPartition
    leader: int
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    first_offset: int | None = None
    end_offset: int | None = None
    size_bytes: int | None = None
    newest_timestamp_ms: int | None = None

    @property
    def records(self) -> int | None:
        """How many offsets lie between first and end; fewer records, where compaction has removed some."""
        if self.first_offset is None or self.end_offset is None:
            return None
        return self.end_offset - self.first_offset

    @property
    def is_under_replicated(self) -> bool:
        """Whether a replica is not in sync."""
        return len(self.isr) < len(self.replicas)


@attrs.frozen(kw_only=True)
class TopicView:
    """A topic.

    Attributes:
        name: of the topic.
        partitions: in the order of their numbers.
    """

    name: str
    partitions: tuple[PartitionView, ...]

    @property
    def is_internal(self) -> bool:
        """Whether brokers keep it for themselves."""
        return self.name.startswith("__")

    @property
    def records(self) -> int:
        """The records of all partitions that are known."""
        return sum(each.records or 0 for each in self.partitions)

    @property
    def end_offsets(self) -> int:
        """The sum of all end offsets: it grows by the records that arrive."""
        return sum(each.end_offset or 0 for each in self.partitions)

    @property
    def size_bytes(self) -> int:
        """The bytes of all leaders' segments."""
        return sum(each.size_bytes or 0 for each in self.partitions)

    @property
    def newest_timestamp_ms(self) -> int | None:
        """The largest timestamp of its records; None if there is none."""
        return max(
            (each.newest_timestamp_ms for each in self.partitions if each.newest_timestamp_ms is not None),
            default=None,
        )

    @property
    def under_replicated(self) -> int:
        """How many partitions have a replica that is not in sync."""
        return sum(each.is_under_replicated for each in self.partitions)

    @property
    def leaderless(self) -> int:
        """How many partitions have no leader."""
        return sum(each.leader < 0 for each in self.partitions)


@attrs.frozen(kw_only=True)
class BrokerView:
    """A broker.

    Attributes:
        node_id: its id.
        host: of the address that it advertises.
        port: likewise.
        rack: where it stands; None if it does not say.
        is_controller: whether it is the controller.
        leads: how many partitions it leads.
        replicas: how many partitions it holds.
    """

    node_id: int
    host: str
    port: int
    rack: str | None = None
    is_controller: bool = False
    leads: int = 0
    replicas: int = 0


@attrs.frozen(kw_only=True)
class DiskView:
    """A log directory.

    Attributes:
        broker_id: of the broker that has it.
        path: of the directory, on the broker's machine.
        total_bytes: size of its volume; None if the broker does not say (before Kafka 3.3, and in memory).
        free_bytes: what is left of it, likewise.
        logs_bytes: of all replicas in it.
        error: Kafka's name of its error; None if it can be used.
    """

    broker_id: int
    path: str
    total_bytes: int | None
    free_bytes: int | None
    logs_bytes: int
    error: str | None = None


@attrs.frozen(kw_only=True)
class SettingView:
    """A setting that differs from its default.

    Attributes:
        broker_id: of the broker that has it.
        name: Kafka's.
        value: as text; None for a secret.
    """

    broker_id: int
    name: str
    value: str | None


@attrs.frozen(kw_only=True)
class AnsweredError:
    """An error in an answer to a client.

    Attributes:
        code: Kafka's name.
        request: the request that it answered, for example ``Produce``.
        where: the topic, partition or group that it is about; may be empty.
        timestamp_ms: when, in milliseconds since the epoch.
    """

    code: str
    request: str
    where: str
    timestamp_ms: int


@attrs.frozen(kw_only=True)
class ClientView:
    """A connection of a client, as the broker in this process sees it.

    Attributes:
        number: tells connections apart for as long as the broker runs.
        client_id: as the client says; empty until it has said so.
        software: name and version of its library; empty if it does not say.
        address: where it comes from.
        principal: who it is.
        requests: how many it has sent.
        errors: how many answers to it held an error, since the console was started.
        last_error: the last of these; None if there was none.
        is_connected: whether it still is; the last that were answered errors are kept after they have left.
    """

    number: int
    client_id: str
    software: str
    address: str
    principal: str
    requests: int
    errors: int = 0
    last_error: AnsweredError | None = None
    is_connected: bool = True


@attrs.frozen(kw_only=True)
class Overview:
    """A cluster at one moment.

    Attributes:
        taken_ms: when, in milliseconds since the epoch.
        cluster_id: of the cluster; None if it has none.
        brokers: in the order of their ids.
        topics: in the order of their names.
        disks: the log directories of all brokers.
        settings: of brokers, those that differ from their defaults.
        clients: that are connected, or were when they got errors; None if only the broker's process knows.
        refusals: what the cluster would not tell, as sentences.
    """

    taken_ms: int
    cluster_id: str | None
    brokers: Sequence[BrokerView]
    topics: Sequence[TopicView]
    disks: Sequence[DiskView] = ()
    settings: Sequence[SettingView] = ()
    clients: Sequence[ClientView] | None = None
    refusals: Sequence[str] = ()

    @property
    def end_offsets(self) -> dict[TopicPartition, int | None]:
        """The end offset of every partition that has a leader."""
        return {
            each.topic_partition: each.end_offset
            for topic in self.topics
            for each in topic.partitions
            if each.leader >= 0
        }

    @property
    def partitions(self) -> int:
        """How many partitions there are."""
        return sum(len(topic.partitions) for topic in self.topics)

    @property
    def under_replicated(self) -> int:
        """How many partitions have a replica that is not in sync."""
        return sum(topic.under_replicated for topic in self.topics)

    @property
    def leaderless(self) -> int:
        """How many partitions have no leader."""
        return sum(topic.leaderless for topic in self.topics)


@attrs.frozen(kw_only=True)
class RebalanceView:
    """The last time that a group's partitions were shared out anew.

    Attributes:
        timestamp_ms: when it began, in milliseconds since the epoch.
        generation: of a classic group the one before, else the group epoch behind it.
        reason: why.
    """

    timestamp_ms: int
    generation: int
    reason: str


@attrs.frozen(kw_only=True)
class MemberView:
    """A member of a group.

    Attributes:
        member_id: assigned by the coordinator.
        instance_id: of a static member, else None.
        client_id: of its client.
        host: its address.
        partitions: assigned to it.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


@attrs.frozen(kw_only=True)
class GroupPartitionView:
    """A partition that a group reads.

    Attributes:
        topic_partition: which one.
        committed_offset: of the next record to read; None if nothing was committed.
        end_offset: of the next record to be written; None if its leader did not say.
        member_id: of the member that reads it; None if nobody does.
    """

    topic_partition: TopicPartition
    committed_offset: int | None
    end_offset: int | None
    member_id: str | None = None

    @property
    def lag(self) -> int | None:
        """How many records are still to be read; None if that is not known."""
        if self.committed_offset is None or self.end_offset is None:
            return None
        return max(0, self.end_offset - self.committed_offset)


@attrs.frozen(kw_only=True)
class GroupView:
    """A consumer group.

    Attributes:
        group_id: its name.
        state: Kafka's name of the state.
        group_type: ``classic`` or ``consumer``.
        assignor: name of the partition assignor; may be empty.
        members: in the coordinator's order.
        partitions: those that are assigned or committed, sorted.
        last_rebalance: None if there was none since the broker has started, or only its process knows.
        problem: why the rest is not known; empty if it is.
    """

    group_id: str
    state: str
    group_type: str
    assignor: str = ""
    members: tuple[MemberView, ...] = ()
    partitions: tuple[GroupPartitionView, ...] = ()
    last_rebalance: RebalanceView | None = None
    problem: str = ""

    @property
    def lag(self) -> int:
        """How many records are still to be read, where that is known."""
        return sum(each.lag or 0 for each in self.partitions)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that it reads, sorted."""
        return tuple(sorted({each.topic_partition.topic for each in self.partitions}))


@attrs.frozen(kw_only=True)
class TransactionView:
    """A transactional id.

    Attributes:
        transactional_id: the id.
        state: Kafka's name of the state.
        producer_id: of the present producer.
        producer_epoch: likewise; -1 if nobody asked for more than names and states.
        start_ms: of the open transaction, in milliseconds since the epoch; None if none is open.
        timeout_ms: after which the coordinator aborts it; -1 as above.
        partitions: those that the open transaction has written to.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int = -1
    start_ms: int | None = None
    timeout_ms: int = -1
    partitions: tuple[TopicPartition, ...] = ()


@attrs.frozen(kw_only=True)
class HeldBackView:
    """A partition whose last stable offset an open transaction holds back.

    Attributes:
        topic_partition: which one.
        start_offset: of the transaction there: read_committed readers see nothing from here on.
        hidden_records: how many records lie behind; None if that is not known.
        producer_id: whose transaction it is.
        producer_epoch: likewise.
        last_write_ms: of its last batch, in milliseconds since the epoch.
        transactional_id: None if no coordinator knows this transaction any more: it hangs.
    """

    topic_partition: TopicPartition
    start_offset: int
    hidden_records: int | None
    producer_id: int
    producer_epoch: int
    last_write_ms: int
    transactional_id: str | None
