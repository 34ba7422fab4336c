"""Reads a partition of ``__consumer_offsets`` again: its groups are then what they were before."""

from __future__ import annotations

import logging

from splashdam.embedded_broker.configs.own_topics import CONSUMER_OFFSETS
from splashdam.embedded_broker.groups.offset_records import (
    GroupKey,
    OffsetKey,
    parse_key,
    parse_value,
)
from splashdam.embedded_broker.groups.offset_state import OffsetState
from splashdam.embedded_broker.topics.internal_topics import StoredBatch
from splashdam.model.broker_errors import CorruptMessageError
from splashdam.record.aborted import ABORT, COMMIT, type_of_control_record
from splashdam.record.record import Record

_log = logging.getLogger(__name__)


class KnownKeys(dict[bytes, OffsetKey | GroupKey | None]):
    """What keys say: the same few come again and again."""

    def __missing__(self, data: bytes) -> OffsetKey | GroupKey | None:
        key = self[data] = parse_key(data)
        return key


def replay(state: OffsetState, keys: KnownKeys, batch: StoredBatch) -> None:
    """Takes in one batch of the log; a record that is none costs itself.

    Raises:
        CorruptMessageError: the batch cannot be read.
    """
    header = batch.header
    if header.is_control:
        record = next(iter(batch.records), None)
        kind = None if record is None else type_of_control_record(record)
        if kind in (ABORT, COMMIT):
            state.end_transaction(header.producer_id, committed=kind == COMMIT)
        return
    producer_id = header.producer_id if header.is_transactional else -1
    for record in batch.records:
        try:
            _replay_record(state, keys, record, producer_id)
        except CorruptMessageError as error:
            _log.warning("%s: record %d is left out: %s", CONSUMER_OFFSETS, record.offset, error.message)


def _replay_record(state: OffsetState, keys: KnownKeys, record: Record, producer_id: int) -> None:
    key = None if record.key is None else keys[record.key]
    if isinstance(key, GroupKey):
        state.membership(key, record.value)
    elif key is not None and record.value is None:
        state.forget(key)
    elif key is not None and record.value is not None:
        state.commit(key, parse_value(record.value), record.offset, producer_id)
