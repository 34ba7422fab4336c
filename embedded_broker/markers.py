"""Ending a transaction in one partition: the marker in its log, and what waits for that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splashdam.embedded_broker.internal_topics import CONSUMER_OFFSETS
from splashdam.embedded_broker.storage.transaction_marker import MARKER_BYTES, TransactionMarker

if TYPE_CHECKING:
    from splashdam.embedded_broker.broker import Broker
    from splashdam.embedded_broker.storage.append_result import AppendResult
    from splashdam.embedded_broker.storage.log import Log


def append_marker(broker: Broker, log: Log, marker: TransactionMarker) -> AppendResult:
    """Appends a transaction's marker, and tells whoever waits for it: fetches, and offsets of groups.

    Raises:
        BrokerResponseError: as ``Log.append_marker``.
    """
    appended = log.append_marker(marker, now_ms=broker.clock.wall_ms())
    broker.parking.ended_transaction(log.topic_partition, MARKER_BYTES)
    topic, partition = log.topic_partition
    if topic == CONSUMER_OFFSETS:
        broker.offsets.end_transaction(partition, marker.producer_id, committed=marker.is_commit)
    return appended
