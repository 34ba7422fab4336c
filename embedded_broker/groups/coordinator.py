"""The group coordinator: the groups of this broker, their records, and their timers.

A group is coordinated by the leader of its partition of ``__consumer_offsets``. Every change is appended to
the log before it counts in memory. ``load`` reads a partition that this broker leads from now on, ``resign``
drops it.
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

_TIMERS_AT_ONCE = 32
"""Timers that run in one turn: each may write a record, and thousands of members may time out together."""


class GroupConfigs(Protocol):
    """Knows the dynamic configs of groups."""

    def of_group(self, group_id: str) -> Mapping[str, str]:
        """Return a group's ``consumer.session.timeout.ms`` and ``consumer.heartbeat.interval.ms``, if set."""
        ...


class CoordinatesGroups(OwnsTopics, KnowsPartitions, Protocol):
    """What a coordinator needs of its broker; the attributes are those of `Broker`."""

    @property
    def configs(self) -> GroupConfigs:
        """The dynamic configs of groups."""
        ...


class GroupCoordinator:
    """The groups of a broker; the `GroupHost` of their memberships.

    Attributes:
        timers: of all groups.
    """

    def __init__(self, broker: CoordinatesGroups) -> None:
        self._broker = broker
        self._topic = InternalTopic(CONSUMER_OFFSETS, broker)
        self._shards: dict[int, CoordinatorShard] = {}
        self._unreadable: set[int] = set()
        self._resigned: set[int] = set()
        self._earlier = trio.Event()
        self.timers = Timers(self._on_earlier)

    # --- loading partitions ---------------------------------------------------------------------------------

    def load_all(self) -> None:
        """Load all partitions of ``__consumer_offsets`` that this broker leads."""
        for partition in list(self._shards):
            self.resign(partition)
        self._unreadable.clear()
        for partition in range(self._topic.partition_count):
            if self._leads(partition):
                self.load(partition)
            else:
                self._resigned.add(partition)

    def load(self, partition: int) -> None:
        """Load a partition that this broker leads from now on.

        Requests for groups of a damaged partition are answered with COORDINATOR_NOT_AVAILABLE (15).
        """
        self._dismiss(partition)
        self._resigned.discard(partition)
        self._unreadable.discard(partition)
        shard = CoordinatorShard(self)
        try:
            # At once, because a compacted partition is short: no client gets COORDINATOR_LOAD_IN_PROGRESS
            # (14), which old clients handle badly (docs/decisions/group-offsets.md).
            shard.replay(self._topic.read_all(partition))
        except (CorruptMessageError, KafkaStorageError) as error:
            _log.error("%s-%d and its groups cannot be read: %s", CONSUMER_OFFSETS, partition, error.message)
            self._unreadable.add(partition)
        if shard.groups:
            self._shards[partition] = shard
        for group in list(shard.groups.values()):
            if group.membership is not None:
                group.membership.loaded()

    def resign(self, partition: int) -> None:
        """Drop the groups of a partition that another broker leads; their clients get NOT_COORDINATOR
        (16)."""
        self._resigned.add(partition)
        self._dismiss(partition)

    def _dismiss(self, partition: int) -> None:
        shard = self._shards.pop(partition, None)
        for group in [] if shard is None else shard.groups.values():
            if group.membership is not None:
                group.membership.dismiss(ErrorCode.NOT_COORDINATOR)

    def clear(self) -> None:
        """Drop all groups: ``__consumer_offsets`` was deleted."""
        for partition in list(self._shards):
            self._dismiss(partition)
        self._unreadable.clear()
        self._resigned.clear()

    # --- groups ---------------------------------------------------------------------------------------------

    def find(self, group_id: str) -> Group | None:
        """Return a group; None if it does not exist.

        Raises:
            BrokerResponseError: as ``partition_of``.
        """
        shard = self._shards.get(self.partition_of(group_id))
        return None if shard is None else shard.groups.get(group_id)

    def find_or_make(self, group_id: str) -> Group:
        """Return a group, created if it does not exist; ``drop_if_gone`` removes it if it stays empty.

        Raises:
            BrokerResponseError: as ``partition_of``.
        """
        return self.shard_of(self.partition_of(group_id)).group(group_id)

    def drop_if_gone(self, group_id: str) -> None:
        """Remove a group without members, offsets and pending transactions."""
        shard = self._shards.get(self._topic.partition_for(group_id))
        if shard is not None and group_id in shard.groups:
            shard.drop_if_gone(group_id)

    def all_groups(self) -> Iterator[tuple[int, str, Group]]:
        """Yield partition, id and group of every group of this broker; they may change meanwhile.

        What is gone by then is left out.
        """
        for partition, shard in list(self._shards.items()):
            for group_id, group in list(shard.groups.items()):
                if self._shards.get(partition) is shard and shard.groups.get(group_id) is group:
                    yield partition, group_id, group

    def shard_of(self, partition: int) -> CoordinatorShard:
        """Return the groups of a partition."""
        shard = self._shards.get(partition)
        if shard is None:
            shard = self._shards[partition] = CoordinatorShard(self)
        return shard

    def partition_of(self, group_id: str) -> int:
        """Return the partition that a group belongs to, which this broker leads.

        Raises:
            CoordinatorNotAvailableError: the partition could not be read, or its data directory has failed.
            NotCoordinatorError: another broker leads it.
            BrokerResponseError: COORDINATOR_LOAD_IN_PROGRESS (14): this broker has just become its leader.
        """
        partition = self._topic.partition_for(group_id)
        where = TopicPartition(CONSUMER_OFFSETS, partition)
        if partition in self._unreadable:
            raise CoordinatorNotAvailableError(f"{where} could not be read")
        if not self._leads(partition):
            raise NotCoordinatorError(f"another broker leads {where}, which holds group {quoted(group_id)}")
        if partition in self._resigned:
            raise error_for(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{where} is not read yet")
        self._topic.check_online(partition)
        return partition

    def _leads(self, partition: int) -> bool:
        leader = self._broker.leadership.leader_of(TopicPartition(CONSUMER_OFFSETS, partition))
        return leader is None or leader.node_id == self._broker.node_id

    # --- the log --------------------------------------------------------------------------------------------

    def log_of(self, group_id: str) -> Log:
        """Return the log of a group's records, for ``answer_when_safe``.

        Raises:
            CoordinatorNotAvailableError: the partition is not here, or cannot be created.
        """
        return self._topic.log(self._topic.partition_for(group_id))

    def append(self, group_id: str, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """See `GroupHost`.

        Raises:
            BrokerResponseError: as ``append_to``; -1 if the records do not fit into one batch.
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
        """Append records as one batch; transactional if a producer id is given.

        Args:
            partition: number of the partition.
            records: keys and values; a value of None is a tombstone.
            too_large: the error code if the records do not fit into one batch.
            producer_id: of the transaction that the batch belongs to, -1 for none.
            producer_epoch: of that producer.
            least_bytes: size of all keys and values, if known, to refuse too large a batch early.

        Raises:
            CoordinatorNotAvailableError: the partition is not here, or cannot be created.
            BrokerResponseError: ``too_large``; NOT_COORDINATOR (16) for a disk error, as in Kafka; a fenced
                epoch (47).
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

    # --- as a GroupHost -------------------------------------------------------------------------------------

    @property
    def settings(self) -> BrokerSettings:
        return self._broker.settings

    @property
    def topics(self) -> BrokerTopics:
        from splashdam.embedded_broker.groups.consumer.context import BrokerTopics

        return BrokerTopics(self._broker.logs.topics)

    def configs_of(self, group_id: str) -> Mapping[str, str]:
        return self._broker.configs.of_group(group_id)

    def replace_membership(self, group_id: str, membership: Membership) -> None:
        self.find_or_make(group_id).membership = membership

    def now_ms(self) -> float:
        return trio.current_time() * 1000

    def wall_ms(self) -> int:
        return self._broker.clock.wall_ms()

    def new_id(self) -> str:
        return str(uuid4())

    # --- timers ---------------------------------------------------------------------------------------------

    async def keep_time(self) -> None:
        """Run due timers as long as the broker runs; sleep until the next one is due."""
        while True:
            self._earlier, next_ms = trio.Event(), self.timers.next_ms
            with trio.move_on_at(next_ms / 1000) as sleep:
                await self._earlier.wait()
            now_ms = self.now_ms()
            if sleep.cancelled_caught:
                now_ms = max(now_ms, next_ms)  # 130010 / 1000 * 1000 is less than 130010
            try:
                self.timers.step(now_ms, most=_TIMERS_AT_ONCE)
            except Exception:  # a bug in one group must not stop the timers of the others
                _log.exception("a timer of a group failed")

    def _on_earlier(self) -> None:
        self._earlier.set()
