"""What a partition of ``__transaction_state`` says: the newest state of each of its transactional ids."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from splashdam.embedded_broker.transactions.records import decode_key, decode_value
from splashdam.model.broker_errors import CorruptMessageError

if TYPE_CHECKING:
    from splashdam.embedded_broker.topics.internal_topics import InternalTopic
    from splashdam.embedded_broker.transactions.metadata import TransactionMetadata

_log = logging.getLogger(__name__)


def read_states(topic: InternalTopic, partition: int) -> dict[str, TransactionMetadata]:
    """Every transactional id of a partition.

    Raises:
        CorruptMessageError: the log is damaged.
        KafkaStorageError: it cannot be read.
    """
    states: dict[str, TransactionMetadata] = {}
    for stored in topic.read_all(partition):
        for record in () if stored.header.is_control else stored.records:
            try:
                _take(states, bytes(record.key or b""), record.value)
            except CorruptMessageError as error:
                _log.warning("%s: %s; it is left out", topic.name, error.message)
    return states


def _take(states: dict[str, TransactionMetadata], key: bytes, value: bytes | None) -> None:
    """Takes in a record of the log.

    Raises:
        CorruptMessageError: it is not what its version says.
    """
    transactional_id = decode_key(key)
    if transactional_id is not None:
        states.pop(transactional_id, None)
        if value is not None:
            states[transactional_id] = decode_value(transactional_id, value)
