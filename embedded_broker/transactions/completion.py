"""From a decided transaction to a complete one: a marker in every partition, then the state that says so.

Kafka sends markers to the leaders by WriteTxnMarkers; here all partitions are at hand, and the whole is done
before EndTxn is answered: whoever reads behind a commit finds it, and the next transaction need not wait.
Where a log promises to be on stable storage, the decision is synced before the first marker is written, and
the markers before the transaction is called complete, so that no power cut leaves half of it. What the disk
refuses is tried again from time to time; the producer is told to wait (51) until then.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import trio

from splashdam.embedded_broker.internal_topics import CONSUMER_OFFSETS
from splashdam.embedded_broker.storage.housekeeping import logged
from splashdam.embedded_broker.storage.transaction_marker import MARKER_BYTES, TransactionMarker
from splashdam.embedded_broker.transactions.metadata import TransactionMetadata
from splashdam.embedded_broker.transactions.states import TransactionState
from splashdam.model.broker_errors import InvalidProducerEpochError, UnknownTopicOrPartitionError, error_class
from splashdam.model.error_codes import ErrorCode
from splashdam.model.errors import BrokerResponseError
from splashdam.model.values import TopicPartition

if TYPE_CHECKING:
    from splashdam.embedded_broker.broker import Broker
    from splashdam.embedded_broker.storage.log import Log
    from splashdam.embedded_broker.transactions.coordinator import TransactionCoordinator

_log = logging.getLogger(__name__)

StartSoon = Callable[[Callable[[TransactionMetadata], Awaitable[object]], TransactionMetadata], object]
"""Begins a task of the broker's own, with one argument."""

_NEEDLESS = (
    UnknownTopicOrPartitionError,  # the topic was deleted
    InvalidProducerEpochError,  # whatever is open there is of a newer epoch
    error_class(ErrorCode.TRANSACTION_COORDINATOR_FENCED),
)


def write_marker(broker: Broker, topic_partition: TopicPartition, marker: TransactionMarker) -> Log:
    """Ends a producer's transaction in one partition, and tells whoever waits for that.

    Raises:
        UnknownTopicOrPartitionError: the partition is not here.
        BrokerResponseError: what ``Log.append_marker`` raises.
    """
    log = broker.logs.logs.get(topic_partition)
    if log is None:
        raise UnknownTopicOrPartitionError(f"this broker does not host {topic_partition}")
    log.append_marker(marker, now_ms=broker.clock.wall_ms())
    broker.parking.ended_transaction(topic_partition, MARKER_BYTES)
    if topic_partition.topic == CONSUMER_OFFSETS:
        broker.offsets.end_transaction(
            topic_partition.partition, marker.producer_id, committed=marker.is_commit
        )
    return log


class TransactionCompletion:
    """The transactions that are decided and owed markers."""

    def __init__(self, broker: Broker, coordinator: TransactionCoordinator, start_soon: StartSoon) -> None:
        self._broker = broker
        self._coordinator = coordinator
        self._start_soon = start_soon
        self._owed: dict[str, set[TopicPartition]] = {}
        self._under_way: dict[str, trio.Event] = {}
        self._refused = trio.Event()

    @property
    def is_owing(self) -> bool:
        """Whether something was refused and is to be tried again."""
        return len(self._owed) > len(self._under_way)

    async def wait_refused(self) -> None:
        """Returns when something was refused since the last ``retry``."""
        await self._refused.wait()

    def under_way(self, transactional_id: str) -> trio.Event | None:
        """What is set when a completion that waits for the disk has come to its end, whichever; else None."""
        return self._under_way.get(transactional_id)

    def begin(self, metadata: TransactionMetadata) -> None:
        """Completes a transaction that was just decided: at once, unless the disk is waited for."""
        self._owed[metadata.transactional_id] = set(metadata.partitions)
        self._go_on(metadata)

    def forget(self, transactional_id: str) -> None:
        """Another coordinator owes its markers from now on."""
        self._owed.pop(transactional_id, None)

    def retry(self) -> None:
        """Goes on with what was refused."""
        self._refused = trio.Event()
        for transactional_id in self._owed.keys() - self._under_way.keys():
            metadata = self._coordinator.get(transactional_id)
            if metadata is not None:  # nobody else leads it out of its state
                self._go_on(metadata)

    def _go_on(self, metadata: TransactionMetadata) -> None:
        transactional_id = metadata.transactional_id
        with logged(f"completing the transaction of {transactional_id!r}"):
            if self._waits_for_disk(metadata):
                self._under_way[transactional_id] = trio.Event()
                self._start_soon(self._complete_safely, metadata)
                return
            self._owed[transactional_id] -= self._write_markers(metadata).keys()
            self._complete(metadata)
        self._note_refusal(transactional_id)

    def _waits_for_disk(self, metadata: TransactionMetadata) -> bool:
        """Whether a log involved promises that what it acknowledges survives a power cut."""
        logs = [self._coordinator.log_of(metadata.transactional_id)]
        logs += filter(None, map(self._broker.logs.logs.get, metadata.partitions))
        return any(log.must_flush or log.settings.flush_messages == 1 for log in logs)

    async def _complete_safely(self, metadata: TransactionMetadata) -> None:
        transactional_id = metadata.transactional_id
        try:
            with logged(f"completing the transaction of {transactional_id!r}"):
                await self._coordinator.log_of(transactional_id).sync()
                for topic_partition, log in self._write_markers(metadata).items():
                    await log.sync()
                    self._owed[transactional_id].discard(topic_partition)
                self._complete(metadata)
        finally:
            self._under_way.pop(transactional_id).set()
            self._note_refusal(transactional_id)

    def _write_markers(self, metadata: TransactionMetadata) -> dict[TopicPartition, Log]:
        """Writes the markers that are still owed, where the disk takes them; returns where."""
        written: dict[TopicPartition, Log] = {}
        owed = self._owed[metadata.transactional_id]
        marker = TransactionMarker(
            metadata.producer_id,
            metadata.producer_epoch,
            metadata.state is TransactionState.PREPARE_COMMIT,
            self._coordinator.log_of(metadata.transactional_id).leader_epoch,
        )
        for topic_partition in sorted(owed):
            try:
                written[topic_partition] = write_marker(self._broker, topic_partition, marker)
            except _NEEDLESS as error:
                _log.info(
                    "%r needs no marker in %s: %s", metadata.transactional_id, topic_partition, error.message
                )
                owed.discard(topic_partition)
            except BrokerResponseError as error:
                _log.warning(
                    "no marker for %r in %s: %s", metadata.transactional_id, topic_partition, error.message
                )
        return written

    def _complete(self, metadata: TransactionMetadata) -> None:
        if not self._owed[metadata.transactional_id]:
            self._coordinator.put(metadata.completed(self._broker.clock.wall_ms()))
            del self._owed[metadata.transactional_id]

    def _note_refusal(self, transactional_id: str) -> None:
        if transactional_id in self._owed:
            self._refused.set()
