"""Completes a decided transaction: writes a marker to every partition, then the final state.

Markers are written here, or by the brokers that lead the partitions, before EndTxn is answered: a consumer
that reads after the commit sees its records, and the next transaction need not wait. If a log involved is
synced before it acknowledges, the decision is synced before the first marker is written, and the markers
before the final state, so that no power cut leaves half a transaction; in-sync replicas are waited for in the
same places. A marker that is refused is tried again with a growing backoff; until then the producer is told
to wait (51).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import trio

from splashdam.embedded_broker.controller.state import NOBODY
from splashdam.embedded_broker.topics.internal_topics import sync_up_to, term_of, wait_safe
from splashdam.embedded_broker.topics.partitions import KnowsPartitions, leader_log
from splashdam.embedded_broker.transactions.metadata import TransactionMetadata, TransactionState
from splashdam.model.broker_errors import (
    BrokerResponseError,
    ErrorCode,
    InvalidProducerEpochError,
    UnknownTopicOrPartitionError,
    error_class,
)
from splashdam.model.errors import KafkaError
from splashdam.model.log_text import quoted
from splashdam.model.values import TopicPartition
from splashdam.storage.background import log_failures
from splashdam.storage.topic_names import CONSUMER_OFFSETS
from splashdam.storage.transaction_marker import MARKER_BYTES, TransactionMarker
from splashdam.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

if TYPE_CHECKING:
    from splashdam.embedded_broker.controller.controller import Controller
    from splashdam.embedded_broker.controller.inter_broker_client import InterBrokerClient
    from splashdam.embedded_broker.groups.group_offsets import GroupOffsets
    from splashdam.embedded_broker.topics.parking import FetchParking
    from splashdam.net.clock import Clock
    from splashdam.storage.log import Log

_log = logging.getLogger(__name__)

StartSoon = Callable[[Callable[[TransactionMetadata], Awaitable[object]], TransactionMetadata], object]
"""Starts a task in the broker's nursery, with one argument."""


class WritesMarkers(KnowsPartitions, Protocol):
    """What writing markers needs of a broker; the attributes are those of `Broker`."""

    clock: Clock
    parking: FetchParking
    offsets: GroupOffsets
    peers: InterBrokerClient


class CompletesTransactions(WritesMarkers, Protocol):
    """What completing transactions needs of a broker; the attributes are those of `Broker`."""

    controller: Controller


class KeepsTransactions(Protocol):
    """What `TransactionCompletion` needs of its coordinator."""

    def get(self, transactional_id: str) -> TransactionMetadata | None:
        """Return the state of a transactional id, None if unknown."""
        ...

    def log_of(self, transactional_id: str) -> Log:
        """Return the log of its state."""
        ...

    def put(self, metadata: TransactionMetadata) -> None:
        """Append a state, which then takes effect; raises BrokerResponseError."""
        ...


