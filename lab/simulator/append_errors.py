"""Injects errors into the answers to appends, consistently, as a real broker would answer.

Two rules: a permanent error is repeated for every copy of the batch, also for one that arrives late over an
old connection; and a batch that is written already is recognised before any error. No producer could be safe
with a broker that breaks them.
"""

from __future__ import annotations

import zlib
from random import Random

from lab.simulator.report import RunRecord
from splashdam.model.broker_errors import BrokerResponseError, CorruptMessageError, error_for
from splashdam.model.values import Buffer, TopicPartition
from splashdam.record.batch import HEADER_BYTES, BatchHeader, parse_header
from splashdam.storage.log import AppendResult, Log

RETRIABLE = (2, 3, 5, 6, 19, 56, 59, 74, 75)
"""Error codes of an append that was not done: the producer sends the batch again."""
WRITTEN_ANYWAY = (7, 20)
"""Error codes of an append that was done: REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS_AFTER_APPEND."""
PERMANENT = (-1, 18, 29, 32, 47, 87)
"""Error codes of an append that was not done: the batch fails."""
OUT_OF_SEQUENCE = 45
"""OUT_OF_ORDER_SEQUENCE_NUMBER."""


class AppendErrors:
    """Chooses errors for appends, and patches logs to raise them.

    Args:
        random: chooses the errors.
        record: for the trace and the counts.
        rates: probabilities by kind of error: ``retriable``, ``written``, ``refused`` (permanent),
            ``sequence``.
    """

    def __init__(self, random: Random, record: RunRecord, rates: dict[str, float]) -> None:
        self.active = True
        self._random = random
        self._record = record
        self._rates = rates
        self._refused: dict[tuple[TopicPartition, int], int] = {}
        self._out_of_sequence: set[tuple[TopicPartition, int, int]] = set()

    def watch(self, log: Log, node_id: int) -> None:
        """Patch a log, so that its appends may fail and are in the trace."""
        append = log.append_as_leader

        def watched(
            batch: Buffer,
            *,
            now_ms: int,
            leader_epoch: int | None = None,
            header: BatchHeader | None = None,
        ) -> AppendResult:
            sent = header or parse_header(batch)
            what = _text(log.topic_partition, sent, node_id)
            try:
                after = self._before(log, sent, batch)
                appended = append(batch, now_ms=now_ms, leader_epoch=leader_epoch, header=header)
            except BrokerResponseError as error:
                self._record.note("refused", f"{what} {error.code}")
                self._record.count(f"batches answered with {error.code}")
                if isinstance(error, CorruptMessageError) and "on purpose" not in error.message:
                    self._record.violated(f"a broker received damaged bytes: {what}")
                raise
            kind = "repeat" if appended.duplicate else "append"
            self._record.note(kind, f"{what} @{appended.base_offset}")
            self._record.count("batches recognised as repeats" if appended.duplicate else "batches appended")
            if after:
                self._record.note("answered", f"{what} {after}")
                self._record.count(f"batches written and answered with {after}")
                raise error_for(after, "on purpose, after it was written")
            return appended

        vars(log)["append_as_leader"] = watched

    def _before(self, log: Log, header: BatchHeader, batch: Buffer) -> int:
        """Raise an error instead of the append, or return the error code to raise after it, 0 for none."""
        if not _is_repeat(log, header):
            self._refuse(log, header, batch)
        if not self.active:
            return 0
        if self._happens("retriable"):
            raise error_for(self._random.choice(RETRIABLE), "on purpose")
        return self._random.choice(WRITTEN_ANYWAY) if self._happens("written") else 0

    def _refuse(self, log: Log, header: BatchHeader, batch: Buffer) -> None:
        topic_partition = log.topic_partition
        content = (topic_partition, zlib.crc32(memoryview(batch)[HEADER_BYTES:]))
        producer = (topic_partition, header.producer_id, header.producer_epoch)
        if self.active and content not in self._refused and self._happens("refused"):
            self._refused[content] = self._random.choice(PERMANENT)
        if self.active and header.producer_id >= 0 and self._happens("sequence"):
            self._out_of_sequence.add(producer)
        if content in self._refused:
            raise error_for(self._refused[content], "on purpose, for good")
        if producer in self._out_of_sequence:
            raise error_for(OUT_OF_SEQUENCE, "on purpose, in this epoch")

    def _happens(self, kind: str) -> bool:
        rate = self._rates.get(kind, 0.0)
        return bool(rate) and self._random.random() < rate


def _is_repeat(log: Log, header: BatchHeader) -> bool:
    if header.producer_id < 0:
        return False
    try:
        return log.producers.check(header) is not None
    except BrokerResponseError:
        return False


def _text(topic_partition: TopicPartition, header: BatchHeader, node_id: int) -> str:
    return (
        f"{topic_partition} node={node_id} producer={header.producer_id}/{header.producer_epoch}"
        f" sequence={header.base_sequence} records={header.record_count}"
    )
