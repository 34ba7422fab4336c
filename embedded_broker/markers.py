"""Ending a transaction in one partition: the marker in its log, and what waits for that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splashdam.embedded_broker.storage.transaction_marker import MARKER_BYTES, TransactionMarker

if TYPE_CHECKING:
    from splashdam.embedded_broker.broker import Broker
    from splashdam.embedded_broker.storage.append_result import AppendResult
    from splashdam.embedded_broker.storage.log import Log


def append_marker(broker: Broker, log: Log, marker: TransactionMarker) -> AppendResult:
    """Appends a transaction's marker, and tells the fetches that wait for the partition.

    Raises:
        BrokerResponseError: as ``Log.append_marker``.
    """
    appended = log.append_marker(marker, now_ms=broker.clock.wall_ms())
    broker.parking.ended_transaction(log.topic_partition, MARKER_BYTES)
    return appended