class TransactionCompletion:
    """Completes decided transactions: writes their markers, then the final state."""

    def __init__(
        self, broker: CompletesTransactions, coordinator: KeepsTransactions, start_soon: StartSoon
    ) -> None:
        self._broker = broker
        self._coordinator = coordinator
        self._start_soon = start_soon
        self._missing: dict[str, set[TopicPartition]] = {}
        self._under_way: dict[str, trio.Event] = {}
        self._refused = trio.Event()

    @property
    def needs_retry(self) -> bool:
        """Whether a completion has failed and has to be tried again."""
        # a completion under way may belong to an id that was forgotten
        return not self._missing.keys() <= self._under_way.keys()

    async def wait_refused(self) -> None:
        """Wait for the next completion that fails."""
        self._refused = trio.Event()
        await self._refused.wait()

    def under_way(self, transactional_id: str) -> trio.Event | None:
        """Return the event at the end of a completion that waits for disks or brokers; None if none waits."""
        return self._under_way.get(transactional_id)

    def begin(self, metadata: TransactionMetadata) -> None:
        """Complete a transaction that was just decided: at once, if nothing has to be waited for."""
        self._missing[metadata.transactional_id] = set(metadata.partitions)
        self._go_on(metadata)

    def forget(self, transactional_id: str) -> None:
        """Drop a transactional id that another broker coordinates from now on."""
        self._missing.pop(transactional_id, None)

    def retry(self) -> None:
        """Try completions again that have failed."""
        for transactional_id in self._missing.keys() - self._under_way.keys():
            metadata = self._coordinator.get(transactional_id)
            if metadata is not None:  # nothing else changes a prepared state
                self._go_on(metadata)

    def _go_on(self, metadata: TransactionMetadata) -> None:
        transactional_id = metadata.transactional_id
        # begun in an earlier term as coordinator; tried again once that has ended
        if transactional_id in self._under_way:
            return
        with log_failures(f"completing the transaction of {quoted(transactional_id)}"):
            # A single broker without syncs completes at once, so the next transaction never meets 51, after
            # which clients wait retry.backoff.ms (docs/decisions/broker-transactions.md).
            if not self._broker.controller.is_alone or self.must_sync(metadata):
                self._under_way[transactional_id] = trio.Event()
                self._start_soon(self._complete_safely, metadata)
                return
            missing = self._missing[transactional_id]
            missing.difference_update(self._write_markers(metadata, self._marker(metadata), missing))
            self._complete(metadata)
        self._note_refusal(transactional_id)

    def must_sync(self, metadata: TransactionMetadata) -> bool:
        """Whether a log involved must be synced before it acknowledges."""
        logs = [self._coordinator.log_of(metadata.transactional_id)]
        logs += filter(None, map(self._broker.logs.logs.get, metadata.partitions))
        return any(log.must_flush or log.settings.flush_messages == 1 for log in logs)

    async def _complete_safely(self, metadata: TransactionMetadata) -> None:
        transactional_id = metadata.transactional_id
        try:
            with log_failures(f"completing the transaction of {quoted(transactional_id)}"):
                must_sync, log = self.must_sync(metadata), self._coordinator.log_of(transactional_id)
                # The decision must be durable before the first marker, or a power cut leaves half of it.
                await wait_safe(log, log.log_end_offset, term_of(log), needs_sync=must_sync)
                missing = self._missing.get(transactional_id)
                if missing is None:  # another broker coordinates now, and completes it
                    return
                # Made once: after the waits below, the log's leader epoch may be that of another coordinator,
                # and leaders would take this marker for one of its.
                marker = self._marker(metadata)
                leaders = Leaders(self._broker, missing)
                written = self._write_markers(metadata, marker, leaders.here).values()
                ends = [(log, log.log_end_offset, term_of(log)) for log in written]
                if must_sync:
                    # All of them before the first wait for replicas: consumers may see each marker already.
                    for log, end_offset, _ in ends:
                        with suppress(BrokerResponseError):  # raised again below
                            await sync_up_to(log, end_offset)
                for log, end_offset, term in ends:
                    with log_failures(
                        f"syncing the marker of {quoted(transactional_id)} in {log.topic_partition}"
                    ):
                        await wait_safe(log, end_offset, term, needs_sync=must_sync)
                        missing.discard(log.topic_partition)
                if self._missing.get(transactional_id) is not missing:  # as above; or decided anew since then
                    return
                missing.difference_update(leaders.needless)
                missing.difference_update(await write_elsewhere(self._broker.peers, leaders, marker))
                if self._missing.get(transactional_id) is missing:
                    self._complete(metadata)
        finally:
            self._under_way.pop(transactional_id).set()
            self._note_refusal(transactional_id)

    def _marker(self, metadata: TransactionMetadata) -> TransactionMarker:
        return TransactionMarker(
            metadata.producer_id,
            metadata.producer_epoch,
            metadata.state is TransactionState.PREPARE_COMMIT,
            self._coordinator.log_of(metadata.transactional_id).leader_epoch,
            metadata.client_version,
        )

    def _write_markers(
        self, metadata: TransactionMetadata, marker: TransactionMarker, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Log]:
        """Write missing markers to partitions that this broker leads; return their logs."""
        written: dict[TopicPartition, Log] = {}
        missing = self._missing[metadata.transactional_id]
        for topic_partition in sorted(partitions):
            try:
                written[topic_partition] = write_marker(self._broker, topic_partition, marker)
            except NEEDLESS as error:
                _log.info(
                    "%s needs no marker in %s: %s",
                    quoted(metadata.transactional_id),
                    topic_partition,
                    error.message,
                )
                missing.discard(topic_partition)
            except BrokerResponseError as error:
                _log.warning(
                    "cannot write the marker of %s in %s: %s",
                    quoted(metadata.transactional_id),
                    topic_partition,
                    error.message,
                )
        return written

    def _complete(self, metadata: TransactionMetadata) -> None:
        if self._missing.get(metadata.transactional_id) == set():
            self._coordinator.put(metadata.completed(self._broker.clock.wall_ms()))
            del self._missing[metadata.transactional_id]

    def _note_refusal(self, transactional_id: str) -> None:
        if transactional_id in self._missing:
            self._refused.set()


