"""Checks the promises after a run: compares the logs with the results that applications got."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from lab.simulator.cluster import SimulatedCluster
from lab.simulator.report import RunRecord
from lab.simulator.workload import SentRecord, Workload
from splashdam.model.broker_errors import MessageTooLargeError
from splashdam.model.values import RecordMetadata, TopicPartition
from splashdam.record.batch import BatchHeader, iter_headers
from splashdam.record.reader import Record, read_records
from splashdam.storage.log import Log

Place = tuple[TopicPartition, int]

_READ_BYTES = 1 << 20
_CONTROL_KEY = struct.Struct(">hh")  # version and type
_COMMIT = 1


class Checker:
    """Checks one run.

    Args:
        cluster: has the logs.
        record: for violations.
        calm: whether the run had no faults.
    """

    def __init__(self, cluster: SimulatedCluster, record: RunRecord, *, calm: bool) -> None:
        self._cluster = cluster
        self._record = record
        self._calm = calm

    def delivered(self, acks: int | str, sent: SentRecord, metadata: RecordMetadata) -> None:
        """Check at a delivery report that the record is in the log already."""
        where = TopicPartition(metadata.topic, metadata.partition)
        missing = self._cluster.missing(where, metadata.offset, acks)
        if missing:
            self._violated(f"{sent.name} was delivered at {where} @{metadata.offset}, and is not {missing}")

    def check(self, workloads: Iterable[Workload]) -> None:
        """Check the end of the run, when all brokers are up and all producers are closed."""
        self._cluster.check_replicas()
        places = self._places()
        self._record.count("records in the logs", sum(map(len, places.values())))
        for workload in workloads:
            self._check_results(workload)
            self._check_delivered(workload, places)
            self._check_duplicates(workload, places)
            self._check_order(workload, places)
            self._check_unknown_records(workload, places)
            self._check_transactions(workload)

    def _check_results(self, workload: Workload) -> None:
        for sent in workload.sent:
            if not sent.future.done() or sent.callbacks != 1:
                self._violated(f"the application was told {sent.callbacks} times of {sent.name}")
            elif (sent.error is None) != sent.future.succeeded():
                self._violated(f"callback and future of {sent.name} disagree")
            patient = self._calm and workload.plan.is_patient
            if patient and not isinstance(sent.error, MessageTooLargeError | None):
                self._violated(f"{sent.name} failed though nothing went wrong: {sent.error!r}")

    def _check_delivered(self, workload: Workload, places: dict[bytes, list[Place]]) -> None:
        for sent in workload.sent:
            if sent.metadata is None or workload.plan.options["acks"] == 0:
                continue
            told, found = sent.metadata, places.get(sent.value, [])
            where = (TopicPartition(told.topic, told.partition), told.offset)
            is_there = where in found or (found and told.offset < 0)
            if not is_there and workload.plan.options["acks"] == 1 and self._cluster.may_be_lost(*where):
                self._record.note("lost with its leader", f"{sent.name} {where[0]} @{told.offset}")
                self._record.count("records lost that the leader alone had acknowledged")
            elif not found:
                self._violated(f"{sent.name} was acknowledged at {where[0]} @{told.offset} and is lost")
            elif told.offset >= 0 and where not in found:
                self._violated(f"{sent.name} was acknowledged at {where}, but stands at {found}")

    def _check_duplicates(self, workload: Workload, places: dict[bytes, list[Place]]) -> None:
        for sent in workload.sent:
            repeats = len(places.get(sent.value, ())) - 1
            if repeats > 0:
                self._record.count("records written more than once, as acks and idempotence allow", repeats)
                if workload.plan.is_idempotent:
                    self._violated(f"{sent.name} stands in the log {repeats + 1} times")

    def _check_order(self, workload: Workload, places: dict[bytes, list[Place]]) -> None:
        if not workload.plan.keeps_order:
            return
        # A send that waits is noted when it returns, and callbacks may have sent meanwhile. So the sends of
        # callbacks have an order of their own.
        self._check_rising([sent for sent in workload.sent if not sent.is_chained], places)
        self._check_rising([sent for sent in workload.sent if sent.is_chained], places)

    def _check_rising(self, records: Iterable[SentRecord], places: dict[bytes, list[Place]]) -> None:
        last: dict[TopicPartition, int] = {}
        for sent in records:
            if sent.metadata is None or not places.get(sent.value):
                continue
            topic_partition, offset = places[sent.value][0]
            before = last.get(topic_partition, -1)
            if before >= offset:
                self._violated(f"{sent.name} stands at {offset}, and an earlier one at {before}")
            last[topic_partition] = offset

    def _check_unknown_records(self, workload: Workload, places: dict[bytes, list[Place]]) -> None:
        known = {sent.value for sent in workload.sent} | workload.perhaps_sent
        begin = workload.plan.name.encode() + b"-"
        for value in places:
            if value.startswith(begin) and value not in known:
                self._violated(f"{value[:20]!r} was not taken by the producer, and is in the log")

    def _check_transactions(self, workload: Workload) -> None:
        """Check that read_committed shows all records of a transaction or none."""
        committed = {
            value for each in self._cluster.partitions for value in _committed(self._cluster.leader_log(each))
        }
        for transaction in workload.transactions:
            delivered = [sent for sent in transaction.records if sent.metadata is not None]
            seen = [sent for sent in delivered if sent.value in committed]
            self._record.count(f"transactions {transaction.end}")
            if (transaction.end == "committed" and len(seen) < len(delivered)) or (
                transaction.end == "aborted" and seen
            ):
                self._violated(
                    f"{len(seen)} of {len(delivered)} records are seen of a transaction that was"
                    f" {transaction.end}: {', '.join(each.name for each in delivered)}"
                )
            elif transaction.end == "left open" and seen and len(seen) < len(delivered):
                self._violated(f"half of a transaction is seen: {', '.join(each.name for each in seen)}")

    def _places(self) -> dict[bytes, list[Place]]:
        places: dict[bytes, list[Place]] = {}
        for topic_partition in self._cluster.partitions:
            log = self._cluster.leader_log(topic_partition)
            if log is None:
                self._violated(f"nobody has the log of {topic_partition}")
                continue
            expected = 0
            for record, is_control in _records(log):
                if record.offset != expected:
                    self._violated(f"{topic_partition} goes on at {record.offset} instead of {expected}")
                expected = record.offset + 1
                if not is_control:
                    places.setdefault(record.value or b"", []).append((topic_partition, record.offset))
            if expected != log.log_end_offset:
                self._violated(f"{topic_partition} ends at {log.log_end_offset}, its records at {expected}")
        return places

    def _violated(self, promise: str) -> None:
        self._record.violated(promise)


def _records(log: Log) -> Iterator[tuple[Record, bool]]:
    """Yield every record, and whether it is a transaction marker."""
    for data, position, header in _batches(log):
        yield from ((record, header.is_control) for record in read_records(data, position))


def _batches(log: Log) -> Iterator[tuple[bytes, int, BatchHeader]]:
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        piece = log.read(offset, _READ_BYTES)
        data = bytes(piece.read())
        piece.close()
        for position, header in iter_headers(data):
            yield data, position, header
            offset = header.base_offset + header.last_offset_delta + 1


def _committed(log: Log | None) -> Iterator[bytes]:
    """Yield the values that a read_committed consumer sees, by the markers in the log."""
    pending: dict[int, list[bytes]] = {}
    for data, position, header in _batches(log) if log is not None else ():
        if header.is_control:
            ended = pending.pop(header.producer_id, [])
            (marker,) = read_records(data, position)
            if marker.key is not None and _CONTROL_KEY.unpack(marker.key)[1] == _COMMIT:
                yield from ended
        elif header.is_transactional:
            values = [record.value or b"" for record in read_records(data, position)]
            pending.setdefault(header.producer_id, []).extend(values)
