"""Keys and values of ``__transaction_state``. Format: docs/format/transaction-state.md."""

from __future__ import annotations

import logging
from itertools import groupby
from typing import TYPE_CHECKING

from splashdam.embedded_broker.transactions.metadata import TransactionMetadata, TransactionState
from splashdam.model.broker_errors import CorruptMessageError
from splashdam.model.errors import ProtocolError
from splashdam.model.log_text import quoted
from splashdam.model.values import Buffer, TopicPartition
from splashdam.wire.fields import array, int8, int16, int32, int64, string
from splashdam.wire.message import Struct
from splashdam.wire.persisted import Persisted, decode_persisted, encode_persisted, version_of

if TYPE_CHECKING:
    from splashdam.embedded_broker.topics.internal_topics import InternalTopic

_log = logging.getLogger(__name__)

_FIRST_FLEXIBLE = 1
"""Transaction version from which values are written with tagged fields."""


class TransactionLogKey(Persisted, versions="0"):
    """Key: the transactional id."""

    transactional_id: str = string()


class PartitionsSchema(Struct):
    """The partitions of one topic."""

    topic: str = string()
    partition_ids: list[int] = array("int32")


class TransactionLogValue(Persisted, versions="0-1", flexible="1+"):
    """The state of a transactional id; ``transaction_status`` is a number of ``TransactionState``."""

    producer_id: int = int64()
    previous_producer_id: int = int64("1+", tag=0, default=-1, ignorable=True)
    next_producer_id: int = int64("1+", tag=1, default=-1, ignorable=True)
    producer_epoch: int = int16()
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, nullable="0+")
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16("1+", tag=2, ignorable=True)


def encode_key(transactional_id: str) -> bytes:
    """Encode the key of a transactional id."""
    return encode_persisted(TransactionLogKey(transactional_id=transactional_id), 0)


def encode_value(metadata: TransactionMetadata, transaction_version: int) -> bytes:
    """Encode the state of a transactional id; without tagged fields if ``transaction.version`` is 0."""
    partitions = None
    if metadata.state is not TransactionState.EMPTY:
        partitions = [
            PartitionsSchema(topic=topic, partition_ids=[each.partition for each in group])
            for topic, group in groupby(sorted(metadata.partitions), key=lambda each: each.topic)
        ]
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        previous_producer_id=metadata.previous_producer_id,
        next_producer_id=metadata.next_producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state.value,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=metadata.last_update_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
        client_transaction_version=metadata.client_version,
    )
    return encode_persisted(value, int(transaction_version >= _FIRST_FLEXIBLE))


def decode_key(key: Buffer) -> str | None:
    """Decode a key; None for an unknown version, which Kafka skips, too.

    Raises:
        CorruptMessageError: the bytes are no key.
    """
    try:
        if version_of(key) not in TransactionLogKey.VERSIONS:
            return None
        return decode_persisted(TransactionLogKey, key).transactional_id
    except ProtocolError as error:
        raise CorruptMessageError(f"a key of the transaction log cannot be read: {error}") from error


def decode_value(transactional_id: str, value: Buffer) -> TransactionMetadata:
    """Decode the state of a transactional id.

    Raises:
        CorruptMessageError: the bytes are no value, or of an unknown version.
    """
    try:
        read = decode_persisted(TransactionLogValue, value)
        state = TransactionState(read.transaction_status)
    except (ProtocolError, ValueError) as error:
        raise CorruptMessageError(
            f"the state of {quoted(transactional_id)} cannot be read: {error}"
        ) from error
    return TransactionMetadata(
        transactional_id=transactional_id,
        producer_id=read.producer_id,
        producer_epoch=read.producer_epoch,
        timeout_ms=read.transaction_timeout_ms,
        last_update_ms=read.transaction_last_update_timestamp_ms,
        state=state,
        partitions=frozenset(
            TopicPartition(each.topic, number)
            for each in read.transaction_partitions or ()
            for number in each.partition_ids
        ),
        start_ms=read.transaction_start_timestamp_ms,
        previous_producer_id=read.previous_producer_id,
        next_producer_id=read.next_producer_id,
        client_version=read.client_transaction_version,
    )


def read_states(topic: InternalTopic, partition: int) -> dict[str, TransactionMetadata]:
    """Read the states of all transactional ids of a partition of ``__transaction_state``.

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
                _log.warning("%s: %s; the record is skipped", topic.name, error.message)
    return states


def _take(states: dict[str, TransactionMetadata], key: bytes, value: bytes | None) -> None:
    """Apply a record.

    Raises:
        CorruptMessageError: the bytes do not fit the version.
    """
    transactional_id = decode_key(key)
    if transactional_id is not None:
        states.pop(transactional_id, None)
        if value is not None:
            states[transactional_id] = decode_value(transactional_id, value)
