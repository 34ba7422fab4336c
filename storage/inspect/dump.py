"""Dump any file of a log or data directory, entry by entry.

An entry is a plain dict with Kafka's names, for printing. Records are included on request.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from splashdam.model.broker_errors import BrokerResponseError, KafkaStorageError
from splashdam.model.errors import UnsupportedCodecError
from splashdam.record.batch import CODEC_MASK, DELETE_HORIZON_BIT, MAGIC, BatchHeader, Codec
from splashdam.record.reader import Record, iter_records
from splashdam.storage.directories.checkpoints import decode_lines, parse_entry, whole_number_of
from splashdam.storage.directories.identity import PRODUCER_IDS_NAME
from splashdam.storage.directories.partition_metadata import FILE_NAME as METADATA_NAME
from splashdam.storage.inspect.read_only import (
    FoundBatch,
    OnBytes,
    ReadOnlyFile,
    Tail,
    iter_entries,
    measure_entries,
    open_read_only,
    read_small,
    walk_log,
)
from splashdam.storage.leader_epochs import FILE_NAME as EPOCHS_NAME
from splashdam.storage.producers.snapshots import decode_snapshot
from splashdam.storage.segments.indexes import OFFSET_ENTRY, TIME_ENTRY, TXN_ENTRY
from splashdam.storage.segments.segment import (
    CLEANED,
    DELETED,
    INDEX,
    LOG,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TXN_INDEX,
)

Entry: TypeAlias = dict[str, Any]
_MARKERS = {0: "ABORT", 1: "COMMIT", 2: "LEADER_CHANGE", 3: "SNAPSHOT_HEADER", 4: "SNAPSHOT_FOOTER",
            5: "KRAFT_VERSION", 6: "KRAFT_VOTERS"}  # fmt: skip
_MARKER_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")


def dump_file(
    path: str, *, deep: bool = False, print_data: bool = False, on_bytes: OnBytes = lambda _: None
) -> Iterator[Entry]:
    """Yield the entries of one file.

    Damage is reported as ``problem`` in its entry; the dump goes on as long as the next entry can be found.

    Args:
        path: a ``.log``, ``.index``, ``.timeindex``, ``.txnindex``, ``.snapshot``, a checkpoint or a
            ``partition.metadata``; the name may end with ``.deleted``, ``.cleaned`` or ``.swap``.
        deep: include the records of each batch.
        print_data: include keys, values and headers; implies ``deep``.
        on_bytes: reports progress in a ``.log``.

    Raises:
        KafkaStorageError: the file cannot be read, is of an unknown kind, or is not what its name says.
        CorruptMessageError: a snapshot is damaged.
    """
    name = os.path.basename(path)
    for suffix in (DELETED, CLEANED, SWAP):
        name = name.removesuffix(suffix)
    if name.endswith(LOG):
        yield from _log(path, deep or print_data, print_data, on_bytes)
    elif name.endswith((INDEX, TIME_INDEX, TXN_INDEX)):
        yield from _index(path, name)
    else:
        yield from _small_file(path, name)


def _small_file(path: str, name: str) -> Iterator[Entry]:
    if name.endswith(SNAPSHOT):
        yield from _snapshot(path)
    elif name == EPOCHS_NAME:
        for line in decode_lines(read_small(path), path):
            epoch, _, start = line.partition(" ")
            yield {"epoch": _number(epoch, line, path), "startOffset": _number(start, line, path)}
    elif name == PRODUCER_IDS_NAME:
        yield _producer_ids(read_small(path), path)
    elif name.endswith("-checkpoint"):
        for line in decode_lines(read_small(path), path):
            where, offset = parse_entry(line, path)
            yield {"topic": where.topic, "partition": where.partition, "offset": offset}
    elif name in (METADATA_NAME, "meta.properties"):
        separator = ":" if name == METADATA_NAME else "="
        lines = read_small(path).decode(errors="replace").splitlines()
        pairs = (line.partition(separator) for line in lines if not line.startswith("#"))
        yield {key.strip(): value.strip() for key, _, value in pairs}
    else:
        raise KafkaStorageError(
            f"{path} is of an unknown kind; known are .log, .index, .timeindex, .txnindex, .snapshot, "
            "checkpoints, partition.metadata and meta.properties"
        )


def _number(text: str, line: str, path: str) -> int:
    number = whole_number_of(text)
    if number is None:
        raise KafkaStorageError(f"{path}: {line!r} is not 'epoch offset'")
    return number


def _producer_ids(data: bytes, path: str) -> Entry:
    """Return the entry of a file whose second line is an id; in other checkpoints it counts the entries."""
    version, *numbers = data.decode(errors="replace").removesuffix("\n").split("\n")
    reserved = whole_number_of(numbers[0]) if len(numbers) == 1 else None
    if version != "0" or reserved is None:
        raise KafkaStorageError(f"{path} does not hold a version and a number")
    return {"firstUnreservedProducerId": reserved}


# --- .log ---------------------------------------------------------------------------------------------------


def _log(path: str, deep: bool, print_data: bool, on_bytes: OnBytes) -> Iterator[Entry]:
    with open_read_only(path) as file:
        for found in walk_log(file, on_bytes):
            if isinstance(found, Tail):
                kind = "zeros" if found.is_zeros else "no batch"
                entry = {"position": found.position, "size": found.size_bytes, "tail": kind}
                yield entry if found.is_zeros else {**entry, "problem": found.reason}
            else:
                yield _batch(found)
                if deep and found.data is not None:
                    yield from _records(found, found.data, print_data)


def _batch(found: FoundBatch) -> Entry:
    header = found.header
    entry: Entry = {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "position": found.position,
        "size": header.size_bytes,
        "magic": header.magic,
        "compresscodec": _codec_name(header),
        "timestampType": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        "maxTimestamp": header.max_timestamp,
        "crc": header.crc,
        "isvalid": found.crc_ok,
    }
    if header.magic == MAGIC:
        entry |= _fields_of_format_2(header)
    if found.crc_ok is False:
        entry["problem"] = "the checksum is wrong"
    elif found.data is None:
        entry["problem"] = "the batch is too large to be read"
    return entry


def _codec_name(header: BatchHeader) -> str:
    number = header.attributes & CODEC_MASK
    return Codec(number).name.lower() if number <= Codec.ZSTD else f"unknown ({number})"


def _fields_of_format_2(header: BatchHeader) -> Entry:
    entry: Entry = {
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.partition_leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
    }
    if header.attributes & DELETE_HORIZON_BIT:
        entry["deleteHorizonMs"] = header.base_timestamp
    return entry


def _records(found: FoundBatch, data: memoryview, print_data: bool) -> Iterator[Entry]:
    try:
        for record in iter_records(data):
            yield _record(record, found.header, print_data)
    except (BrokerResponseError, UnsupportedCodecError) as damage:
        text = damage.message if isinstance(damage, BrokerResponseError) else str(damage)
        yield {"baseOffset": found.header.base_offset, "problem": text}


def _record(record: Record, header: BatchHeader, print_data: bool) -> Entry:
    entry: Entry = {
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "keySize": -1 if record.key is None else len(record.key),
        "valueSize": -1 if record.value is None else len(record.value),
    }
    if header.is_control:
        entry |= _marker(record)
    elif print_data:
        entry |= {"key": record.key, "value": record.value, "headers": list(record.headers)}
    else:
        entry["headerKeys"] = [key for key, _ in record.headers]
    return entry


def _marker(record: Record) -> Entry:
    if record.key is None or len(record.key) < _MARKER_KEY.size:
        return {"endTxnMarker": None}
    kind = _MARKER_KEY.unpack_from(record.key)[1]
    marker: Entry = {"endTxnMarker": _MARKERS.get(kind, f"unknown ({kind})")}
    if kind in (0, 1) and record.value is not None and len(record.value) >= _MARKER_VALUE.size:
        marker["coordinatorEpoch"] = _MARKER_VALUE.unpack_from(record.value)[1]
    return marker


# --- indexes and snapshots ----------------------------------------------------------------------------------


def _index(path: str, name: str) -> Iterator[Entry]:
    base_offset = int(name[:20]) if name[:20].isascii() and name[:20].isdigit() else 0
    entry, as_dict = _KINDS[name[name.rindex(".") :]]
    with open_read_only(path) as file:
        extent = measure_entries(file, entry.size)
        for fields in iter_entries(file, entry, extent.entry_count):
            yield as_dict(fields, base_offset)
        yield from _after_the_entries(file, extent.zero_bytes, extent.torn_bytes)


def _after_the_entries(file: ReadOnlyFile, zero_bytes: int, torn_bytes: int) -> Iterator[Entry]:
    if zero_bytes:
        yield {"position": file.end - zero_bytes, "size": zero_bytes, "tail": "zeros"}
    if torn_bytes:
        where = {"position": file.end - torn_bytes, "size": torn_bytes}
        yield {**where, "tail": "torn", "problem": "the last entry is cut off"}


def _offset_entry(fields: tuple[int, ...], base_offset: int) -> Entry:
    return {"offset": base_offset + fields[0], "position": fields[1]}


def _time_entry(fields: tuple[int, ...], base_offset: int) -> Entry:
    return {"timestamp": fields[0], "offset": base_offset + fields[1]}


def _aborted_entry(fields: tuple[int, ...], _base_offset: int) -> Entry:
    names = ("version", "producerId", "firstOffset", "lastOffset", "lastStableOffset")
    return dict(zip(names, fields, strict=True))


_KINDS: dict[str, tuple[struct.Struct, Callable[[tuple[int, ...], int], Entry]]] = {
    INDEX: (OFFSET_ENTRY, _offset_entry),
    TIME_INDEX: (TIME_ENTRY, _time_entry),
    TXN_INDEX: (TXN_ENTRY, _aborted_entry),
}


def _snapshot(path: str) -> Iterator[Entry]:
    for producer in decode_snapshot(read_small(path)):
        last = producer.batches[-1] if producer.batches else None
        yield {
            "producerId": producer.producer_id,
            "producerEpoch": producer.epoch,
            "lastSequence": producer.last_sequence,
            "lastOffset": last.last_offset if last else -1,
            "offsetDelta": last.last_offset - last.first_offset if last else 0,
            "lastTimestamp": producer.timestamp_ms,
            "coordinatorEpoch": producer.coordinator_epoch,
            "currentTxnFirstOffset": producer.transaction_first_offset,
        }
