"""The group coordinator: which groups this broker keeps, where their records go, and what time brings.

A group lives on the leader of its partition of ``__consumer_offsets``. What is known of it stands in memory
and in the log, which goes first; ``load`` reads a partition anew, ``resign`` gives it away.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

import trio

from splashdam.embedded_broker.configs.broker_settings import BrokerSettings
from splashdam.embedded_broker.groups.coordinator_shard import CoordinatorShard
from splashdam.embedded_broker.groups.group import Group, Membership
from splashdam.embedded_broker.groups.timers import Timers
from splashdam.embedded_broker.topics.internal_topics import InternalTopic, OwnsTopics
from splashdam.embedded_broker.topics.partitions import KnowsPartitions
from splashdam.model.broker_errors import (
    CoordinatorNotAvailableError,
    CorruptMessageError,
    ErrorCode,
    KafkaStorageError,
    MessageTooLargeError,
    NotCoordinatorError,
    RecordListTooLargeError,
    error_for,
)
from splashdam.model.log_text import quoted
from splashdam.model.values import TopicPartition
from splashdam.storage.append_checks import check_size
from splashdam.storage.topic_names import CONSUMER_OFFSETS

if TYPE_CHECKING:
    from splashdam.embedded_broker.groups.consumer.context import BrokerTopics
    from splashdam.storage.log import AppendResult, Log

_log = logging.getLogger(__name__)


class SetOnGroups(Protocol):
    """Knows what was set on groups."""

    def of_group(self, group_id: str) -> Mapping[str, str]:
        """What is set for a group: ``consumer.session.timeout.ms`` and ``consumer.heartbeat.interval.ms``."""
        ...


class CoordinatesGroups(OwnsTopics, KnowsPartitions, Protocol):
    """What a coordinator needs of its broker; the attributes are those of `Broker`."""

    @property
    def configs(self) -> SetOnGroups:
        """What was set on groups."""
        ...


class GroupCoordinator:
    """The groups of a broker; made by it, and a `GroupHost` to their memberships.

    Attributes:
        timers: what happens when.
    """

    def __init__(self, broker: CoordinatesGroups) -> None:
        self._broker = broker
        self._topic = InternalTopic(CONSUMER_OFFSETS, broker)
        self._shards: dict[int, CoordinatorShard] = {}
        self._unreadable: set[int] = set()
        self._resigned: set[int] = set()
        self._earlier = trio.Event()
        self.timers = Timers(self._on_earlier)

    # --- partitions come and go -----------------------------------------------------------------------------

    def load_all(self) -> None:
        """Reads all of ``__consumer_offsets`` that this broker leads."""
        for partition in list(self._shards):
            self.resign(partition)
        self._unreadable.clear()
        for partition in range(self._topic.partition_count):
            if self._leads(partition):
                self.load(partition)
            else:
                self._resigned.add(partition)

    def load(self, partition: int) -> None:
        """Reads one partition, which this broker leads from now on.

        The groups of a damaged one are answered with 15. It is compacted, so short, and read at once: nobody
        is told to wait for it (14), which old clients took badly.
        """
        self._dismiss(partition)
        self._resigned.discard(partition)
        self._unreadable.discard(partition)
        shard = CoordinatorShard(self)
        try:
            shard.replay(self._topic.read_all(partition))
        except (CorruptMessageError, KafkaStorageError) as error:
            _log.error("%s-%d cannot be read, nor its groups: %s", CONSUMER_OFFSETS, partition, error.message)
            self._unreadable.add(partition)
        if shard.groups:
            self._shards[partition] = shard
        for group in list(shard.groups.values()):
            if group.membership is not None:
                group.membership.loaded()

    def resign(self, partition: int) -> None:
        """Another broker leads this partition: its groups are forgotten, their clients sent there (16)."""
        self._resigned.add(partition)
        self._dismiss(partition)

    def _dismiss(self, partition: int) -> None:
        shard = self._shards.pop(partition, None)
        for group in [] if shard is None else shard.groups.values():
            if group.membership is not None:
                group.membership.dismiss(ErrorCode.NOT_COORDINATOR)

    def clear(self) -> None:
        """``__consumer_offsets`` was deleted, and all groups with it."""
        for partition in list(self._shards):
            self._dismiss(partition)
        self._unreadable.clear()
        self._resigned.clear()

    # --- groups ---------------------------------------------------------------------------------------------

    def find(self, group_id: str) -> Group | None:
        """What is known of a group.

        Raises:
            BrokerResponseError: as ``partition_of``.
        """
        shard = self._shards.get(self.partition_of(group_id))
        return None if shard is None else shard.groups.get(group_id)

    def find_or_make(self, group_id: str) -> Group:
        """The group, an empty one where nothing is known; to be forgotten by ``drop_if_gone``.

        Raises:
            BrokerResponseError: as ``partition_of``.
        """
        return self.shard_of(self.partition_of(group_id)).group(group_id)

    def drop_if_gone(self, group_id: str) -> None:
        """Forgets a group of which nothing is known any more."""
        shard = self._shards.get(self._topic.partition_for(group_id))
        if shard is not None and group_id in shard.groups:
            shard.drop_if_gone(group_id)

    def all_groups(self) -> Iterator[tuple[int, str, Group]]:
        """Partition, id and what is known, of every group this broker keeps; they may change meanwhile."""
        for partition, shard in list(self._shards.items()):
            for group_id, group in list(shard.groups.items()):
                yield partition, group_id, group

    def shard_of(self, partition: int) -> CoordinatorShard:
        """The groups of a partition."""
        shard = self._shards.get(partition)
        if shard is None:
            shard = self._shards[partition] = CoordinatorShard(self)
        return shard

    def partition_of(self, group_id: str) -> int:
        """The partition that keeps a group, which this broker leads.

        Raises:
            CoordinatorNotAvailableError: it could not be read.
            NotCoordinatorError: another broker leads it.
            BrokerResponseError: COORDINATOR_LOAD_IN_PROGRESS (14): this broker leads it since just now.
        """
        partition = self._topic.partition_for(group_id)
        where = TopicPartition(CONSUMER_OFFSETS, partition)
        if partition in self._unreadable:
            raise CoordinatorNotAvailableError(f"{where} could not be read")
        if not self._leads(partition):
            raise NotCoordinatorError(f"another broker leads {where}, which holds group {quoted(group_id)}")
        if partition in self._resigned:
            raise error_for(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{where} is not read yet")
        return partition

    def _leads(self, partition: int) -> bool:
        leader = self._broker.leadership.leader_of(TopicPartition(CONSUMER_OFFSETS, partition))
        return leader is None or leader.node_id == self._broker.node_id

    # --- the log --------------------------------------------------------------------------------------------

    def log_of(self, group_id: str) -> Log:
        """The log that a group's records are in, for ``answer_when_safe``.

        Raises:
            CoordinatorNotAvailableError: it is not here, or cannot be made.
        """
        return self._topic.log(self._topic.partition_for(group_id))

    def append(self, group_id: str, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Appends what memberships say, as `GroupHost` has it.

        Raises:
            BrokerResponseError: as ``append_to``; -1 where it is too large for one batch.
        """
        self.append_to(self.partition_of(group_id), records, too_large=ErrorCode.UNKNOWN_SERVER_ERROR)

    def append_to(
        self,
        partition: int,
        records: Iterable[tuple[bytes, bytes | None]],
        *,
        too_large: ErrorCode,
        producer_id: int = -1,
        producer_epoch: int = -1,
        least_bytes: int = 0,
    ) -> AppendResult:
        """Appends records as one batch; transactional where a producer id is given.

        Args:
            partition: number of the partition.
            records: keys and values; None deletes the key.
            too_large: the code of what is too large for a batch.
            producer_id: whose transaction the batch belongs to, -1 for none.
            producer_epoch: the producer's.
            least_bytes: keys and values have together, where that is known: no batch is made in vain.

        Raises:
            CoordinatorNotAvailableError: the partition is not here, or cannot be made.
            BrokerResponseError: ``too_large`` for a batch; NOT_COORDINATOR (16) where the disk refuses, as
                Kafka says it; a fenced epoch (47).
        """
        try:
            check_size(least_bytes, self._topic.log(partition).settings)
            return self._topic.append(
                partition, records, producer_id=producer_id, producer_epoch=producer_epoch
            )
        except (MessageTooLargeError, RecordListTooLargeError) as error:
            raise error_for(too_large, error.message) from error
        except KafkaStorageError as error:
            _log.error("cannot write to %s-%d: %s", CONSUMER_OFFSETS, partition, error.message)
            raise NotCoordinatorError(error.message) from error

    # --- what memberships ask -------------------------------------------------------------------------------

    @property
    def settings(self) -> BrokerSettings:
        """The broker's settings as they are now."""
        return self._broker.settings

    @property
    def topics(self) -> BrokerTopics:
        """The topics of the cluster."""
        from splashdam.embedded_broker.groups.consumer.context import BrokerTopics

        return BrokerTopics(self._broker.logs.topics)

    def configs_of(self, group_id: str) -> Mapping[str, str]:
        """What was set on the group itself."""
        return self._broker.configs.of_group(group_id)

    def replace_membership(self, group_id: str, membership: Membership) -> None:
        """The group goes on with the other protocol."""
        self.find_or_make(group_id).membership = membership

    def now_ms(self) -> float:
        """The loop's clock."""
        return trio.current_time() * 1000

    def wall_ms(self) -> int:
        """Wall clock, milliseconds since the epoch."""
        return self._broker.clock.wall_ms()

    def new_id(self) -> str:
        """A random UUID."""
        return str(uuid4())

    # --- time -----------------------------------------------------------------------------------------------

    async def keep_time(self) -> None:
        """Does what timers are set for, as long as the broker runs; sleeps for as long as there is none."""
        while True:
            self._earlier = trio.Event()
            with trio.move_on_at(self.timers.next_ms / 1000):
                await self._earlier.wait()
            try:
                self.timers.step(self.now_ms())
            except Exception:  # of one group; the others' timers, and the broker, go on
                _log.exception("what was due of a group failed")

    def _on_earlier(self) -> None:
        self._earlier.set()
