"""Hanging transactions: open in a partition, but unknown to the coordinator's log.

A killed process leaves none, because a batch is written after the state that allows it. A power cut without
``flush.messages`` may lose the state and keep the batch; read_committed consumers would then wait for ever. A
single broker ends such transactions at its start, because no other coordinator will. A directory without
``__transaction_state`` is left alone: it was copied from a cluster whose coordinator may still decide.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

import attrs

from splashdam.embedded_broker.controller.leadership import ClusterView
from splashdam.embedded_broker.transactions.markers import CompletesTransactions, WritesMarkers, write_marker
from splashdam.embedded_broker.transactions.metadata import EPOCH_BUMPS, TransactionMetadata, TransactionState
from splashdam.storage.background import log_failures
from splashdam.storage.topic_names import TRANSACTION_STATE
from splashdam.storage.transaction_marker import TransactionMarker

if TYPE_CHECKING:
    from splashdam.embedded_broker.topics.topics import Topics
    from splashdam.embedded_broker.transactions.metadata import TransactionMetadata
    from splashdam.model.values import TopicPartition
    from splashdam.storage.producers.state import ProducerEntry

_log = logging.getLogger(__name__)


class SettlesTransactions(CompletesTransactions, Protocol):
    """What ``settle_hanging`` needs of a broker; the attributes are those of `Broker`."""

    topics: Topics


def settle_hanging(
    broker: SettlesTransactions,
    states: Mapping[str, TransactionMetadata],
    put: Callable[[TransactionMetadata], object],
) -> None:
    """End every hanging transaction, or add it to the transaction of its producer.

    If the producer's state can still own the transaction, the partition is added to it. Otherwise it is
    committed if the state says that it was, else aborted.

    Args:
        broker: whose logs are searched.
        states: of all transactional ids.
        put: writes a changed state; raises BrokerResponseError.
    """
    is_alone = broker.controller.is_alone and isinstance(broker.leadership, ClusterView)
    if broker.topics.get(TRANSACTION_STATE) is None or not is_alone:
        return
    # The previous id counts, too: the last epoch of an id hands the transaction over to the next id.
    owners = {each.previous_producer_id: each for each in states.values()}
    owners.update({each.producer_id: each for each in states.values()})
    for topic_partition, log in broker.logs.logs.items():
        for entry in [each for each in log.producers if each.transaction_first_offset >= 0]:
            with log_failures(f"settling a transaction in {topic_partition}"):
                owner = owners.get(entry.producer_id)
                if owner is None or not _owns(owner, entry):
                    _end(broker, topic_partition, entry, owner)
                elif topic_partition not in owner.partitions:
                    owner = attrs.evolve(owner, partitions=owner.partitions | {topic_partition})
                    owners[entry.producer_id] = owner
                    put(owner)


def _end(
    broker: WritesMarkers,
    topic_partition: TopicPartition,
    entry: ProducerEntry,
    owner: TransactionMetadata | None,
) -> None:
    is_commit = owner is not None and _was_committed(owner, entry)
    _log.warning(
        "%s has an open transaction of producer %d that the coordinator does not know: %s",
        topic_partition,
        entry.producer_id,
        "committing it, as its producer was told" if is_commit else "aborting it",
    )
    marker = TransactionMarker(entry.producer_id, entry.epoch, is_commit, max(entry.coordinator_epoch, 0))
    write_marker(broker, topic_partition, marker)


def _owns(metadata: TransactionMetadata, entry: ProducerEntry) -> bool:
    """Whether the transaction of a transactional id is the open one of this producer entry."""
    if metadata.producer_id != entry.producer_id:
        return False
    if metadata.state is TransactionState.ONGOING:
        return metadata.producer_epoch == entry.epoch
    return metadata.is_prepared and metadata.producer_epoch >= entry.epoch


def _was_committed(metadata: TransactionMetadata, entry: ProducerEntry) -> bool:
    """Whether this transaction was the last one of the transactional id, and was committed."""
    if metadata.state is not TransactionState.COMPLETE_COMMIT:
        return False
    if metadata.producer_id != entry.producer_id:
        return metadata.previous_producer_id == entry.producer_id and metadata.producer_epoch == 0
    bump = 1 if metadata.client_version >= EPOCH_BUMPS else 0
    return metadata.producer_epoch == entry.epoch + bump