NEEDLESS = (
    UnknownTopicOrPartitionError,  # the topic was deleted
    InvalidProducerEpochError,  # an open transaction there is of a newer epoch
    error_class(ErrorCode.TRANSACTION_COORDINATOR_FENCED),
)
"""Errors after which a marker is not needed any more."""


def write_marker(broker: WritesMarkers, topic_partition: TopicPartition, marker: TransactionMarker) -> Log:
    """Write a marker to a partition that this broker leads, and wake the fetches that wait for it.

    Raises:
        UnknownTopicOrPartitionError: there is no such partition.
        NotLeaderOrFollowerError: another broker leads it.
        BrokerResponseError: what ``Log.append_marker`` raises.
    """
    log = leader_log(broker, topic_partition)
    log.append_marker(marker, now_ms=broker.clock.wall_ms())
    broker.parking.ended_transaction(topic_partition, MARKER_BYTES)
    if topic_partition.topic == CONSUMER_OFFSETS:
        broker.offsets.end_transaction(
            topic_partition.partition, marker.producer_id, committed=marker.is_commit
        )
    return log


class Leaders:
    """Partitions that need markers, by leader.

    Args:
        broker: the coordinator's broker.
        partitions: that need markers.

    Attributes:
        here: partitions that the broker leads itself.
        elsewhere: partitions that other brokers lead, by node id.
        needless: deleted partitions.
    """

    def __init__(self, broker: KnowsPartitions, partitions: Iterable[TopicPartition]) -> None:
        self.here: list[TopicPartition] = []
        self.elsewhere: dict[int, list[TopicPartition]] = {}
        self.needless: set[TopicPartition] = set()
        for topic_partition in sorted(partitions):
            leader = broker.leadership.leader_of(topic_partition)
            if leader is None:
                self.needless.add(topic_partition)
            elif leader.node_id == broker.node_id:
                self.here.append(topic_partition)
            elif leader.node_id != NOBODY:
                self.elsewhere.setdefault(leader.node_id, []).append(topic_partition)


async def write_elsewhere(
    peers: InterBrokerClient, leaders: Leaders, marker: TransactionMarker
) -> set[TopicPartition]:
    """Send WriteTxnMarkers to other brokers; return the partitions that need no marker any more."""
    done: set[TopicPartition] = set()
    async with trio.open_nursery() as nursery:
        for node_id, partitions in leaders.elsewhere.items():
            nursery.start_soon(_ask, peers, node_id, _request(partitions, marker), done)
    return done


async def _ask(
    peers: InterBrokerClient, node_id: int, request: WriteTxnMarkersRequest, done: set[TopicPartition]
) -> None:
    try:
        answer = await peers.ask(node_id, request)
    except KafkaError as error:
        _log.warning("node %d did not write markers: %s", node_id, error)
        return
    needless = {each.code for each in NEEDLESS}
    for result in answer.markers:
        for topic in result.topics:
            for each in topic.partitions:
                topic_partition = TopicPartition(topic.name, each.partition_index)
                if each.error_code == ErrorCode.NONE or each.error_code in needless:
                    done.add(topic_partition)
                else:
                    _log.info(
                        "no marker in %s: node %d answered with error code %d",
                        topic_partition,
                        node_id,
                        each.error_code,
                    )


def _request(partitions: Iterable[TopicPartition], marker: TransactionMarker) -> WriteTxnMarkersRequest:
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=marker.is_commit,
                topics=[
                    WritableTxnMarkerTopic(name=name, partition_indexes=each) for name, each in topics.items()
                ],
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.transaction_version,
            )
        ]
    )
