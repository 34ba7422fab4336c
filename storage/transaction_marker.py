"""Transaction markers: the control batch that commits or aborts a transaction.

Format: docs/format/record-batch.md.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from splashdam.model.values import Buffer
from splashdam.record.aborted_transactions import ABORT, COMMIT, CONTROL_KEY, type_of_control_record
from splashdam.record.reader import read_records
from splashdam.record.sealing import build_batch

_VALUE = Struct(">hi")  # version, coordinator epoch

MARKER_BYTES = 78
"""Size of a marker in a log."""


class TransactionMarker(NamedTuple):
    """What a transaction coordinator writes to every partition of a transaction.

    Attributes:
        producer_id: the transaction's producer id.
        producer_epoch: the producer epoch with which the transaction ends.
        is_commit: whether the transaction is committed; otherwise it is aborted.
        coordinator_epoch: leader epoch of the coordinator; a log refuses markers of an older one.
        transaction_version: from 2 on (KIP-890), the end of a transaction has a newer epoch than its records.
            Not stored.
    """

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int = 0

    def encoded(self, timestamp_ms: int) -> bytes:
        """Return the control batch, with base offset 0."""
        key = CONTROL_KEY.pack(0, COMMIT if self.is_commit else ABORT)
        value = _VALUE.pack(0, self.coordinator_epoch)
        return build_batch(
            [(timestamp_ms, key, value, None)],
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            transactional=True,
            control=True,
        )


def parse_marker(batch: Buffer, producer_id: int, producer_epoch: int) -> TransactionMarker | None:
    """Return the marker in a control batch; None if it is another kind of control batch.

    Raises:
        CorruptMessageError: the record cannot be read.
    """
    record = next(iter(read_records(batch)), None)
    kind = None if record is None else type_of_control_record(record)
    if record is None or kind not in (ABORT, COMMIT) or len(record.value or b"") < _VALUE.size:
        return None
    _, coordinator_epoch = _VALUE.unpack_from(record.value or b"")
    return TransactionMarker(producer_id, producer_epoch, kind == COMMIT, coordinator_epoch)
