"""The topics of a broker: looked up, created and deleted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import attrs

from splashdam.embedded_broker.configs.broker_settings import BrokerSettings
from splashdam.embedded_broker.configs.topics import new_topic_settings
from splashdam.embedded_broker.execution.turns import PARTITION_UNITS, TURN_UNITS, Steps
from splashdam.embedded_broker.topics.parking import FetchParking
from splashdam.model.broker_errors import BrokerResponseError, InvalidRequestError
from splashdam.model.values import TopicPartition
from splashdam.net.clock import Clock
from splashdam.storage.directories.partition_metadata import new_uuid
from splashdam.storage.manager.log_manager import MAX_REMOVED_AT_ONCE, LogManager
from splashdam.storage.manager.topic_registry import NewTopic, Topic
from splashdam.storage.topic_names import CONSUMER_OFFSETS, METADATA_TOPIC, TRANSACTION_STATE, folded

if TYPE_CHECKING:
    from splashdam.embedded_broker.controller.controller import Controller
    from splashdam.embedded_broker.controller.state import ClusterChange


_log = logging.getLogger(__name__)


class Topics:
    """Topics by name and by id. The controller decides about them, the log manager keeps them."""

    def __init__(
        self,
        controller: Controller,
        logs: LogManager,
        settings: Callable[[], BrokerSettings],
        parking: FetchParking,
        clock: Clock,
    ) -> None:
        self._controller = controller
        self._logs = logs
        self._present_settings = settings
        self._parking = parking
        self._clock = clock
        self._name_by_id = {topic.topic_id: topic.name for topic in logs.topics.values()}

    def all(self) -> list[Topic]:
        """Return every topic, sorted by name."""
        return [topic for _, topic in sorted(self._logs.topics.items())]

    def get(self, name: str) -> Topic | None:
        """Return the topic of this name."""
        return self._logs.topics.get(name)

    def by_id(self, topic_id: bytes) -> Topic | None:
        """Return the topic with this id."""
        name = self._name_by_id.get(topic_id)
        return None if name is None else self._logs.topics.get(name)

    def collides(self, name: str) -> bool:
        """Return whether metrics would confuse the name with that of a topic (``.`` and ``_`` are one)."""
        return folded(name) in self._logs.registry.names_by_fold

    @property
    def _settings(self) -> BrokerSettings:
        return self._present_settings()

    def create(
        self, name: str, partitions: int | None = None, configs: Mapping[str, str] | None = None
    ) -> Topic:
        """Create a topic, by default with the broker's ``num.partitions``.

        By default, an internal topic gets the partitions and options that Kafka gives it.

        Raises:
            BrokerResponseError: it exists (36), its name is illegal or collides (17), an option is illegal
                (40), or KAFKA_STORAGE_ERROR (56).
        """
        count = self._settings.num_partitions if partitions is None else partitions
        internal = new_internal_topic(name, self._settings) if partitions is None and not configs else None
        self.add([internal or NewTopic(name, count, dict(configs or {}))])
        return self._logs.topics[name]

    def create_all(self, names: Iterable[str]) -> None:
        """Create topics with the broker's defaults, all or none, in one change of the registry.

        Raises:
            BrokerResponseError: as ``create``, for the first one that is refused.
        """
        count = self._settings.num_partitions
        self.add([new_internal_topic(name, self._settings) or NewTopic(name, count, {}) for name in names])

    def create_missing(self, partitions: Mapping[str, int | None]) -> None:
        """Create the topics that do not exist, with these numbers of partitions; leave others as they are.

        Raises:
            BrokerResponseError: as ``create``, for the first one that is refused.
        """
        for name, count in partitions.items():
            if self.get(name) is None:
                self.create(name, count)

    def add(self, wanted: list[NewTopic]) -> list[Topic]:
        """Create topics, all or none, in the whole cluster, and return them.

        Raises:
            BrokerResponseError: as ``create``, for the first one that is refused.
        """
        return self._create(wanted)

    def create_new(self, new: NewTopic, *, validate_only: bool) -> Topic:
        """Create a topic in the whole cluster, or only return how it would be.

        Raises:
            BrokerResponseError: as ``create``, or its replicas are illegal (38, 39).
        """
        return self._create([new], validate_only=validate_only)[0]

    def _create(self, wanted: list[NewTopic], *, validate_only: bool = False) -> list[Topic]:
        settings = self._settings
        if any(new.name == METADATA_TOPIC for new in wanted):
            raise InvalidRequestError(f"{METADATA_TOPIC} is Kafka's own log, and no topic")
        return self._controller.create_topics(
            wanted,
            partial(new_topic_settings, settings.topic_defaults),
            settings.default_replication_factor,
            validate_only=validate_only,
        )

    def prepare(self, new: NewTopic) -> Steps[NewTopic]:
        """Create the files of many partitions in steps, before the topic is created or extended.

        Few partitions, and those of several brokers, are not prepared. The caller waits with `wait_for`
        first, and calls `give_up` in the end.

        Args:
            new: the topic, checked already.

        Returns:
            The same with an id.

        Raises:
            BrokerResponseError: KAFKA_STORAGE_ERROR (56), or as `LogManager.prepare`.
        """
        here = self.get(new.name)
        known = () if here is None else here.partitions
        numbers = sorted(set(range(new.partitions)).difference(known))
        if len(numbers) <= MAX_REMOVED_AT_ONCE or not self._controller.is_alone or self._controller.has_ended:
            return new
        topic_id = new_uuid() if here is None else here.topic_id
        topic = Topic(new.name, topic_id, tuple(range(new.partitions)), new.configs)
        for made in self._logs.prepare(topic, numbers, now_ms=self._clock.wall_ms()):
            yield made * PARTITION_UNITS
        return attrs.evolve(new, topic_id=topic_id)

    def is_busy(self, name: str) -> bool:
        """Return whether partitions of this name are being created or removed; the caller then waits."""
        return self._logs.is_busy(name)

    def wait_for(self, name: str) -> Steps[None]:
        """Wait until no partitions of this name are being created or removed."""
        while self._logs.is_busy(name):
            yield from self.remove_directories()
            yield TURN_UNITS

    def give_up(self, new: NewTopic) -> None:
        """Remove what ``prepare`` created, unless it belongs to the topic now."""
        prepared = self._logs.prepared.get(new.name)
        if prepared is not None and prepared.topic.topic_id == new.topic_id:
            self._logs.give_up(prepared)

    def remove_directories(self) -> Steps[None]:
        """Remove the files of large topics that were deleted, in steps."""
        for removed in self._logs.removals.steps():
            yield removed * PARTITION_UNITS

    def delete(self, topic: Topic) -> None:
        """Delete a topic in the whole cluster; fetches that wait for it are answered.

        Raises:
            BrokerResponseError: KAFKA_STORAGE_ERROR (56): the disk failed; the next start goes on.
        """
        self._controller.delete_topic(topic.name)

    def delete_all(self, topics: Sequence[Topic]) -> dict[str, BrokerResponseError]:
        """As ``delete`` for several topics; a broker that is alone changes its registry only once.

        The caller calls ``free_names`` after the last one.

        Returns:
            The errors of topics that were not deleted, by name.
        """
        refused: dict[str, BrokerResponseError] = {}
        remaining = list(topics)
        # The controller of a single broker has no state but that of the data directory.
        if self._controller.is_alone and not self._controller.has_ended:
            try:
                self._delete(*topics)
            except BrokerResponseError as error:
                refused = {topic.name: error for topic in topics}
            remaining = [topic for topic in topics if topic.name not in self._logs.topics]
        for topic in remaining:
            try:
                self.delete(topic)
            except BrokerResponseError as error:
                refused[topic.name] = error
        return refused

    def free_names(self) -> None:
        """Make the names of deleted topics available; a creation that needs one does so, too."""
        self._logs.free_names()

    # --- changes of the controller --------------------------------------------------------------------------

    def apply(self, change: ClusterChange) -> None:
        """Create and delete topics here, as the controller has decided.

        Raises:
            KafkaStorageError: the disk failed.
        """
        gone = [topic for topic in change.deleted if topic.name in self._logs.topics]
        if gone:
            self._delete(*gone)
            self.free_names()
            for topic in gone:
                _log.info("deleted topic %s", topic.name)
        changed = [each for name, each in change.topics.items() if self._differs(name, each)]
        if changed:
            self._logs.change_topics(*changed, now_ms=self._clock.wall_ms())
        missing = [topic for topic in change.topics.values() if self._needs(topic)]
        if missing:
            wanted = [
                NewTopic(each.name, len(each.partitions), each.configs, each.topic_id) for each in missing
            ]
            self._logs.create_topics(wanted, now_ms=self._clock.wall_ms())
            self._name_by_id.update((topic.topic_id, topic.name) for topic in missing)
            for topic in missing:
                _log.info("created topic %s, partitions: %d", topic.name, len(topic.partitions))

    def _differs(self, name: str, topic: Topic) -> bool:
        """Return whether a topic of this broker gets other partitions or options."""
        here = self._logs.topics.get(name)
        return here is not None and here.topic_id == topic.topic_id and here != topic

    def delete_unknown(self, known: Mapping[str, Topic]) -> None:
        """Delete topics that were deleted in the cluster while this broker was down.

        Raises:
            KafkaStorageError: the disk failed.
        """
        for topic in [topic for name, topic in self._logs.topics.items() if name not in known]:
            self._delete(topic)
        self.free_names()

    def _needs(self, topic: Topic) -> bool:
        """Return whether a topic is missing here; an older one of the same name is deleted."""
        here = self._logs.topics.get(topic.name)
        if here is not None and here.topic_id != topic.topic_id:
            self._delete(here)
            self.free_names()
            here = None
        return here is None

    def _delete(self, *topics: Topic) -> None:
        """Delete topics of this broker; the caller calls ``free_names``. May raise KafkaStorageError."""
        try:
            self._logs.delete_topics([topic.name for topic in topics])
        finally:
            for topic in topics:
                # Also after an error: on a full disk the topics are gone, and the registry is written later.
                if topic.name not in self._logs.topics:
                    del self._name_by_id[topic.topic_id]
                    for partition in topic.partitions:
                        self._parking.changed(TopicPartition(topic.name, partition))


_COMPACTED = {"cleanup.policy": "compact", "compression.type": "producer"}


def new_internal_topic(name: str, settings: BrokerSettings) -> NewTopic | None:
    """Return an internal topic as Kafka creates it; None for any other name."""
    if name == CONSUMER_OFFSETS:
        configs = {"segment.bytes": str(settings.groups.offsets_topic_segment_bytes)}
        return NewTopic(
            name,
            settings.groups.offsets_topic_num_partitions,
            {**_COMPACTED, **configs},
            replication_factor=settings.groups.offsets_topic_replication_factor,
        )
    if name == TRANSACTION_STATE:
        configs = {
            "compression.type": "uncompressed",
            "segment.bytes": str(settings.transactions.transaction_state_log_segment_bytes),
            "min.insync.replicas": str(settings.transactions.transaction_state_log_min_isr),
        }
        return NewTopic(
            name,
            settings.transactions.transaction_state_log_num_partitions,
            {**_COMPACTED, **configs},
            replication_factor=settings.transactions.transaction_state_log_replication_factor,
        )
    return None
