"""A partition as a list, with the rules by which a broker accepts a producer's batches: the model in tests.

The rules are those of Kafka's ``ProducerAppendInfo`` and ``ProducerStateManager``: the last five batches of a
producer are remembered, and a producer that is not known may begin with any sequence number.
"""

from __future__ import annotations

from collections import deque

import attrs

from splashdam.model.broker_errors import ErrorCode
from splashdam.record.batch import BatchHeader, crc_ok, parse_header
from splashdam.record.reader import Record, read_records

REMEMBERED_BATCHES = 5
_SEQUENCES = 1 << 31


@attrs.define
class ProducerState:
    """What a partition remembers of one producer: its epoch and (first, last, offset) of its last batches."""

    epoch: int
    batches: deque[tuple[int, int, int]] = attrs.field(factory=lambda: deque(maxlen=REMEMBERED_BATCHES))


@attrs.define
class ScriptedLog:
    """One partition.

    Attributes:
        max_batch_bytes: a larger batch is refused with 10; None for no limit.
        refused: records, by value, that are refused with an error code in whatever batch they come.
        records: what was accepted, in order.
        headers: of the accepted batches, in order.
        repeats: batches that were recognised as written before.
    """

    max_batch_bytes: int | None = None
    refused: dict[bytes | None, int] = attrs.field(factory=dict)
    records: list[Record] = attrs.field(factory=list)
    headers: list[BatchHeader] = attrs.field(factory=list)
    repeats: int = 0
    _producers: dict[int, ProducerState] = attrs.field(factory=dict)

    def append(self, batch: bytes) -> tuple[int, int]:
        """Error code and base offset for a batch; nothing changes on an error."""
        header = parse_header(batch)
        if not crc_ok(batch, 0, header):
            return ErrorCode.CORRUPT_MESSAGE, -1
        if self.max_batch_bytes is not None and len(batch) > self.max_batch_bytes:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        for record in read_records(batch):
            if record.value in self.refused:
                return self.refused[record.value], -1
        code, offset = self._check(header)
        if code or offset >= 0:
            self.repeats += not code
            return code, offset
        offset = len(self.records)
        self.records += read_records(batch)
        self.headers.append(header)
        self._remember(header, offset)
        return ErrorCode.NONE, offset

    def refuse(self, batch: bytes, code: int) -> None:
        """From now on refuses the records of a batch, unless it is written already."""
        if not self.has(batch):
            self.refused.update((record.value, code) for record in read_records(batch))

    def has(self, batch: bytes) -> bool:
        """Whether the batch is one of those that would be recognised as a repeat."""
        header = parse_header(batch)
        state = self._producers.get(header.producer_id)
        same_epoch = state is not None and state.epoch == header.producer_epoch
        return same_epoch and self._check(header)[1] >= 0

    def forget_producers(self) -> None:
        """As after the broker's producer expiry: nobody is known any more."""
        self._producers.clear()

    @property
    def values(self) -> list[bytes | None]:
        """The values of all records."""
        return [record.value for record in self.records]

    def _check(self, header: BatchHeader) -> tuple[int, int]:
        """Error code, and the old offset of a repeat (-1: it is new)."""
        state = self._producers.get(header.producer_id)
        if header.producer_id < 0 or state is None:
            return ErrorCode.NONE, -1
        if header.producer_epoch < state.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        if header.producer_epoch > state.epoch:
            fits = header.base_sequence == 0
            return (ErrorCode.NONE if fits else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), -1
        for first, last, offset in state.batches:
            if (first, last) == (header.base_sequence, header.last_sequence):
                return ErrorCode.NONE, offset
        fits = header.base_sequence == (state.batches[-1][1] + 1) % _SEQUENCES
        return (ErrorCode.NONE if fits else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), -1

    def _remember(self, header: BatchHeader, offset: int) -> None:
        if header.producer_id < 0:
            return
        state = self._producers.get(header.producer_id)
        if state is None or state.epoch != header.producer_epoch:
            state = self._producers[header.producer_id] = ProducerState(header.producer_epoch)
        state.batches.append((header.base_sequence, header.last_sequence, offset))
